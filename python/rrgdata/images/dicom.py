"""Reads DICOM radiographs as 8-bit grey, upright.

Compressed pixels: JPEG 2000 by pylibjpeg-openjpeg; JPEG (8 bits) by Pillow; JPEG of 12 bits, JPEG
lossless and JPEG-LS by pylibjpeg-libjpeg, which is GPL-3 and therefore an extra (`rrgkern[dicom]`);
RLE by pydicom.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Collection
from dataclasses import dataclass
from itertools import islice, pairwise
from pathlib import Path

import numpy as np
from pydicom import uid
from pydicom.dataset import Dataset
from pydicom.encaps import get_frame
from pydicom.errors import InvalidDicomError
from pydicom.pixels import get_decoder

from rrgclinical.common.errors import PassingError, Stopped, UserError
from rrgclinical.common.files import require_end
from rrgdata.images.dicom_grey import grey_of
from rrgdata.images.dicom_header import (
    begins_as_dicom,
    check_chest,
    check_length,
    is_long,
    open_dicom,
)
from rrgdata.images.endings import CODESTREAM, MARKERS, SCANS, jpeg_ends, jpeg_segments
from rrgdata.images.in_flight import check_area
from rrgdata.study import view_of_name

RLE_PADDING = 128
"""Bytes behind the pixels of an RLE segment that pass, one packet."""
FRAGMENT, FRAGMENTS = b"\xfe\xff\x00\xe0", 100_000
"""What a fragment of compressed pixels begins with, and how many there may be."""
PHOTOMETRIC = ("MONOCHROME1", "MONOCHROME2")
OPENJPEG = (uid.JPEG2000Lossless, uid.JPEG2000)
LIBJPEG = [*uid.JPEGTransferSyntaxes, *uid.JPEGLSTransferSyntaxes]
NEEDED = (
    *("Rows", "Columns", "SamplesPerPixel"),
    *("BitsAllocated", "BitsStored", "PixelRepresentation"),
)

Size = tuple[int, int, int]
"""Rows, columns and components."""
FRAMES = {*range(0xC0, 0xD0), 0xDE, 0xF7} - {0xC4, 0xC8, 0xCC}
"""Second bytes of the markers that begin a frame: JPEG's SOF and DHP, JPEG-LS's SOF."""
_FRAME = re.compile(b"\xff[" + b"".join(b"\\x%02x" % kind for kind in FRAMES) + b"]")
OVERSIZE = b"\xff\xf8", b"\x04"
"""JPEG-LS's marker LSE and its kind that gives a size of its own."""


@dataclass(frozen=True)
class DicomImage:
    """One decoded radiograph: uint8 `[height, width]`, bone white, and what its header says.

    `modality` and `body_part` are "" where the header has none; `notes` go on from "DICOM files".
    """

    pixels: np.ndarray
    modality: str
    body_part: str
    bits: int
    notes: tuple[str, ...] = ()


def is_dicom(file: Path) -> bool:
    """Tell whether a file begins as DICOM does, or ends in .dcm or .dicom."""
    require_end(file)
    with file.open("rb") as stream:
        head = stream.read(132)
    return begins_as_dicom(head) or file.suffix.lower() in (".dcm", ".dicom")


def view_of(file: Path) -> str:
    """Read the view that a file's ViewPosition tells: "frontal", "lateral", or "".

    It is "" too of a file that cannot be read: its reason is given where the image is.
    """
    try:
        dataset = open_dicom(file, stop_before_pixels=True, specific_tags=["ViewPosition"])
        return view_of_name(str(dataset.get("ViewPosition") or ""))
    except Stopped:
        raise
    except Exception:  # pydicom documents no list
        return ""


def dicom_area(file: Path) -> int:
    """Read the pixels that a header tells; whatever pydicom meets passes through."""
    options = {"stop_before_pixels": True, "specific_tags": ["Rows", "Columns"]}
    dataset = open_dicom(file, **options)
    return int(dataset.Rows) * int(dataset.Columns)


def read_dicom(file: Path, body_parts: Collection[str] = ()) -> DicomImage:
    """Read one grey frame of a chest radiograph, see `grey_of`.

    body_parts: further values of BodyPartExamined that pass as the chest.

    Raises UserError for anything else than one grey frame that decodes, for another modality than
    CR, DX and DR, and for another body part than the chest; a header that tells neither passes.
    """
    try:
        if is_long(file):
            # refused by the header alone, before so many bytes are read
            header = open_dicom(file, stop_before_pixels=True)
            check_chest(header, body_parts)
            _check_grey(header)
            check_length(file, header)
        dataset = open_dicom(file)
        modality, body_part = check_chest(dataset, body_parts)
        if not dataset.get("PixelData"):
            if "FloatPixelData" in dataset or "DoubleFloatPixelData" in dataset:
                raise UserError("the pixels are of floating point; export them as integers")
            raise UserError(
                "DICOM pixels cannot be decoded (no pixels are in the file: it has no image, or "
                "breaks off before them); copy it again"
            )
        _check_grey(dataset)
        shown, notes = grey_of(_stored(dataset), dataset)
    except Stopped:
        raise
    except UserError as error:
        raise type(error)(f"{file}: {error}") from None
    except InvalidDicomError:
        raise UserError(f"{file}: not DICOM, though named so; rename or replace it") from None
    except Exception as error:
        # pydicom and its decoders raise whatever they meet; all of it means an unusable file.
        reason = " ".join(str(error).split())[:160] or type(error).__name__
        raise PassingError.of(error)(
            f"{file}: DICOM pixels cannot be decoded ({reason}); re-export it as "
            "uncompressed DICOM or PNG"
        ) from None
    return DicomImage(shown, modality, body_part, int(dataset.BitsStored), notes)


def _check_grey(dataset: Dataset) -> None:
    frames = int(dataset.get("NumberOfFrames") or 1)
    photometric = str(dataset.get("PhotometricInterpretation") or "").strip()
    fault = ""
    if frames != 1:
        fault = f"multi-frame DICOM ({frames} frames) is not supported"
    elif photometric not in PHOTOMETRIC:
        fault = f"the photometric interpretation is {photometric or 'missing'}"
    if fault:
        raise UserError(f"{fault}; wanted one frame, {' or '.join(PHOTOMETRIC)}")
    if lacks := [name for name in NEEDED if dataset.get(name) is None]:
        raise UserError(f"the header lacks {', '.join(lacks)}; export the file again")
    if dataset.SamplesPerPixel != 1:
        raise UserError(f"the header has {dataset.SamplesPerPixel} samples a pixel; wanted 1")
    check_area(int(dataset.Columns), int(dataset.Rows))


def _stored(dataset: Dataset) -> np.ndarray:
    """Decode the pixels as they are stored, of any integer type."""
    syntax, bits = dataset.file_meta.TransferSyntaxUID, int(dataset.BitsStored)
    if not 1 <= bits <= dataset.BitsAllocated:
        raise UserError(
            f"the header has {bits} bits stored of {dataset.BitsAllocated} allocated; wanted 1 to "
            f"{dataset.BitsAllocated}"
        )
    if not syntax.is_encapsulated or syntax == uid.RLELossless:
        # pydicom takes the low bits whatever HighBit says
        high = dataset.get("HighBit")
        if high is not None and high != bits - 1:
            raise UserError(
                f"the high bit is {high} with {bits} bits stored; wanted {bits - 1} (PS3.5 8.1.1)"
            )
    needs = "openjpeg" if syntax in OPENJPEG else "libjpeg" if syntax in LIBJPEG else ""
    decoders = get_decoder(syntax).available_plugins if syntax.is_encapsulated else ()
    lacks = bool(needs) and "pylibjpeg" not in decoders
    if decoders:
        _check_stream(dataset)
    if needs == "openjpeg" and not lacks:
        # Pillow would be asked first, and scales what has more than 8 bits
        dataset.pixel_array_options(decoding_plugin="pylibjpeg")
    try:
        pixels = dataset.pixel_array
    except RuntimeError:
        if lacks:
            raise PassingError(
                f"this file is {syntax.name}; pip install pylibjpeg-{needs} to read it"
            ) from None
        raise
    # overlays of old lie in the bits above, which not every decoder leaves out (PS3.5 8.1.1);
    # a signed type brings the sign back
    unused = max(0, 8 * pixels.itemsize - bits)
    return pixels << unused >> unused


def _check_stream(dataset: Dataset) -> None:
    """Refuse compressed pixels that are truncated, or of another size than the header's.

    A decoder makes room for what the stream says, whatever the header around it says.
    """
    for table in ("ExtendedOffsetTable", "ExtendedOffsetTableLengths"):
        # one frame needs none, and it could show the decoder other bytes than these
        dataset.pop(table, None)
    if dataset.PixelData.count(FRAGMENT) > FRAGMENTS:
        raise UserError(
            f"the pixels are in more than {FRAGMENTS} fragments, as no radiograph's are; export "
            "the file again"
        )
    frame = get_frame(dataset.PixelData, 0, number_of_frames=1)
    syntax, rows, columns = dataset.file_meta.TransferSyntaxUID, dataset.Rows, dataset.Columns
    if syntax == uid.RLELossless:
        pixels = rows * columns
        for segment in _rle_segments(frame):
            size = _packed_size(segment, pixels + RLE_PADDING)
            if not pixels <= size <= pixels + RLE_PADDING:
                more = "more than " * (size > pixels + RLE_PADDING)
                raise UserError(
                    f"a segment of the RLE pixels holds {more}{min(size, pixels + RLE_PADDING)} "
                    f"bytes, and the header has {rows} x {columns} pixels; copy the file again"
                )
        return
    if not jpeg_ends(frame):
        # libjpeg fills up what is missing and says nothing
        raise UserError(f"{syntax.name} pixels are truncated; copy the file again")
    for height, width, components in _jpeg_sizes(frame) or {(0, 0, 0)}:
        if (height, width, components) != (rows, columns, 1):
            raise UserError(
                f"the {syntax.name} stream has {height} x {width} pixels of {components} "
                f"components, and the header {rows} x {columns} of 1; export the file again"
            )


def _jpeg_sizes(data: bytes) -> set[Size]:
    """List every size in a stream of JPEG (all processes), JPEG-LS or JPEG 2000.

    There is one in a stream that is whole. Behind the first scan a frame's marker cannot be pixels,
    since these hold no byte of 0x80 and more after 0xFF.
    """
    place = 0 if data[:4] == CODESTREAM else _codestream(data)
    if place >= 0:
        return {_size_2000(data, place + 4)} if data[place : place + 4] == CODESTREAM else set()
    sizes: set[Size] = set()
    end = len(data)
    for kind, begin in jpeg_segments(data):
        if kind in FRAMES:
            sizes.add(_size(data, begin))
        elif kind == OVERSIZE[0][1] and data[begin + 2 : begin + 3] == OVERSIZE[1]:
            sizes.add((0, 0, 0))
        elif kind in SCANS:
            end = begin
    frames = [*islice(_FRAME.finditer(data, end), MARKERS)]
    # as many are none of any image's, and what comes behind them is not looked at
    more = {(0, 0, 0)} if len(frames) == MARKERS else set()
    return sizes | more | {_size(data, frame.end()) for frame in frames}


def _packed_size(segment: bytes, limit: int) -> int:
    """Count the bytes that an RLE segment (PackBits, PS3.5 G.3) decodes to; over `limit`, stop."""
    place = total = 0
    size = len(segment)
    while place < size and total <= limit:
        control = segment[place]
        if control < 128:
            total += min(control + 1, size - place - 1)
            place += control + 2
        else:
            total += 257 - control if control > 128 and place + 1 < size else 0
            place += 2 if control > 128 else 1
    return total


def _rle_segments(frame: bytes) -> list[bytes]:
    """Cut a frame of DICOM's RLE into its segments, 15 at most."""
    offsets = [*struct.unpack("<16L", frame[:64].ljust(64, b"\0"))]
    count = min(offsets[0], 15)
    ends = [*offsets[1 : count + 1], len(frame)]
    return [frame[begin:end] for begin, end in pairwise(ends)]


def _codestream(data: bytes) -> int:
    """Return where the codestream of a JP2 file begins, -1 where this is none."""
    if data[4:8] != b"jP  ":
        return -1
    place = 0
    while place + 16 <= len(data):
        length, kind = struct.unpack(">L4s", data[place : place + 8])
        body = 16 if length == 1 else 8
        if kind == b"jp2c":
            # a palette makes of one component as many as it likes
            return len(data) if b"pclr" in data[:place] else place + body
        if length == 1:
            (length,) = struct.unpack(">Q", data[place + 8 : place + 16])
        if length < body:
            break
        place += length
    return len(data)


def _size(data: bytes, begin: int) -> Size:
    _, _, rows, columns, components = struct.unpack(
        ">HBHHB", data[begin : begin + 8].ljust(8, b"\0")
    )
    return rows, columns, components


def _size_2000(data: bytes, begin: int) -> Size:
    fields = struct.unpack(">HH8LH", data[begin : begin + 38].ljust(38, b"\0"))
    right, low, left, high = fields[2:6]
    return low - high, right - left, fields[10]
