"""Compressed DICOM gives the pixels that went in; where a decoder is missing, it is named."""

from __future__ import annotations

import numpy as np
import pydicom
import pytest
from pydicom.data import get_testdata_file
from pydicom.pixels import get_decoder
from pydicom.uid import (
    JPEG2000,
    JPEG2000Lossless,
    JPEGBaseline8Bit,
    JPEGExtended12Bit,
    JPEGLosslessSV1,
    JPEGLSLossless,
    RLELossless,
)

from tests.rrgdata.dicom_files import (
    baseline,
    encapsulated,
    lossless,
    lossless_jpeg,
    read,
    recoded,
    refused,
    stored,
    write,
)

RAMP = np.add.outer(np.arange(64), np.arange(48)) / 110


def ramp(bits, signed=False):
    values = np.round(RAMP * (2**bits - 1)).astype(np.int64)
    return (values - 2 ** (bits - 1)).astype(np.int16) if signed else values.astype(np.uint16)


@pytest.mark.parametrize("syntax", [JPEG2000Lossless, RLELossless])
@pytest.mark.parametrize("bits", [12, 15, 16])
@pytest.mark.parametrize("signed", [False, True])
def test_lossless(tmp_path, syntax, bits, signed):
    plain = stored(write(tmp_path / "a.dcm", ramp(bits, signed)), bits)
    data = pydicom.dcmread(plain)
    data.compress(syntax)
    data.save_as(tmp_path / "b.dcm")
    assert (read(tmp_path / "b.dcm") == read(plain)).all()


@pytest.mark.parametrize("bits", [12, 15, 16])
def test_jpeg_lossless(tmp_path, bits):
    pytest.importorskip("libjpeg")
    values = ramp(bits)
    values[5, 7], values[6, 7] = 0, 2**bits - 1
    plain = stored(write(tmp_path / "a.dcm", values), bits)
    assert (read(lossless(tmp_path / "b.dcm", values, bits)) == read(plain)).all()


def test_jpeg_2000_lossy(tmp_path):
    plain = stored(write(tmp_path / "a.dcm", ramp(12)), 12)
    data = pydicom.dcmread(plain)
    data.compress(JPEG2000, j2k_cr=[4])
    data.save_as(tmp_path / "b.dcm")
    assert np.abs(read(tmp_path / "b.dcm") - read(plain)).max() < 8


def test_jpeg_baseline(tmp_path):
    grey = np.round(RAMP * 255).astype(np.uint8)
    assert np.abs(read(baseline(tmp_path / "a.dcm", grey)) - grey).max() < 8


def sample(path, name, **tags):
    """A file that pydicom brings along, called a radiograph."""
    data = pydicom.dcmread(get_testdata_file(name, download=False))
    data.Modality, data.BodyPartExamined = "DX", ""
    for tag, value in tags.items():
        setattr(data, tag, value)
    data.save_as(path)
    return path


def test_jpeg_ls(tmp_path):
    pytest.importorskip("libjpeg")
    compressed = sample(tmp_path / "a.dcm", "MR_small_jpeg_ls_lossless.dcm")
    assert pydicom.dcmread(compressed).file_meta.TransferSyntaxUID == JPEGLSLossless
    assert (read(compressed) == read(sample(tmp_path / "b.dcm", "MR_small.dcm"))).all()


def test_jpeg_of_12_bits(tmp_path):
    pytest.importorskip("libjpeg")
    compressed = sample(tmp_path / "a.dcm", "JPGExtended.dcm")
    assert pydicom.dcmread(compressed).file_meta.TransferSyntaxUID == JPEGExtended12Bit
    grey = read(compressed)
    assert grey.shape == (1024, 256) and grey.max() == 255


@pytest.mark.parametrize("syntax", [JPEG2000Lossless, RLELossless, JPEGLosslessSV1])
@pytest.mark.parametrize("keep", [0.02, 0.1, 0.5])
def test_truncated(tmp_path, syntax, keep):
    file = stored(write(tmp_path / "a.dcm", ramp(12)), 12)
    if syntax == JPEGLosslessSV1:
        pytest.importorskip("libjpeg")
        frame = lossless_jpeg(ramp(12), 12)
    else:
        data = pydicom.dcmread(file)
        data.compress(syntax)
        frame = next(pydicom.encaps.generate_frames(data.PixelData, number_of_frames=1))
    encapsulated(file, syntax, frame[: int(len(frame) * keep)])
    refused(file)


@pytest.mark.parametrize("syntax", [JPEG2000Lossless, JPEGLosslessSV1, JPEGBaseline8Bit])
def test_padding_behind_a_frame_is_passed_over(tmp_path, syntax):
    if syntax == JPEGLosslessSV1:
        pytest.importorskip("libjpeg")
        file = lossless(tmp_path / "a.dcm", ramp(12), 12)
    elif syntax == JPEGBaseline8Bit:
        file = baseline(tmp_path / "a.dcm", np.round(RAMP * 255).astype(np.uint8))
    else:
        file = recoded(stored(write(tmp_path / "a.dcm", ramp(12)), 12), syntax)
    plain, data = read(file), pydicom.dcmread(file)
    frame = next(pydicom.encaps.generate_frames(data.PixelData, number_of_frames=1))
    for tail in (b"\0" * 3000, b"\xff\xff\0", b" " * 8):
        assert (read(encapsulated(file, syntax, frame + tail)) == plain).all()
        cut = encapsulated(file, syntax, frame[: len(frame) // 2] + tail)
        refused(cut, "truncated")


@pytest.mark.filterwarnings("ignore:End of file reached")
def test_a_compressed_file_that_breaks_off(tmp_path):
    whole = lossless(tmp_path / "a.dcm", ramp(12), 12).read_bytes()
    for keep in (0.2, 0.6, 0.95):
        (tmp_path / "b.dcm").write_bytes(whole[: int(len(whole) * keep)])
        refused(tmp_path / "b.dcm", "breaks off")


@pytest.mark.parametrize(
    ("syntax", "package"),
    [
        (JPEGLosslessSV1, "pylibjpeg-libjpeg"),
        (JPEGLSLossless, "pylibjpeg-libjpeg"),
        (JPEGExtended12Bit, "pylibjpeg-libjpeg"),
        (JPEG2000Lossless, "pylibjpeg-openjpeg"),
    ],
)
def test_a_missing_decoder_is_named(tmp_path, syntax, package):
    file = stored(write(tmp_path / "a.dcm", ramp(12)), 12)
    encapsulated(file, syntax, lossless_jpeg(ramp(12), 12))
    decoder = get_decoder(syntax)
    had = "pylibjpeg" in decoder.available_plugins
    decoder.remove_plugin("pylibjpeg") if had else None
    try:
        refused(file, f"this file is {syntax.name}; pip install {package}")
    finally:
        if had:
            decoder.add_plugin("pylibjpeg", ("pydicom.pixels.decoders.pylibjpeg", "_decode_frame"))


def test_jpeg_of_8_bits_needs_no_extra(tmp_path):
    decoder = get_decoder(JPEGBaseline8Bit)
    had = "pylibjpeg" in decoder.available_plugins
    decoder.remove_plugin("pylibjpeg") if had else None
    try:
        assert read(baseline(tmp_path / "a.dcm", np.round(RAMP * 255).astype(np.uint8))).max() > 240
    finally:
        if had:
            decoder.add_plugin("pylibjpeg", ("pydicom.pixels.decoders.pylibjpeg", "_decode_frame"))
