"""DICOM radiographs: rescale, window, polarity, padding, and files that are not one."""

from __future__ import annotations

import numpy as np
import pydicom
import pytest
from pydicom.dataset import Dataset, FileMetaDataset
from pydicom.uid import ExplicitVRLittleEndian, generate_uid

from rrgtrain.data.images import read_image
from rrgtrain.errors import UserError

VALUES = np.linspace(0, 4095, 64).round().astype(np.uint16).reshape(8, 8)


def write(path, values=VALUES, photometric="MONOCHROME2", **tags):
    meta = FileMetaDataset()
    meta.TransferSyntaxUID = ExplicitVRLittleEndian
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
    data.PixelRepresentation = 0
    if values.ndim == 3:
        data.NumberOfFrames = values.shape[0]
    for name, value in tags.items():
        setattr(data, name, value)
    data.PixelData = values.astype("<u2").tobytes()
    data.save_as(path, enforce_file_format=True)
    return path


def read(path):
    return np.asarray(read_image(path))[..., 0].astype(int)


def refused(path, *parts):
    with pytest.raises(UserError) as caught:
        read_image(path)
    line = str(caught.value)
    assert "\n" not in line and path.name in line
    for part in parts:
        assert part in line


def test_without_a_window_the_range_is_used(tmp_path):
    grey = read(write(tmp_path / "a.dcm"))
    assert np.abs(grey - VALUES / 4095 * 255).max() <= 0.5


def test_monochrome1_is_inverted(tmp_path):
    upright, other = write(tmp_path / "a.dcm"), write(tmp_path / "b.dcm", photometric="MONOCHROME1")
    assert (read(other) == 255 - read(upright)).all()


def test_the_magic_number_counts_not_the_name(tmp_path):
    assert (read(write(tmp_path / "scan.img")) == read(write(tmp_path / "scan.dcm"))).all()


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


def test_value_table(tmp_path):
    table = Dataset()
    table.LUTDescriptor = [4096, 0, 16]
    table.LUTData = (np.arange(4096, dtype=np.uint16)[::-1] * 16).tobytes()
    table["LUTDescriptor"].VR = "US"
    table["LUTData"].VR = "OW"
    grey = read(write(tmp_path / "a.dcm", VOILUTSequence=[table], WindowCenter=1, WindowWidth=2))
    assert np.abs(grey - (4095 - VALUES) * 16 / 65535 * 255).max() <= 0.5


@pytest.mark.parametrize("photometric", ["MONOCHROME1", "MONOCHROME2"])
def test_padding_is_black_and_outside_the_range(tmp_path, photometric):
    values = VALUES.copy()
    values[0] = 65535
    grey = read(write(tmp_path / "a.dcm", values, photometric, PixelPaddingValue=65535))
    assert (grey[0] == 0).all()
    assert {grey[1:].min(), grey[1:].max()} == {0, 255}


def test_constant_is_refused(tmp_path):
    refused(write(tmp_path / "a.dcm", np.full((4, 4), 9, np.uint16)), "same value")
    refused(write(tmp_path / "b.dcm", WindowCenter=-9000, WindowWidth=10), "same value")


def test_colour_and_several_frames_are_refused(tmp_path):
    refused(
        write(tmp_path / "a.dcm", photometric="PALETTE COLOR"), "is PALETTE COLOR", "MONOCHROME1"
    )
    refused(
        write(tmp_path / "b.dcm", np.stack([VALUES, VALUES])),
        "multi-frame DICOM (2 frames) is not supported",
    )


@pytest.mark.parametrize(
    "tags",
    [{"WindowWidth": 0.5}, {"WindowWidth": -3}, {"VOILUTFunction": "CUBIC", "WindowWidth": 5}],
)
def test_impossible_windows(tmp_path, tags):
    refused(write(tmp_path / "a.dcm", WindowCenter=10, **tags), "window")


def test_truncated_pixels(tmp_path):
    file = write(tmp_path / "a.dcm")
    for cut in (20, 140):
        file.write_bytes(write(tmp_path / "b.dcm").read_bytes()[:-cut])
        refused(file, "cannot be decoded")


def test_not_dicom(tmp_path):
    (tmp_path / "a.dcm").write_bytes(b"hello" * 100)
    refused(tmp_path / "a.dcm", "not DICOM")


def test_undecodable_transfer_syntax(tmp_path):
    file = write(tmp_path / "a.dcm")
    data = pydicom.dcmread(file)
    data.file_meta.TransferSyntaxUID = "1.2.840.10008.1.2.4.100"
    data.PixelData = pydicom.encaps.encapsulate([b"\0" * 64])
    data.save_as(file)
    refused(file, "cannot be decoded", "re-export")
