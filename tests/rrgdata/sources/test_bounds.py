"""Readers check the size that a file declares before they decode it; bounds are low here."""

from __future__ import annotations

import gzip
import io
import itertools
import json
import struct
import tarfile
import threading
import time
import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pydicom
import pytest
from PIL import Image
from pydicom.encaps import encapsulate, generate_frames
from pydicom.uid import (
    JPEG2000Lossless,
    JPEGBaseline8Bit,
    JPEGExtended12Bit,
    JPEGLosslessSV1,
    JPEGLSLossless,
    RLELossless,
)

from rrgclinical.chat import parse_json as parse_answer
from rrgclinical.common.errors import UserError as ClinicalError
from rrgclinical.common.json_reader import DEEPEST
from rrgclinical.radgraph.archive import read_archive
from rrgclinical.scorecard import Columns, read_references
from rrgdata.images.in_flight import LARGEST, InFlight
from rrgdata.images.read import read_image
from rrgdata.load import load_studies
from rrgdata.sources import tables
from rrgdata.sources.tables import csv_rows
from rrgtrain.errors import UserError
from tests.rrgdata.dicom_files import encapsulated, lossless_jpeg, read, recoded, stored, write

RAMP = np.round(np.add.outer(np.arange(64), np.arange(48)) / 110 * 4095).astype(np.uint16)
SIDE = 96
"""Sides that are another image's."""
AT_MOST = 1 << 14
"""Bytes and characters that are bounds here, so that files of some kilobytes reach them."""
AREA = 5000
"""Pixels that are the bound here."""
SOF = b"\xff\xc3"


def line_of(act: Callable[[], object]) -> str:
    """Give the one line of a refusal; what else comes is told as such."""
    try:
        act()
    except (UserError, ClinicalError) as error:
        return str(error)
    except BaseException as error:  # MemoryError too
        return f"{type(error).__name__}: {error}"
    return "nothing is refused"


def resized(stream: bytes, marker: bytes, place: int, form: str, *sides: int) -> bytes:
    """Write another size into the header of a compressed stream."""
    begin = stream.index(marker) + place
    return stream[:begin] + struct.pack(form, *sides) + stream[begin + struct.calcsize(form) :]


def frame_of(file: Path) -> bytes:
    return next(generate_frames(pydicom.dcmread(file).PixelData, number_of_frames=1))


def jpegs(jpeg: bytes) -> dict[str, bytes]:
    """Streams whose frame is of another size than the header's, by each kind of frame."""
    large = resized(jpeg, SOF, 5, ">HH", SIDE, SIDE)
    kinds = [*range(0xC0, 0xD0), 0xDE, 0xF7]
    made = {
        f"SOF {kind:x}": large.replace(SOF, bytes([0xFF, kind]))
        for kind in kinds
        if kind not in (0xC4, 0xC8, 0xCC)
    }
    begin = jpeg.index(SOF)
    segment = large[begin : begin + 13]
    made["a second frame"] = jpeg[:begin] + jpeg[begin : begin + 13] + segment + jpeg[begin + 13 :]
    made["a frame behind the scan"] = jpeg[:-2] + segment + jpeg[-2:]
    made["a frame behind fill bytes"] = jpeg[:2] + b"\xff\xff" + large[2:]
    made["an oversize of JPEG-LS"] = jpeg[:2] + b"\xff\xf8\x00\x09\x04\x03\x0f\xff\xff" + jpeg[2:]
    made["three components"] = resized(jpeg, SOF, 9, "B", 3)
    made["one row more"] = resized(jpeg, SOF, 5, ">HH", 65, 48)
    return made


def packed(*segments: bytes) -> bytes:
    ends = itertools.accumulate(map(len, segments), initial=64)
    offsets = [*list(ends)[:-1], *[0] * 15]
    return struct.pack("<16L", len(segments), *offsets[:15]) + b"".join(segments)


def dicoms(folder: Path) -> dict[Path, str]:
    """Write DICOM files of another size than they say or may be; the words that refuse each."""
    made: dict[Path, str] = {}

    def add(name: str, syntax: str, frame: bytes, words: str) -> None:
        path = stored(write(folder / f"{name}.dcm", RAMP), 12)
        made[encapsulated(path, syntax, frame)] = words

    for number, (name, stream) in enumerate(jpegs(lossless_jpeg(RAMP, 12)).items()):
        syntaxes = (JPEGLosslessSV1, JPEGLSLossless, JPEGExtended12Bit, JPEGBaseline8Bit)
        add(name, syntaxes[number % 4], stream, "and the header 64 x 48 of 1")
    plain = stored(write(folder / "plain.dcm", RAMP), 12)
    codestream = frame_of(recoded(plain, JPEG2000Lossless))
    large = resized(codestream, b"\xff\x51", 6, ">LL", SIDE, SIDE)
    add("JPEG 2000", JPEG2000Lossless, large, "and the header 64 x 48 of 1")
    boxes = b"\0\0\0\x0cjP  \r\n\x87\n" + struct.pack(">L4s", 20, b"uuid") + codestream[:12]
    box = struct.pack(">L4s", 8 + len(large), b"jp2c")
    add("JP2", JPEG2000Lossless, boxes + box + large, "and the header 64 x 48 of 1")
    most = b"\x81\0" * 30
    add("RLE long", RLELossless, packed(most, most), "holds more than 3200 bytes, and the header")
    add("RLE short", RLELossless, packed(b"\x81\0", most), "holds 128 bytes, and the header")
    for rows, columns in ((SIDE, SIDE), (AREA // 10 + 1, 10)):
        path = write(folder / f"{rows} rows.dcm", np.zeros((rows, columns), np.uint16))
        made[path] = f"too large ({columns} x {rows} pixels are"
    return made


def pictures(folder: Path) -> dict[Path, str]:
    """Write images that are larger than the bound; of the last one a tile is."""
    large, words = Image.fromarray(np.arange(SIDE**2, dtype=np.uint16).reshape(SIDE, SIDE)), {}
    for name in ("large.png", "large.tif", "large.jpg"):
        (large.convert("L") if name.endswith("jpg") else large).save(folder / name)
        words[folder / name] = f"too large ({SIDE} x {SIDE} pixels are 0.0 MP"
    body, tile = zlib.compress(bytes(SIDE**2)), folder / "tile.tif"
    tags = {256: 48, 257: 64, 258: 8, 259: 8, 262: 1, 277: 1}
    tags |= {322: SIDE, 323: SIDE, 324: 8, 325: len(body)}
    entries = b"".join(struct.pack("<HHLL", tag, 4, 1, value) for tag, value in tags.items())
    directory = struct.pack("<H", len(tags)) + entries + bytes(4)
    tile.write_bytes(b"II*\0" + struct.pack("<L", 8 + len(body)) + body + directory)
    return words | {tile: f"too large ({SIDE} x {SIDE} pixels are 0.0 MP"}


@pytest.fixture
def small(monkeypatch) -> None:
    monkeypatch.setattr("rrgclinical.common.files.AT_LEAST", AT_MOST)
    monkeypatch.setattr("rrgdata.images.in_flight.LARGEST", AREA)
    monkeypatch.setattr(tables, "LONGEST_ROW", AT_MOST // 4)


@pytest.mark.usefixtures("small")
def test_no_image_takes_more_than_it_may_hold(tmp_path) -> None:
    files = {**dicoms(tmp_path), **pictures(tmp_path)}
    assert len(files) > 25
    for path, words in files.items():
        line = line_of(partial(read_image, path))
        assert line.startswith(f"{path}: ") and words in line and "\n" not in line, path.name


def test_what_is_of_its_header_s_size_is_read(tmp_path) -> None:
    plain = stored(write(tmp_path / "a.dcm", RAMP), 12)
    wanted = read(plain)
    # a JPEG 2000 in boxes, and packets of RLE behind the pixels
    codestream = frame_of(recoded(plain, JPEG2000Lossless))
    boxes = b"\0\0\0\x0cjP  \r\n\x87\n" + struct.pack(">L4s4sL4s", 20, b"ftyp", b"jp2 ", 0, b"jp2 ")
    grey = struct.pack(">LLHBBBB", 64, 48, 1, 11, 7, 0, 0)
    colour = struct.pack(">L4s3BL", 15, b"colr", 1, 0, 0, 17)
    boxes += struct.pack(">L4sL4s", 45, b"jp2h", 22, b"ihdr") + grey + colour
    boxes += struct.pack(">L4s", 0, b"jp2c") + codestream
    assert (read(encapsulated(plain, JPEG2000Lossless, boxes)) == wanted).all()
    file = recoded(stored(write(tmp_path / "b.dcm", RAMP), 12), RLELossless)
    data = pydicom.dcmread(file)
    data.PixelData = encapsulate([frame_of(file) + b"\x81\0"])
    data.save_as(file)
    with pytest.warns(UserWarning, match="non-conformant padding"):
        assert (read(file) == wanted).all()


def columns(folder: Path) -> dict[str, tuple[Callable[[], object], str]]:
    """Tables and objects of very many names, one of them twice at the end."""
    names = [f"c{i}" for i in range(50_000)]
    twice = [*names, names[-1]]
    once = json.dumps(dict.fromkeys(names, 1))
    doubled = once[:-1] + f', "{names[-1]}": 1}}'

    def lines(file: str, *text: str) -> Callable[[], object]:
        (folder / file).write_text("\n".join(text) + "\n")
        return lambda: load_studies("table", folder / file)

    def table(file: str, header: list[str]) -> Callable[[], object]:
        return lines(file, ",".join(header), ",".join("1" for _ in header))

    truth = folder / "truth.csv"
    truth.write_text(",".join(twice) + "\n")
    nested = "[" * DEEPEST + "[]" + "]" * DEEPEST
    return {
        "table": (table("a.csv", names), "no column of reports or labels; it has c0, c1"),
        "table, twice": (table("b.csv", twice), "the column 'c49999' stands twice"),
        "title": (table("t.csv", ["Export 2024", "", ""]), "take out the lines above the names of"),
        "lines": (lines("a.jsonl", once), "no column of reports or labels"),
        "lines, twice": (lines("b.jsonl", doubled), "the key 'c49999' stands twice"),
        "lines, nested": (lines("c.jsonl", f'{{"a": {nested}}}'), "JSON nested too deeply"),
        "answer": (lambda: parse_answer(doubled), "the key 'c49999' stands twice"),
        "scorecard": (
            lambda: read_references(truth, Columns(), split=None, want_labels=None),
            "has two columns 'c49999'",
        ),
    }


def packed_files(folder: Path) -> dict[str, tuple[Callable[[], object], str]]:
    """Gzip files of somewhat more than the bound, wherever one is read, and a row that is."""
    short, size = b"123456789012345678901234567890\n" * 100, 3 * AT_MOST

    def packed_as(name: str, first: bytes, block: bytes) -> Path:
        with gzip.open(folder / name, "wb") as file:
            file.write(first + block * (size // len(block) + 1))
        return folder / name

    def whole(path: Path) -> Callable[[], object]:
        return lambda: sum(1 for _ in csv_rows(path))

    tar = folder / "large.tar.gz"
    with tarfile.open(tar, "w:gz") as archive:
        member = tarfile.TarInfo("config.json")
        member.size = size
        archive.addfile(member, io.BytesIO(bytes(size)))
    row = folder / "row.csv"
    row.write_bytes(b"study_id\n" + b'"a\n",' * AT_MOST)
    return {
        "one line": (whole(packed_as("a.csv.gz", b"study_id\n", b"0")), "not CSV after line 1"),
        "many lines": (whole(packed_as("b.csv.gz", b"", short)), "inflates to more than"),
        "a header": (whole(packed_as("c.csv.gz", b"", b"0")), "not CSV after line 0"),
        "one row": (whole(row), "row larger than"),
        "archive": (lambda: read_archive(tar, None), "inflates to more than"),
    }


@pytest.mark.usefixtures("small")
def test_many_names_and_inflated_files_are_one_line_in_linear_time(tmp_path, monkeypatch) -> None:
    cases = packed_files(tmp_path)
    assert {
        n: line for n, (act, words) in cases.items() if words not in (line := line_of(act))
    } == {}
    monkeypatch.undo()  # fifty thousand names are more than a row may hold above
    for name, (act, words) in columns(tmp_path).items():
        began = time.process_time()
        line = line_of(act)
        assert words in line and len(line) < 2000, name
        assert time.process_time() - began < 4, name


def test_a_row_ends_the_count_of_its_characters(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(tables, "LONGEST_ROW", 40)
    path = tmp_path / "a.csv"
    path.write_text("sep=;\n" + "id;text\n" + '1;"two\nlines"\n' * 20)
    rows = list(csv_rows(path))
    assert len(rows) == 21 and rows[-1] == ["1", "two\nlines"]
    path.write_text("id;text\n1;" + "x" * 40)
    with pytest.raises(UserError, match=r"not CSV after line 1 \(row larger than 40 characters\)"):
        list(csv_rows(path, delimiters=";"))


def test_pixels_in_flight_stay_below_the_bound_and_everyone_gets_through() -> None:
    room, entered = InFlight(limit=100), {area: threading.Event() for area in (50, 70, 160)}

    def take(area: int) -> None:
        with room.hold(area):
            entered[area].set()

    threads = [threading.Thread(target=take, args=(area,), daemon=True) for area in (160, 70, 50)]
    with room.hold(40):
        for thread in threads:
            thread.start()
        assert entered[50].wait(20), "there is room beside 40"
        assert not entered[70].is_set() and not entered[160].is_set()
    assert entered[70].wait(20) and entered[160].wait(20), "a larger one is alone"
    for thread in threads:
        thread.join(20)
    assert LARGEST == 64_000_000
