"""A file of more parts or bytes than a radiograph has is refused in one line; bounds are low."""

from __future__ import annotations

import io
import struct
import tracemalloc
import zlib
from pathlib import Path

import numpy as np
import pydicom
import pytest
from PIL import Image
from pydicom.uid import DeflatedExplicitVRLittleEndian, JPEGBaseline8Bit

from rrgdata.images.read import area_of
from tests.rrgdata.dicom_files import encapsulated, read, refused, write

ITEM = struct.pack("<HHL", 0xFFFE, 0xE000, 0)
OPEN_ITEM = struct.pack("<HHL", 0xFFFE, 0xE000, 0xFFFFFFFF)
UNDEFINED = b"\xff\xff\xff\xff"
PIXELS = b"\xe0\x7f\x10\0"
READS, VALUE, INFLATED, HEADER = 300, 1000, 6000, 2000
LONG = f"more than {VALUE} bytes are in element"
MANY = f"take more than {READS} reads"
CHUNKS, MARKERS, BETWEEN, SCANS, FRAGMENTS, BESIDE = 40, 60, 400, 15, 10, 3000


@pytest.fixture
def low(monkeypatch) -> None:
    for module, bounds in (
        ("dicom_header", {"READS": READS, "VALUE": VALUE, "INFLATED": INFLATED, "HEADER": HEADER}),
        (
            "endings",
            {"CHUNKS": CHUNKS, "MARKERS": MARKERS, "BETWEEN": BETWEEN, "MOST_SCANS": SCANS},
        ),
        ("endings", {"HEADER": 4 * BETWEEN}),
        ("dicom_header", {"AT_ONCE": 512}),
        ("dicom", {"FRAGMENTS": FRAGMENTS}),
        ("read", {"BESIDE_PIXELS": BESIDE}),
    ):
        for name, bound in bounds.items():
            monkeypatch.setattr(f"rrgdata.images.{module}.{name}", bound)


def head_of(path: Path) -> bytes:
    data = path.read_bytes()
    return data[: 144 + struct.unpack("<L", data[140:144])[0]]


def element(group: int, number: int, kind: bytes, length: int | bytes) -> bytes:
    size = length if isinstance(length, bytes) else struct.pack("<L", length)
    return struct.pack("<HH2s2x", group, number, kind) + size


def deflated(path: Path) -> Path:
    data = pydicom.dcmread(write(path))
    data.file_meta.TransferSyntaxUID = DeflatedExplicitVRLittleEndian
    data.save_as(path)
    return path


def many_parts(folder: Path) -> dict[str, tuple[bytes, str]]:
    """Make headers of somewhat more than the bounds; the words that refuse each."""
    whole = write(folder / "plain.dcm").read_bytes()
    plain = head_of(folder / "plain.dcm")
    distinct = b"".join(struct.pack("<HH2sH", 9, k, b"LO", 0) for k in range(READS))
    sequence, items = element(8, 0x1140, b"SQ", UNDEFINED), ITEM * READS
    tables = element(0x28, 0x3010, b"SQ", UNDEFINED) + OPEN_ITEM
    return {
        "empty items": (plain + sequence + items, MANY),
        "zeros": (plain + bytes(16 * READS), MANY),
        "elements": (plain + distinct, MANY),
        "a long table": (plain + tables[:8] + struct.pack("<L", 2 * VALUE) + items, LONG),
        "a long table inside": (
            plain + tables + element(0x28, 0x3006, b"SQ", len(items)) + items,
            LONG,
        ),
        "many numbers": (plain + element(0x28, 0x10, b"UC", 2 * VALUE) + b"1\\" * VALUE, LONG),
        "a long first element": (
            bytes(128) + b"DICM" + element(2, 0, b"SQ", len(items)) + items,
            "in element (0002,0000)",
        ),
        "pixels of items": (
            whole[: whole.index(PIXELS)] + element(0x7FE0, 0x10, b"SQ", len(items)) + items,
            "bytes of PixelData are SQ; wanted OB or OW",
        ),
        "a deflated image": (
            deflated(folder / "deflated.dcm").read_bytes(),
            "a deflated data set is not read; re-export it",
        ),
    }


@pytest.mark.usefixtures("low")
def test_a_header_of_very_many_parts_is_refused(tmp_path) -> None:
    for name, (body, words) in many_parts(tmp_path).items():
        path = tmp_path / f"{name}.dcm"
        path.write_bytes(body)
        refused(path, f"{path}: ", words)
        area_of(path)


@pytest.mark.usefixtures("low")
def test_a_dicom_file_longer_than_its_image_is_refused_before_it_is_read(tmp_path) -> None:
    whole = write(tmp_path / "plain.dcm").read_bytes()
    head = head_of(tmp_path / "plain.dcm")
    size = 4 * INFLATED
    promised = f"the file has {size} bytes; wanted at most {128 + HEADER}, for the pixels"
    before = "bytes before its pixels"
    starts = {
        "nothing": (whole[:132], MANY),
        "an image": (whole, promised),
        "no preamble": (whole[128:], f"the file has {size} bytes; wanted at most"),
        "a long element": (head + element(0x29, 0x1010, b"OB", 3 * INFLATED), before),
        "an endless element": (head + element(0x29, 0x1010, b"OB", UNDEFINED), before),
        "frames": (
            write(tmp_path / "a.dcm", np.zeros((2, 8, 8), np.uint16)).read_bytes(),
            "multi-frame DICOM (2 frames) is not supported",
        ),
    }
    for name, (start, words) in starts.items():
        path = tmp_path / f"{name}.dcm"
        path.write_bytes(start.ljust(size, b"\0"))
        refused(path, f"{path}: ", words)
        area_of(path)


def test_a_length_that_the_file_has_not_makes_no_room(tmp_path) -> None:
    path = write(tmp_path / "a.dcm")
    whole, pixels = path.read_bytes(), read(path)
    place = whole.index(PIXELS)
    path.write_bytes(whole[: place + 8] + struct.pack("<L", 1 << 26) + whole[place + 12 :])
    tracemalloc.start()
    assert (read(path) == pixels).all()
    assert tracemalloc.get_traced_memory()[1] < 1 << 24
    tracemalloc.stop()


def test_large_headers_and_images_are_still_read(tmp_path, monkeypatch) -> None:
    # 20 000 private elements, a private value and an overlay of megabytes
    values = np.arange(64, dtype=np.uint16).reshape(8, 8)
    path = write(tmp_path / "a.dcm", values)
    data = pydicom.dcmread(path)
    for number in range(20_000):
        data.add_new((0x11 + 2 * (number >> 12), 0x1000 + (number & 0xFFF)), "LO", "x")
    data.add_new((0x29, 0x1010), "OB", bytes(3 << 20))
    data.add_new((0x6000, 0x3000), "OW", bytes(3 << 20))
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


def test_windows_that_show_nothing_are_not_tried_without_an_end(tmp_path, monkeypatch) -> None:
    tried = 8
    off = [-9000.0] * tried
    path = write(tmp_path / "a.dcm", WindowCenter=[*off, 1000], WindowWidth=[2.0] * tried + [800])
    whole = read(write(tmp_path / "b.dcm"))
    assert (read(path) == whole).all()
    monkeypatch.setattr("rrgdata.images.dicom_grey.TRIED", tried + 1)
    assert (read(path) != whole).any()


def progressive() -> bytes:
    """Encode a picture that is almost flat; the last scan is a few bytes."""
    picture, stream = Image.new("L", (48, 64), 77), io.BytesIO()
    picture.putpixel((0, 0), 200)
    picture.save(stream, "JPEG", progressive=True)
    return stream.getvalue()


def with_scans(jpeg: bytes, count: int) -> bytes:
    """Repeat the last scan, until there are so many."""
    last = jpeg[jpeg.rindex(b"\xff\xda") : -2]
    return jpeg[:-2] + last * (count - jpeg.count(b"\xff\xda")) + jpeg[-2:]


def in_dicom(path: Path, jpeg: bytes) -> Path:
    write(path, np.zeros((64, 48), np.uint16))
    eight = {"BitsAllocated": 8, "BitsStored": 8, "HighBit": 7}
    return encapsulated(path, JPEGBaseline8Bit, jpeg, **eight)


@pytest.mark.usefixtures("low")
def test_a_jpeg_that_takes_long_is_refused_before_it_is_decoded(tmp_path) -> None:
    jpeg, comment, exif = progressive(), b"\xff\xfe\0\2", b"\xff\xe1\1\0Exif\0\0" + bytes(248)
    head, rest, markers = jpeg[:2], jpeg[2:], f"the JPEG has more than {MARKERS} markers"
    between, scans = f"more than {BETWEEN} bytes stand between", f"has more than {SCANS} scans"
    cases = {
        "scans": (with_scans(jpeg, SCANS + 1), scans),
        "fill bytes": (head + b"\xff" * 2 * BETWEEN + rest, between),
        "zeros": (head + bytes(2 * BETWEEN) + rest, between),
        "comments": (head + comment * MARKERS + rest, markers),
        "comments behind a scan": (jpeg[:-2] + comment * MARKERS + jpeg[-2:], markers),
        "an end in a comment": (
            with_scans(jpeg[:-2] + b"\xff\xfe\0\4\xff\xd9" + jpeg[-2:], SCANS + 1),
            scans,
        ),
        "embedded": (head + exif * 10 + rest, f"no pixels in its first {4 * BETWEEN} bytes"),
    }
    for name, (content, words) in cases.items():
        path = tmp_path / f"{name}.jpg"
        path.write_bytes(content)
        refused(path, f"{path}: ", words)
        if name != "embedded":
            refused(in_dicom(path.with_suffix(".dcm"), content), words)
    path = tmp_path / "long.jpg"
    path.write_bytes(jpeg + bytes(4 * 48 * 64 + BESIDE))
    size, most = path.stat().st_size, 4 * 48 * 64 + BESIDE
    refused(path, f"the file has {size} bytes, and a JPEG of 48 x 64 pixels at most {most}")


def test_jpegs_of_many_scans_segments_and_fill_bytes_are_still_read(tmp_path) -> None:
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


@pytest.mark.usefixtures("low")
def test_a_frame_of_very_many_fragments_is_refused(tmp_path) -> None:
    path = in_dicom(tmp_path / "a.dcm", progressive())
    whole = path.read_bytes()
    place = whole.index(PIXELS)
    body = ITEM * (FRAGMENTS + 2)
    path.write_bytes(whole[: place + 8] + struct.pack("<L", len(body)) + body)
    refused(path, f"in more than {FRAGMENTS} fragments")


@pytest.mark.usefixtures("low")
def test_a_png_of_very_many_chunks_is_refused_before_it_is_opened(tmp_path) -> None:
    stream = io.BytesIO()
    Image.fromarray(np.arange(4096, dtype=np.uint16).reshape(64, 64) * 9).save(stream, "PNG")
    png = stream.getvalue()

    def with_chunks(kind: bytes, count: int) -> Path:
        path = tmp_path / f"{kind.decode()} {count}.png"
        chunk = struct.pack(">L", 0) + kind + struct.pack(">L", zlib.crc32(kind))
        path.write_bytes(png[:33] + chunk * count + png[33:])
        return path

    for kind in (b"tEXt", b"IDAT"):
        words = f"the PNG has more than {CHUNKS} chunks; save the image again"
        refused(with_chunks(kind, CHUNKS), words)
    plain, many = (with_chunks(b"vpAg", count) for count in (0, CHUNKS - 3))
    assert (read(many) == read(plain)).all() and area_of(many) == 4096
