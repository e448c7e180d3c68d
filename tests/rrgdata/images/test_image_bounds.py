"""A small or sparse file takes neither time nor memory: one line refuses it, within seconds."""

from __future__ import annotations

import io
import os
import struct
import time
import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pydicom
from PIL import Image
from pydicom.uid import (
    DeflatedExplicitVRLittleEndian,
    ExplicitVRLittleEndian,
    JPEGBaseline8Bit,
)

from rrgdata.images.read import area_of, read_image
from rrgtrain.errors import UserError
from tests.rrgdata.dicom_files import encapsulated, read, refused, write
from tests.rrgtrain.bounded import bounded

ITEM = struct.pack("<HHL", 0xFFFE, 0xE000, 0)
OPEN_ITEM = struct.pack("<HHL", 0xFFFE, 0xE000, 0xFFFFFFFF)
UNDEFINED = b"\xff\xff\xff\xff"
PIXELS = b"\xe0\x7f\x10\0"
SPARSE = 6 << 30
READS, LONG = "take more than 200000 reads", "more than 1048576 bytes are in element"


def line_of(act: Callable[[], object]) -> str:
    try:
        act()
    except UserError as error:
        return str(error)
    except BaseException as error:  # MemoryError too
        return f"{type(error).__name__}: {error}"
    return "nothing is refused"


def not_refused(files: dict[Path, str], *, mib: int, most: int = 20) -> dict[str, object]:
    """Give the files that are not refused by their words, in one line, within seconds each."""

    def work() -> dict[Path, tuple[str, float]]:
        seen = {}
        for path in files:
            began = time.process_time()
            line = line_of(partial(read_image, path))
            area_of(path)
            seen[path] = line, time.process_time() - began
        return seen

    return {
        path.name: told
        for path, told in bounded(work, mib=mib, seconds=most * len(files)).items()
        if not told[0].startswith(f"{path}: ")
        or files[path] not in told[0]
        or "\n" in told[0]
        or told[1] > most
    }


def head_of(path: Path) -> bytes:
    """Give a DICOM file up to its data set."""
    data = path.read_bytes()
    return data[: 144 + struct.unpack("<L", data[140:144])[0]]


def deflate(*parts: bytes) -> bytes:
    packing = zlib.compressobj(1, zlib.DEFLATED, -zlib.MAX_WBITS)
    return b"".join(packing.compress(part) for part in parts) + packing.flush()


def open_deflate(part: bytes) -> bytes:
    packing = zlib.compressobj(1, zlib.DEFLATED, -zlib.MAX_WBITS)
    return packing.compress(part) + packing.flush(zlib.Z_FULL_FLUSH)


def element(group: int, number: int, kind: bytes, length: int | bytes) -> bytes:
    size = length if isinstance(length, bytes) else struct.pack("<L", length)
    return struct.pack("<HH2s2x", group, number, kind) + size


def distinct(count: int) -> bytes:
    return b"".join(
        struct.pack("<HH2sH", 9 + 2 * (k >> 16), k & 0xFFFF, b"LO", 0) for k in range(count)
    )


def deflated(path: Path) -> Path:
    """Write a small DICOM file whose data set is deflated."""
    data = pydicom.dcmread(write(path))
    data.file_meta.TransferSyntaxUID = DeflatedExplicitVRLittleEndian
    data.save_as(path)
    return path


def many_parts(folder: Path) -> dict[Path, str]:
    """Write headers of very many parts; the words that refuse each."""
    whole = write(folder / "plain.dcm").read_bytes()
    plain, packed = head_of(folder / "plain.dcm"), head_of(deflated(folder / "deflated.dcm"))
    pixels = whole[: whole.index(PIXELS)]
    sequence, items = element(8, 0x1140, b"SQ", UNDEFINED), ITEM * 10_000_000
    tables = element(0x28, 0x3010, b"SQ", UNDEFINED) + OPEN_ITEM
    bodies = {
        "empty items": (packed + deflate(sequence, items), READS),
        "zeros": (packed + deflate(bytes(140_000_000)), READS),
        "elements": (packed + deflate(distinct(1_000_000)), READS),
        "plain items": (plain + sequence + items[:4_000_000], READS),
        "plain elements": (plain + distinct(500_000), READS),
        "a long table": (packed + deflate(tables[:8], b"\0\0\0\4", items), LONG),
        "a long table inside": (
            packed + deflate(tables, element(0x28, 0x3006, b"SQ", len(items)), items),
            LONG,
        ),
        "many numbers": (
            packed + deflate(element(0x28, 0x10, b"UC", UNDEFINED), b"1\\" * 50_000_000),
            LONG,
        ),
        "a long first element": (
            bytes(128) + b"DICM" + element(2, 0, b"SQ", 8_000_000) + items[:8_000_000],
            "in element (0002,0000)",
        ),
        "pixels of items": (
            pixels + element(0x7FE0, 0x10, b"SQ", 8_000_000) + items[:8_000_000],
            "bytes of PixelData are SQ; wanted OB or OW",
        ),
        "blocks of nothing": (
            packed + open_deflate(distinct(1)) + b"\0\0\0\xff\xff" * 30_000_000,
            "deflated data of more",
        ),
        "half a deflated file": (packed + deflate(distinct(100))[:-20], "deflated data break off"),
    }
    made = {}
    for name, (body, words) in bodies.items():
        made[folder / f"{name}.dcm"] = words
        (folder / f"{name}.dcm").write_bytes(body)
    return made


def test_a_header_of_very_many_parts_is_refused_within_seconds(tmp_path: Path) -> None:
    assert not_refused(many_parts(tmp_path), mib=800) == {}


def test_a_sparse_dicom_file_is_refused_before_it_is_read(tmp_path: Path) -> None:
    whole = write(tmp_path / "plain.dcm").read_bytes()
    head, packed = head_of(tmp_path / "plain.dcm"), deflated(tmp_path / "packed.dcm").read_bytes()
    promised = f"the file has {SPARSE} bytes; wanted at most {128 + (1 << 24)}, for the pixels"
    before = "bytes before its pixels"
    starts = {
        "nothing": (whole[:132], READS),
        "an image": (whole, promised),
        "a deflated image": (packed, promised),
        "no preamble": (whole[128:], f"the file has {SPARSE} bytes; wanted at most"),
        "a long element": (head + element(0x29, 0x1010, b"OB", 0xFFFFFFF0), before),
        "an endless element": (head + element(0x29, 0x1010, b"OB", UNDEFINED), before),
        "frames": (
            write(tmp_path / "a.dcm", np.zeros((2, 8, 8), np.uint16)).read_bytes(),
            "multi-frame DICOM (2 frames) is not supported",
        ),
    }
    files = {}
    for name, (start, words) in starts.items():
        path = tmp_path / f"{name}.dcm"
        path.write_bytes(start)
        os.truncate(path, SPARSE)
        files[path] = words
    assert not_refused(files, mib=400) == {}


def test_a_length_that_the_file_has_not_makes_no_room(tmp_path: Path) -> None:
    path = write(tmp_path / "a.dcm")
    whole, pixels = path.read_bytes(), read(path)
    place = whole.index(PIXELS)
    path.write_bytes(whole[: place + 8] + b"\xf0\xff\xff\xff" + whole[place + 12 :])
    assert (bounded(lambda: read(path), mib=300, seconds=10) == pixels).all()


def test_large_headers_and_images_are_still_read(tmp_path: Path, monkeypatch) -> None:
    # 20 000 private elements, a private value and an overlay of megabytes
    values = np.arange(64, dtype=np.uint16).reshape(8, 8)
    path = write(tmp_path / "a.dcm", values)
    data = pydicom.dcmread(path)
    for number in range(20_000):
        data.add_new((0x11 + 2 * (number >> 12), 0x1000 + (number & 0xFFF)), "LO", "x")
    data.add_new((0x29, 0x1010), "OB", bytes(3 << 20))
    data.add_new((0x6000, 0x3000), "OW", bytes(3 << 20))
    for syntax in (ExplicitVRLittleEndian, DeflatedExplicitVRLittleEndian):
        data.file_meta.TransferSyntaxUID = syntax
        data.save_as(tmp_path / "b.dcm")
        assert (read(tmp_path / "b.dcm") == read(path)).all()
        assert area_of(tmp_path / "b.dcm") == 64
    # a file longer than the largest image at 16 bits, whose pixels have 32
    monkeypatch.setattr("rrgdata.images.dicom_header.INFLATED", 4000)
    monkeypatch.setattr("rrgdata.images.dicom_header.HEADER", 2000)
    wide = pydicom.dcmread(path)
    wide.Rows, wide.Columns = 8 * 8, 8 * 8
    wide.BitsAllocated, wide.BitsStored, wide.HighBit = 32, 32, 31
    wide.PixelData = np.kron(values, np.ones((8, 8))).astype("<u4").tobytes()
    wide.save_as(tmp_path / "c.dcm")
    assert (read(tmp_path / "c.dcm")[::8, ::8] == read(path)).all()
    with (tmp_path / "c.dcm").open("ab") as file:
        file.write(bytes(4000))
    refused(tmp_path / "c.dcm", f"wanted at most {64 * 64 * 4 + 2000}, for the pixels")


def test_windows_that_show_nothing_are_not_tried_without_an_end(tmp_path: Path) -> None:
    values = np.arange(2000 * 2000, dtype=np.uint16).reshape(2000, 2000)
    path, many = tmp_path / "a.dcm", 10_000
    with pydicom.config.disable_value_validation():
        write(path, values, WindowCenter=["9e8"] * many, WindowWidth=["2"] * many)
    whole = read(write(tmp_path / "b.dcm", values))
    shown = bounded(lambda: (read(path) == whole).all(), mib=400, seconds=15)
    assert shown


def progressive(rows: int = 64, columns: int = 48) -> bytes:
    """Encode a picture that is almost flat; the last scan is a few bytes."""
    picture, stream = Image.new("L", (columns, rows), 77), io.BytesIO()
    picture.putpixel((0, 0), 200)
    picture.save(stream, "JPEG", progressive=True)
    return stream.getvalue()


def with_scans(jpeg: bytes, count: int) -> bytes:
    """Repeat the last scan, until there are so many."""
    last = jpeg[jpeg.rindex(b"\xff\xda") : -2]
    return jpeg[:-2] + last * (count - jpeg.count(b"\xff\xda")) + jpeg[-2:]


def in_dicom(path: Path, jpeg: bytes, rows: int = 64, columns: int = 48) -> Path:
    write(path, np.zeros((rows, columns), np.uint16))
    eight = {"BitsAllocated": 8, "BitsStored": 8, "HighBit": 7}
    return encapsulated(path, JPEGBaseline8Bit, jpeg, **eight)


def slow_jpegs(jpeg: bytes) -> dict[str, tuple[bytes, str]]:
    """Encode what a decoder or Pillow would dwell on; the words that refuse each."""
    comment, exif = b"\xff\xfe\0\2", b"\xff\xe1\xff\xffExif\0\0" + bytes(65527)
    head, rest, markers = jpeg[:2], jpeg[2:], "the JPEG has more than 10000 markers"
    return {
        "scans": (with_scans(jpeg, 1000), "the JPEG has more than 100 scans"),
        "fill bytes": (head + b"\xff" * 20_000_000 + rest, "more than 65536 bytes stand between"),
        "zeros": (head + bytes(20_000_000) + rest, "more than 65536 bytes stand between"),
        "comments": (head + comment * 1_000_000 + rest, markers),
        "comments behind a scan": (jpeg[:-2] + comment * 1_000_000 + jpeg[-2:], markers),
        "an end in a comment": (
            with_scans(jpeg[:-2] + b"\xff\xfe\0\4\xff\xd9" + jpeg[-2:], 1000),
            "the JPEG has more than 100 scans",
        ),
        "embedded": (head + exif * 1000 + rest, "no pixels in its first 16777216 bytes"),
    }


def test_a_jpeg_that_takes_long_is_refused_before_it_is_decoded(tmp_path: Path) -> None:
    files = {}
    for name, (jpeg, words) in slow_jpegs(progressive(8000, 7990)).items():
        (tmp_path / f"{name}.jpg").write_bytes(jpeg)
        files[tmp_path / f"{name}.jpg"] = words
    for name, (jpeg, words) in slow_jpegs(progressive()).items():
        if name != "embedded":
            files[in_dicom(tmp_path / f"{name}.dcm", jpeg)] = words
    assert len(files) == 13
    assert not_refused(files, mib=400, most=2) == {}


def test_a_sparse_jpeg_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.jpg"
    path.write_bytes(progressive())
    os.truncate(path, SPARSE)
    words = (
        f"the file has {SPARSE} bytes, and a JPEG of 48 x 64 pixels at most {12288 + (64 << 20)}"
    )
    assert not_refused({path: words}, mib=200, most=2) == {}


def test_jpegs_of_many_scans_segments_and_fill_bytes_are_still_read(tmp_path: Path) -> None:
    jpeg, path = progressive(), tmp_path / "a.jpg"
    profile = b"\xff\xe2\xff\xffICC_PROFILE\0" + bytes(65521)
    segments = profile * 200 + b"\xff" * 60_000 + b"\xff\xfe\0\4ab" * 500
    for made in (with_scans(jpeg, 100), jpeg[:2] + segments + jpeg[2:], jpeg + bytes(1 << 20)):
        path.write_bytes(made)
        # a scan of corrections that comes again changes the pixels
        pixels = np.asarray(Image.open(path))
        assert (read(path) == pixels).all() and area_of(path) == 64 * 48
        # decoders differ in what they make of such scans
        assert read(in_dicom(tmp_path / "a.dcm", made)).shape == (64, 48)


def test_a_frame_of_very_many_fragments_is_refused(tmp_path: Path) -> None:
    path = in_dicom(tmp_path / "a.dcm", progressive())
    whole = path.read_bytes()
    place = whole.index(PIXELS)
    body = ITEM * 2_000_000
    path.write_bytes(whole[: place + 8] + struct.pack("<L", len(body)) + body)
    assert not_refused({path: "in more than 100000 fragments"}, mib=200, most=2) == {}


def test_a_png_of_very_many_chunks_is_refused_before_it_is_opened(tmp_path: Path) -> None:
    """Pillow reads each for itself, and 30 MB of them took it a quarter of a minute."""
    stream = io.BytesIO()
    Image.fromarray(np.arange(4096, dtype=np.uint16).reshape(64, 64) * 9).save(stream, "PNG")
    png = stream.getvalue()
    header, pixels = png[:33], png[33:]

    def empty(kind: bytes, count: int) -> bytes:
        return (struct.pack(">L", 0) + kind + struct.pack(">L", zlib.crc32(kind))) * count

    files = {}
    for kind in (b"tEXt", b"IDAT"):
        path = tmp_path / f"{kind.decode()}.png"
        path.write_bytes(header + empty(kind, 2_000_000) + pixels)
        files[path] = "the PNG has more than 100000 chunks; save the image again"
    assert not_refused(files, mib=200, most=4) == {}
    many = tmp_path / "many.png"
    many.write_bytes(header + empty(b"vpAg", 40_000) + empty(b"IDAT", 40_000) + pixels)
    plain = tmp_path / "plain.png"
    plain.write_bytes(png)
    assert (read(many) == read(plain)).all() and area_of(many) == 4096
