"""Value and modality tables of DICOM give what PS3.3 C.11.1 and C.11.2 say, however stored."""

from __future__ import annotations

import itertools

import numpy as np
import pydicom
import pytest
from pydicom import uid
from pydicom.data import get_testdata_file
from pydicom.dataset import Dataset

from tests.rrgdata.dicom_files import (
    CUT_SHORT,
    NOTHING,
    VALUES,
    baseline,
    encapsulated,
    lossless,
    lossless_jpeg,
    notes_of,
    read,
    recoded,
    refused,
    stored,
    table_item,
    without_pylibjpeg,
    write,
)

PLAIN = (uid.ImplicitVRLittleEndian, uid.ExplicitVRLittleEndian, uid.ExplicitVRBigEndian)
# bits in the descriptor, greatest entry, whether an entry takes one byte, and white
KINDS = {
    "16 bits": (16, 65535, False, 65535),
    "almost 16 bits": (16, 65520, False, 65535),
    "12 bits stored in 16": (16, 4095, False, 4095),
    "12 bits": (12, 4095, False, 4095),
    "12 bits that end below white": (12, 3000, False, 4095),
    "8 bits in words": (8, 255, False, 255),
    "words called bytes": (8, 4095, False, 4095),
    "no depth": (0, 1000, False, 1000),
    "bytes": (8, 255, True, 255),
}
RESCALES = (None, (1.0, -1024.0), (2.0, 300.0), (-1.0, 100.0), (0.5, 0.0))


def entries_to(greatest, count=3001):
    """Rise as a square root does."""
    return np.round(np.sqrt(np.arange(count) / (count - 1)) * greatest).astype(np.uint16)


def looked_up(values, first, entries):
    """Look each value up as C.11.1.1 has it: the ends serve what lies beyond them."""
    at = [min(max(round(v) - first, 0), len(entries) - 1) for v in np.ravel(values).tolist()]
    return np.array([int(entries[i]) for i in at], dtype=float).reshape(np.shape(values))


def of_item(path, name, syntax, values, item, **tags):
    bits = 16 if values.max() > 4095 else 12
    tags |= {"BitsStored": bits, "HighBit": bits - 1, name: [item]}
    if not syntax.is_encapsulated:
        return write(path, values, syntax=syntax, **tags)
    return recoded(write(path, values, **tags), syntax)


def test_value_tables_however_stored(tmp_path):
    wrong = []
    rng = np.random.default_rng(0)
    for syntax, kind, signed, vr in itertools.product(PLAIN, KINDS, (False, True), ("US", "SS")):
        rescale, data_vr = RESCALES[rng.integers(len(RESCALES))], ("US", "OW")[rng.integers(2)]
        bits, greatest, packed, white = KINDS[kind]
        values = (VALUES.astype(np.int16) - 2048) if signed else VALUES
        slope, intercept = rescale or (1.0, 0.0)
        tags = {"RescaleSlope": slope, "RescaleIntercept": intercept} if rescale else {}
        shown = values * slope + intercept
        first, entries = int(shown.min()) + 700, entries_to(greatest)
        item = table_item(
            *(first, entries, bits),
            vr=vr,
            data_vr=data_vr,
            packed=packed,
            big=syntax == uid.ExplicitVRBigEndian,
        )
        file = of_item(tmp_path / "a.dcm", "VOILUTSequence", syntax, values, item, **tags)
        wanted = looked_up(shown, first, entries) / white * 255
        if np.abs(read(file) - wanted).max() > 0.51:
            wrong.append((syntax.name, kind, signed, vr, data_vr, rescale))
    assert not wrong, wrong


def test_tables_of_other_sizes_and_encodings(tmp_path):
    # JPEG 2000 is not written of fewer pixels
    wide = np.linspace(0, 65535, 1024).round().astype(np.uint16).reshape(32, 32)
    signed = (wide.astype(int) - 32768).astype(np.int16)
    wrong = []
    for name, (values, first, entries) in {
        "first value over 32767": (wide, 40000, entries_to(4095, 20000)),
        "65,536 entries": (wide, 0, entries_to(65535, 65536)),
        "65,536 entries, signed": (signed, -32768, entries_to(4095, 65536)),
        "one entry less": (wide // 16, 0, entries_to(255, 4095)),
        "256 entries": (wide // 256, 0, entries_to(255, 256)),
    }.items():
        for syntax, vr in itertools.product(
            (*PLAIN, uid.JPEG2000Lossless, uid.RLELossless), ("US", "SS")
        ):
            packed, big = entries.max() == 255, syntax == uid.ExplicitVRBigEndian
            item = table_item(first, entries, 8 if packed else 16, vr=vr, packed=packed, big=big)
            file = of_item(tmp_path / "a.dcm", "VOILUTSequence", syntax, values, item)
            wanted = looked_up(values, first, entries) / int(entries.max()) * 255
            if np.abs(read(file) - wanted).max() > 0.51:
                wrong.append((name, syntax.name, vr))
    assert not wrong, wrong


def test_modality_tables_come_before_window_and_value_table(tmp_path):
    wrong = []
    for syntax, signed, bits, vr in itertools.product(PLAIN, (False, True), (12, 16), ("US", "SS")):
        values = (VALUES.astype(np.int16) - 2048) if signed else VALUES
        first, entries = int(values.min()) + 500, entries_to(4095)
        big = syntax == uid.ExplicitVRBigEndian
        item = table_item(first, entries, bits, vr=vr, big=big)
        out = looked_up(values, first, entries)
        file, name = tmp_path / "a.dcm", "ModalityLUTSequence"
        second = table_item(1000, entries_to(65535), 16, vr=vr, big=big)
        window = {
            "WindowCenter": 1000,
            "WindowWidth": 501,
            "RescaleSlope": 9,
            "RescaleIntercept": 1,
        }
        greys = {
            "range": (out / 4095 * 255, {}),
            "window": (np.clip((out - 999.5) / 500 + 0.5, 0, 1) * 255, window),
            "table": (
                looked_up(out, 1000, entries_to(65535)) / 65535 * 255,
                {"VOILUTSequence": [second], **window},
            ),
        }
        for kind, (wanted, tags) in greys.items():
            grey = read(of_item(file, name, syntax, values, item, **tags))
            if np.abs(grey - wanted).max() > 0.51:
                wrong.append((kind, syntax.name, signed, bits, vr))
    assert not wrong, wrong


WINDOW = {"WindowCenter": 1000, "WindowWidth": 800}


def test_a_table_that_is_none_leaves_the_window(tmp_path):
    plain, whole = read(write(tmp_path / "w.dcm", **WINDOW)), read(write(tmp_path / "r.dcm"))
    for sequence in ([], [Dataset()], [Dataset(), Dataset()]):
        for name in ("VOILUTSequence", "ModalityLUTSequence"):
            file = write(tmp_path / "a.dcm", **{name: sequence}, **WINDOW)
            assert (read(file) == plain).all() and notes_of(file) == ()
            assert (read(write(tmp_path / "b.dcm", **{name: sequence})) == whole).all()


def test_the_first_usable_of_several_tables_is_used(tmp_path):
    cut = table_item(0, entries_to(4095, 4096), 16)
    cut.LUTData = cut.LUTData[:3000]
    dark = table_item(0, [0] * 4096, 16)
    good, other = table_item(0, entries_to(4095, 4096), 16), table_item(0, range(4096), 16)
    wanted = looked_up(VALUES, 0, entries_to(4095, 4096)) / 4095 * 255
    for before in ([], [Dataset()], [cut], [dark], [Dataset(), cut, dark]):
        file = write(tmp_path / "a.dcm", VOILUTSequence=[*before, good, other], **WINDOW)
        assert np.abs(read(file) - wanted).max() <= 0.51
        assert notes_of(file) == ((NOTHING,) if dark in before else ())


def broken_items():
    for keep in (0, 2, 100, 4096, 8190):
        item = table_item(0, entries_to(4095, 4096), 16)
        item.LUTData = item.LUTData[:keep]
        yield item
    item = table_item(0, entries_to(255, 4096), 8, packed=True)
    item.LUTData = item.LUTData[:4000]
    yield item
    for name in ("LUTData", "LUTDescriptor"):
        item = table_item(0, entries_to(4095, 4096), 16)
        del item[name]
        yield item
    for descriptor in (4096, [4096, 0], [4096, 0, 16, 1]):
        item = table_item(0, entries_to(4095, 4096), 16)
        item.add_new("LUTDescriptor", "US", descriptor)
        yield item


def test_a_broken_table_leaves_the_window_or_is_refused_in_one_line(tmp_path):
    plain = read(write(tmp_path / "w.dcm", **WINDOW))
    for item in broken_items():
        file = write(tmp_path / "a.dcm", VOILUTSequence=[item], **WINDOW)
        assert (read(file) == plain).all() and notes_of(file) == (CUT_SHORT,)
        refused(write(tmp_path / "b.dcm", VOILUTSequence=[item]), "value table (VOI LUT)")
        none = {"WindowCenter": 0, "WindowWidth": 1}
        refused(write(tmp_path / "b.dcm", VOILUTSequence=[item], **none), "no window is there")
        file = write(tmp_path / "c.dcm", ModalityLUTSequence=[item], **WINDOW)
        refused(file, "modality table (Modality LUT)")


@pytest.mark.parametrize("signed", [False, True])
def test_bits_above_those_stored_are_ignored_by_every_encoding(tmp_path, signed):
    for bits in (10, 12, 15):
        ramp = np.linspace(0, 2**bits - 1, 1024).round().astype(np.int64).reshape(32, 32)
        values = ramp - 2 ** (bits - 1) if signed else ramp
        words = (values & 0xFFFF).astype(np.uint16)
        words[::2] ^= 0x8000
        words[::3] ^= np.uint16(0x8000 | (1 << bits))
        dirty = words.view(np.int16) if signed else words
        for syntax in (*PLAIN, uid.RLELossless, uid.JPEG2000Lossless, uid.JPEGLosslessSV1):
            plain = syntax if syntax in PLAIN else uid.ExplicitVRLittleEndian
            file = write(tmp_path / "a.dcm", dirty, syntax=plain)
            if syntax == uid.JPEGLosslessSV1:
                pytest.importorskip("libjpeg")
                encapsulated(file, syntax, lossless_jpeg(words, 16))
            elif syntax not in PLAIN:
                recoded(file, syntax)
            grey = read(stored(file, bits))
            assert np.abs(grey - ramp / (2**bits - 1) * 255).max() <= 0.51, (bits, syntax.name)


def test_unsigned_values_have_an_unsigned_first_value_also_where_they_do_not_reach_it(tmp_path):
    item = table_item(40000, entries_to(4095, 30000), 12)
    file = of_item(tmp_path / "a.dcm", "VOILUTSequence", uid.ExplicitVRLittleEndian, VALUES, item)
    assert notes_of(file) == (NOTHING,)
    assert (read(file) == read(write(tmp_path / "b.dcm"))).all()


# Compressed DICOM gives the pixels that went in; where a decoder is missing, it is named.
RAMP = np.add.outer(np.arange(64), np.arange(48)) / 110


def ramp(bits, signed=False):
    values = np.round(RAMP * (2**bits - 1)).astype(np.int64)
    return (values - 2 ** (bits - 1)).astype(np.int16) if signed else values.astype(np.uint16)


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
    assert pydicom.dcmread(compressed).file_meta.TransferSyntaxUID == uid.JPEGLSLossless
    assert (read(compressed) == read(sample(tmp_path / "b.dcm", "MR_small.dcm"))).all()


def test_jpeg_of_12_bits(tmp_path):
    pytest.importorskip("libjpeg")
    compressed = sample(tmp_path / "a.dcm", "JPGExtended.dcm")
    assert pydicom.dcmread(compressed).file_meta.TransferSyntaxUID == uid.JPEGExtended12Bit
    grey = read(compressed)
    assert grey.shape == (1024, 256) and grey.max() == 255


@pytest.mark.parametrize(
    "syntax", [uid.JPEG2000Lossless, uid.JPEGLosslessSV1, uid.JPEGBaseline8Bit]
)
def test_padding_behind_a_frame_is_passed_over(tmp_path, syntax):
    if syntax == uid.JPEGLosslessSV1:
        pytest.importorskip("libjpeg")
        file = lossless(tmp_path / "a.dcm", ramp(12), 12)
    elif syntax == uid.JPEGBaseline8Bit:
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
        (uid.JPEGLosslessSV1, "pylibjpeg-libjpeg"),
        (uid.JPEGLSLossless, "pylibjpeg-libjpeg"),
        (uid.JPEGExtended12Bit, "pylibjpeg-libjpeg"),
        (uid.JPEG2000Lossless, "pylibjpeg-openjpeg"),
    ],
)
def test_a_missing_decoder_is_named(tmp_path, syntax, package):
    file = stored(write(tmp_path / "a.dcm", ramp(12)), 12)
    encapsulated(file, syntax, lossless_jpeg(ramp(12), 12))
    with without_pylibjpeg(syntax):
        refused(file, f"this file is {syntax.name}; pip install {package}")
