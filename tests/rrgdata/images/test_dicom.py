"""DICOM radiographs: rescale, window, polarity, padding, header, and files that are not one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pydicom
import pytest
from pydicom.uid import ImplicitVRLittleEndian

from rrgclinical.common.errors import Stopped
from rrgdata.images.dicom import read_dicom, view_of
from rrgdata.images.read import area_of, read_with_facts
from rrgdata.sources.folder import read_folder
from tests.rrgdata.dicom_files import VALUES, read, refused, stored, write


def test_without_a_window_the_range_is_used(tmp_path):
    grey = read(write(tmp_path / "a.dcm"))
    assert np.abs(grey - VALUES / 4095 * 255).max() <= 0.5


@pytest.mark.parametrize("reader", [view_of, read_dicom, area_of])
def test_a_signal_while_a_file_is_read_is_no_fault_of_it(tmp_path, monkeypatch, reader):
    def signalled(*_, **__):
        raise Stopped("stopped by SIGTERM")

    file = write(tmp_path / "a.dcm")
    monkeypatch.setattr("rrgdata.images.dicom.open_dicom", signalled)
    with pytest.raises(Stopped, match="^stopped by SIGTERM$"):
        reader(file)


@pytest.mark.parametrize("function", ["LINEAR", "LINEAR_EXACT", "SIGMOID"])
@pytest.mark.parametrize("many", [False, True])
def test_window_after_rescale(tmp_path, function, many):
    centre, width, slope, intercept = 1000.0, 800.0, 2.0, -500.0
    tags = {
        "WindowCenter": [centre, 3000] if many else centre,
        "WindowWidth": [width, 10] if many else width,
        "RescaleSlope": slope,
        "RescaleIntercept": intercept,
        "VOILUTFunction": function,
    }
    x = VALUES * slope + intercept
    if function == "LINEAR":
        y = (x - (centre - 0.5)) / (width - 1) + 0.5
    elif function == "LINEAR_EXACT":
        y = (x - centre) / width + 0.5
    else:
        y = 1 / (1 + np.exp(-4 * (x - centre) / width))
    grey = read(write(tmp_path / "a.dcm", **tags))
    assert np.abs(grey - np.clip(y, 0, 1) * 255).max() <= 0.5


def test_a_wide_window_is_not_stretched(tmp_path):
    grey = read(
        write(
            tmp_path / "a.dcm", WindowCenter=4096, WindowWidth=8192, VOILUTFunction="LINEAR_EXACT"
        )
    )
    assert grey.max() == 128 or grey.max() == 127


def test_one_step_window_is_a_threshold(tmp_path):
    grey = read(write(tmp_path / "a.dcm", WindowCenter=2000, WindowWidth=1))
    assert set(np.unique(grey)) == {0, 255}
    assert ((grey == 255) == (VALUES > 1999.5)).all()


@pytest.mark.parametrize("photometric", ["MONOCHROME1", "MONOCHROME2"])
def test_padding_is_black_and_outside_the_range(tmp_path, photometric):
    values = VALUES.copy()
    values[0] = 65535
    grey = read(write(tmp_path / "a.dcm", values, photometric, PixelPaddingValue=65535))
    assert (grey[0] == 0).all()
    assert {grey[1:].min(), grey[1:].max()} == {0, 255}


SHOWN = {"WindowCenter": 1000, "WindowWidth": 800}
RESCALES = [("nan", 0), (1, "nan"), ("inf", 0), (1, "inf"), ("1e305", 0), (0, "1e999")]
REFUSED: list[tuple[np.ndarray, dict[str, Any], str]] = [
    (np.full((4, 4), 9, np.uint16), {}, "same value"),
    (VALUES, {"photometric": "PALETTE COLOR"}, "is PALETTE COLOR; wanted one frame, MONOCHROME1"),
    (np.stack([VALUES, VALUES]), {}, "multi-frame DICOM (2 frames) is not supported"),
    (VALUES << 4, {"BitsStored": 12}, "high bit is 15 with 12 bits stored; wanted 11"),
    (VALUES, {"PixelPaddingValue": [0, 1]}, "PixelPaddingValue has 2 values (0, 1); wanted one"),
    (
        VALUES,
        {"PixelPaddingValue": 0, "PixelPaddingRangeLimit": 4095},
        "takes every pixel for padding; correct PixelPaddingRangeLimit",
    ),
    *((VALUES, {"WindowCenter": 10, "WindowWidth": width}, "window") for width in (0.5, -3)),
    (VALUES, {"WindowCenter": 10, "WindowWidth": 5, "VOILUTFunction": "CUBIC"}, "window"),
    *(
        (VALUES, {"Modality": modality}, f"modality is {modality}; wanted CR, DX, DR")
        for modality in ("CT", "MR", "US", "MG", "RF", "RG", "SR", "OT")
    ),
    *(
        (VALUES, {"RescaleSlope": slope, "RescaleIntercept": add, **window}, ": correct the header")
        for slope, add in RESCALES
        for window in ({}, SHOWN)
    ),
]


@pytest.mark.parametrize(("values", "tags", "part"), REFUSED)
def test_what_a_header_says_wrongly_is_refused(tmp_path, values, tags, part):
    refused(write(tmp_path / "a.dcm", values, **tags), part)


def test_truncated_pixels(tmp_path):
    file = write(tmp_path / "a.dcm")
    for cut in (20, 140):
        file.write_bytes(write(tmp_path / "b.dcm").read_bytes()[:-cut])
        refused(file, "cannot be decoded")


def test_no_pixels_at_all(tmp_path):
    for pixels in ("absent", None, b""):
        data = pydicom.dcmread(write(tmp_path / "a.dcm"))
        del data.PixelData
        if pixels != "absent":
            data.add_new("PixelData", "OW", pixels)
        data.save_as(tmp_path / "a.dcm")
        refused(tmp_path / "a.dcm", "no pixels are in the file")
    data.FloatPixelData = bytes(256)
    data.save_as(tmp_path / "a.dcm")
    refused(tmp_path / "a.dcm", "the pixels are of floating point; export them as integers")


@pytest.mark.parametrize("bits", [12, 15, 16])
def test_signed_pixels(tmp_path, bits):
    half = 2 ** (bits - 1)
    values = np.linspace(-half, half - 1, 64).astype(np.int16).reshape(8, 8)
    grey = read(stored(write(tmp_path / "a.dcm", values), bits))
    assert np.abs(grey - (values.astype(int) + half) / (2 * half - 1) * 255).max() <= 0.5


@pytest.mark.parametrize(("kind", "value"), [("SS", -2048), ("US", 65536 - 2048)])
@pytest.mark.parametrize("implicit", [False, True])
def test_padding_of_signed_pixels(tmp_path, kind, value, implicit):
    values = VALUES.astype(np.int16) - 1000
    values[0] = -2048
    data = pydicom.dcmread(write(tmp_path / "a.dcm", values))
    data.add_new("PixelPaddingValue", kind, value)
    if implicit:
        data.file_meta.TransferSyntaxUID = ImplicitVRLittleEndian
    data.save_as(tmp_path / "a.dcm", implicit_vr=implicit, little_endian=True)
    grey = read(tmp_path / "a.dcm")
    assert (grey[0] == 0).all() and {grey[1:].min(), grey[1:].max()} == {0, 255}


@pytest.mark.parametrize("window", [{}, {"WindowCenter": 1000, "WindowWidth": 800}])
def test_an_empty_limit_of_padding_is_none(tmp_path, window):
    values = VALUES.copy()
    values[0] = 65535
    plain = write(tmp_path / "a.dcm", values, PixelPaddingValue=65535, **window)
    data = pydicom.dcmread(plain)
    data.add_new("PixelPaddingRangeLimit", "US", None)
    data.save_as(tmp_path / "b.dcm")
    assert (read(tmp_path / "b.dcm") == read(plain)).all()


def test_padding_that_no_pixel_can_hold_pads_none(tmp_path):
    assert read(stored(write(tmp_path / "a.dcm", PixelPaddingValue=65535), 12)).max() == 255


@pytest.mark.filterwarnings("ignore:Invalid value for VR CS")
@pytest.mark.parametrize("modality", ["CR", "DX", "DR", "dx", ""])
@pytest.mark.parametrize("part", ["CHEST", "Thorax", "PORT CHEST", "CHEST_PA", "T THORAX", ""])
def test_chest_radiographs_pass(tmp_path, modality, part):
    file = write(tmp_path / "a.dcm", Modality=modality, BodyPartExamined=part)
    facts = read_with_facts(file)[1]
    assert (facts.width, facts.height) == (8, 8)
    assert facts.kind == f"DICOM {modality.upper() or 'without modality'} 16 bits"
    absent = [("Modality", modality), ("BodyPartExamined", part)]
    assert facts.absent == tuple(tag for tag, value in absent if not value)


@pytest.mark.parametrize(
    ("position", "view"),
    [("PA", "frontal"), ("AP", "frontal"), ("LL", "lateral"), ("LLD", ""), ("", ""), (None, "")],
)
def test_the_header_tells_the_view(tmp_path, position, view):
    tags = {} if position is None else {"ViewPosition": position}
    write(tmp_path / "a.dcm", **tags)
    (tmp_path / "b.dcm").write_bytes(b"no header")
    (tmp_path / "c.png").write_bytes(b"no picture")
    images = [study.images[0] for study in read_folder(tmp_path).studies]
    assert [image.view for image in images] == [view, "", ""]


@pytest.mark.parametrize("name", ["RescaleSlope", "RescaleIntercept"])
def test_several_values_of_a_rescale_are_taken_where_they_agree(tmp_path, name):
    tags = {"RescaleSlope": 1, "RescaleIntercept": 0}
    assert read(write(tmp_path / "a.dcm", **{**tags, name: [2, 2]})).max() == 255
    refused(
        write(tmp_path / "b.dcm", **{**tags, name: [2, -1]}),
        f"{name} has 2 values (2, -1); wanted one",
    )


@pytest.mark.parametrize("name", ["WindowCenter", "WindowWidth", "RescaleSlope"])
def test_a_number_with_a_comma_is_named(tmp_path, name):
    tags = {"WindowCenter": 1000, "WindowWidth": 800, "RescaleSlope": 1, "RescaleIntercept": 0}
    path = write(tmp_path / "a.dcm", **{**tags, name: "12345678"})
    path.write_bytes(path.read_bytes().replace(b"12345678", b"1234,500"))
    refused(path, f"{name} is ", "wanted a number: correct it")
