"""A JPEG that broke off and was given an end is refused; one that ends in the same grey is not."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from pydicom.uid import JPEGBaseline8Bit

from rrgdata.images.read import read_image
from tests.rrgdata.dicom_files import encapsulated, read, refused, write

ROWS, COLUMNS = 203, 150
GREY = np.clip(
    128 + np.cumsum(np.random.default_rng(0).normal(0, 3, (ROWS, COLUMNS)), axis=0), 0, 255
).astype(np.uint8)
CODINGS = {
    "plain": {},
    "coarse": {"quality": 30},
    "own tables": {"optimize": True, "quality": 95},
    "restarts": {"restart_marker_blocks": 5},
}


def encoded(pixels: np.ndarray, mode: str, coding: str) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(pixels).convert(mode).save(stream, "JPEG", **CODINGS[coding])
    return stream.getvalue()


@pytest.mark.parametrize("coding", CODINGS)
@pytest.mark.parametrize("mode", ["L", "RGB", "CMYK"])
def test_a_progressive_jpeg_with_an_end_is_refused(tmp_path: Path, mode: str, coding: str) -> None:
    stream, path = io.BytesIO(), tmp_path / "a.jpg"
    Image.fromarray(GREY).convert(mode).save(stream, "JPEG", progressive=True, **CODINGS[coding])
    jpeg = stream.getvalue()
    path.write_bytes(jpeg)
    assert read_image(path, 300).height < ROWS  # decoded smaller
    shape = read(path).shape
    scans = [place for place in range(len(jpeg)) if jpeg[place : place + 2] == b"\xff\xda"]
    first = jpeg[scans[0] + 5]
    # the last scans may be of the colours alone
    ends = [at for at in scans[1:] if first in jpeg[at + 5 :][: 2 * jpeg[at + 4] : 2]]
    assert len(ends) > 2
    for end in (*ends, (ends[-2] + ends[-1]) // 2):
        path.write_bytes(jpeg[:end].rstrip(b"\xff") + b"\xff\xd9")
        refused(path, "truncated")
    for whole in (jpeg[:-2] + bytes(9) + jpeg[-2:] + bytes(5000), jpeg[:-2] + b"\xff" + jpeg[-2:]):
        path.write_bytes(whole)
        assert read(path).shape == shape


def in_dicom(path: Path, jpeg: bytes) -> Path:
    write(path, np.zeros((ROWS, COLUMNS), np.uint16))
    eight = {"BitsAllocated": 8, "BitsStored": 8, "HighBit": 7}
    return encapsulated(path, JPEGBaseline8Bit, jpeg, **eight)


@pytest.mark.parametrize("coding", CODINGS)
@pytest.mark.parametrize("mode", ["L", "RGB"])
def test_half_a_jpeg_with_an_end_is_refused(tmp_path: Path, mode: str, coding: str) -> None:
    jpeg, path = encoded(GREY, mode, coding), tmp_path / "a.jpg"
    for keep in (0.3, 0.6, 0.95):
        for tail in (b"", b"\0" * 5000):
            path.write_bytes(jpeg[: int(len(jpeg) * keep)] + b"\xff\xd9" + tail)
            refused(path, "truncated, though it has an end")
        if mode == "L":
            half = jpeg[: int(len(jpeg) * keep)] + b"\xff\xd9"
            refused(in_dicom(tmp_path / "a.dcm", half), "truncated, though they have an end")


@pytest.mark.parametrize("coding", CODINGS)
@pytest.mark.parametrize("mode", ["L", "RGB"])
def test_a_jpeg_that_ends_in_grey_is_read(tmp_path: Path, mode: str, coding: str) -> None:
    path = tmp_path / "a.jpg"
    for rows in (8, 17, 120):
        pixels = GREY.copy()
        pixels[-rows:] = 128
        jpeg = encoded(pixels, mode, coding)
        for end in (jpeg, jpeg + b"\xff\xd9", jpeg[:-2] + b"\xff" + jpeg[-2:]):
            path.write_bytes(end)
            assert (read(path)[-1] == 128).all() and read(path).shape == (ROWS, COLUMNS)
        if mode == "L":
            assert read(in_dicom(tmp_path / "a.dcm", jpeg)).shape == (ROWS, COLUMNS)
