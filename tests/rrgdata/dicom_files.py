"""Writes DICOM files for tests: any tags, plain or compressed."""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pydicom
import pytest
from PIL import Image
from pydicom.dataset import Dataset, FileMetaDataset
from pydicom.encaps import encapsulate
from pydicom.pixels import get_decoder
from pydicom.uid import ExplicitVRLittleEndian, JPEGBaseline8Bit, JPEGLosslessSV1, generate_uid

from rrgdata.images.read import read_image, read_with_facts
from rrgtrain.errors import UserError

VALUES = np.linspace(0, 4095, 64).round().astype(np.uint16).reshape(8, 8)


def write(path, values=VALUES, photometric="MONOCHROME2", syntax=ExplicitVRLittleEndian, **tags):
    meta = FileMetaDataset()
    meta.TransferSyntaxUID = syntax
    meta.MediaStorageSOPClassUID = "1.2.840.10008.5.1.4.1.1.1.1"
    meta.MediaStorageSOPInstanceUID = generate_uid(entropy_srcs=["test"])
    data = Dataset()
    data.file_meta = meta
    data.SOPClassUID, data.SOPInstanceUID = (
        meta.MediaStorageSOPClassUID,
        meta.MediaStorageSOPInstanceUID,
    )
    data.Rows, data.Columns = values.shape[-2:]
    data.SamplesPerPixel, data.PhotometricInterpretation = 1, photometric
    data.BitsAllocated, data.BitsStored, data.HighBit = 16, 16, 15
    data.PixelRepresentation = int(values.dtype.kind == "i")
    if values.ndim == 3:
        data.NumberOfFrames = values.shape[0]
    for name, value in tags.items():
        setattr(data, name, value)
    order = "<" if syntax.is_little_endian else ">"
    data.PixelData = values.astype(f"{order}{values.dtype.kind}2").tobytes()
    data.save_as(path, enforce_file_format=True)
    return path


def stored(path, bits):
    """Say in a file's header that its pixels have `bits` bits."""
    data = pydicom.dcmread(path)
    data.BitsStored, data.HighBit = bits, bits - 1
    data.save_as(path)
    return path


def recoded(path, syntax):
    data = pydicom.dcmread(path)
    data.compress(syntax)
    data.save_as(path)
    return path


def table_item(first, entries, bits, *, vr="US", data_vr="OW", packed=False, big=False):
    """Make an item of a VOI or Modality LUT Sequence.

    vr: of the descriptor, whatever the sign of `first`.
    packed: whether an entry takes a byte, the first one the low byte of its word.
    big: whether OW bytes are those of a big-endian file.
    """
    words = np.asarray(entries, np.uint16)
    if packed:
        data = np.append(words, [0] * (len(words) % 2)).astype(np.uint8)
        words = data.view("<u2")
    item = Dataset()
    word = first & 0xFFFF
    count = len(entries) & 0xFFFF
    numbers = [count, word, bits]
    if vr == "SS":
        numbers = [n - 65536 if n >= 32768 else n for n in numbers]
    item.add_new("LUTDescriptor", vr, numbers)
    stored_words = words.astype(">u2" if big else "<u2").tobytes()
    item.add_new("LUTData", data_vr, stored_words if data_vr == "OW" else words.tolist())
    return item


def encapsulated(path, syntax, frame, **tags):
    data = pydicom.dcmread(path)
    data.file_meta.TransferSyntaxUID = syntax
    for name, value in tags.items():
        setattr(data, name, value)
    data.PixelData = encapsulate([frame])
    data["PixelData"].VR = "OB"
    data.save_as(path)
    return path


def baseline(path, grey):
    stream = io.BytesIO()
    Image.fromarray(grey).save(stream, "JPEG", quality=100)
    write(path, grey.astype(np.uint16))
    eight = {"BitsAllocated": 8, "BitsStored": 8, "HighBit": 7}
    return encapsulated(path, JPEGBaseline8Bit, stream.getvalue(), **eight)


def lossless(path, values, bits):
    stored(write(path, values), bits)
    return encapsulated(path, JPEGLosslessSV1, lossless_jpeg(values, bits))


def lossless_jpeg(values: np.ndarray, bits: int) -> bytes:
    """Encode by ITU-T T.81 process 14, predictor 1: each difference to the left neighbour.

    The Huffman table gives each of the 17 categories the 5-bit code of its number.
    """
    rows, columns = values.shape
    predicted = np.empty(values.shape, dtype=np.int64)
    predicted[:, 1:] = values[:, :-1]
    predicted[1:, 0] = values[:-1, 0]
    predicted[0, 0] = 1 << (bits - 1)
    code = ""
    # modulo 65536; 32768, which is its own opposite, is a category without further bits
    differences = (values.astype(np.int64) - predicted + 32767) % 65536 - 32767
    for difference in differences.ravel().tolist():
        category = abs(difference).bit_length()
        code += f"{category:05b}"
        if 0 < category < 16:
            low = difference if difference > 0 else difference + (1 << category) - 1
            code += f"{low:0{category}b}"
    code += "1" * (-len(code) % 8)
    scan = int(code, 2).to_bytes(len(code) // 8, "big").replace(b"\xff", b"\xff\x00")

    def segment(marker: int, body: bytes) -> bytes:
        return struct.pack(">BBH", 0xFF, marker, len(body) + 2) + body

    frame = struct.pack(">BHHB", bits, rows, columns, 1) + bytes([1, 0x11, 0])
    table = bytes([0, 0, 0, 0, 0, 17, *[0] * 11, *range(17)])
    start = bytes([1, 1, 0, 1, 0, 0])
    return (
        b"\xff\xd8"
        + segment(0xC3, frame)
        + segment(0xC4, table)
        + segment(0xDA, start)
        + scan
        + b"\xff\xd9"
    )


def read(path: Path) -> np.ndarray:
    return np.asarray(read_image(path))[..., 0].astype(int)


NOTHING, CUT_SHORT = "a window or value table that shows nothing", "cannot be read; the window is"
INVERTED = "were inverted"


def notes_of(path: Path) -> tuple[str, ...]:
    """Name the notes on a file by their words above."""
    notes = read_with_facts(path)[1].notes
    return tuple(next(k for k in (NOTHING, CUT_SHORT, INVERTED) if k in note) for note in notes)


def refused(path, *parts):
    with pytest.raises(UserError) as caught:
        read_image(path)
    line = str(caught.value)
    assert "\n" not in line and path.name in line
    for part in parts:
        assert part in line


@contextmanager
def without_pylibjpeg(syntax) -> Iterator[None]:
    """As where the package that decodes these pixels is not installed."""
    decoder = get_decoder(syntax)
    had = "pylibjpeg" in decoder.available_plugins
    decoder.remove_plugin("pylibjpeg") if had else None
    try:
        yield
    finally:
        if had:
            decoder.add_plugin("pylibjpeg", ("pydicom.pixels.decoders.pylibjpeg", "_decode_frame"))
