"""DICOM headers of the field: old files, windows that are none, polarity, body parts as spelt."""

from __future__ import annotations

import unicodedata

import numpy as np
import pydicom
import pytest
from pydicom.uid import (
    ExplicitVRBigEndian,
    ExplicitVRLittleEndian,
    ImplicitVRLittleEndian,
    RLELossless,
)

from rrgdata.images.read import read_image, read_with_facts
from rrgdata.sources.folder import read_folder
from rrgtrain.errors import UserError
from tests.rrgdata.dicom_files import NOTHING, VALUES, notes_of, read, recoded, refused, write

PLAIN = (ImplicitVRLittleEndian, ExplicitVRLittleEndian, ExplicitVRBigEndian)


def without_syntax(data: bytes) -> bytes:
    """Cut TransferSyntaxUID out of the meta group, and its group length."""
    end = data.index(b"\x08\x00\x16\x00") if b"\x08\x00\x16\x00" in data else None
    end = data.index(b"\x00\x08\x00\x16") if end is None else end
    place = data.index(b"\x02\x00\x10\x00UI")
    size = 8 + int.from_bytes(data[place + 6 : place + 8], "little")
    left = data[:place] + data[place + size : end]
    length = int.from_bytes(left[140:144], "little") - size
    return left[:140] + length.to_bytes(4, "little") + left[144:] + data[end:]


def without_meta(data: bytes) -> bytes:
    ends = [data.find(mark) for mark in (b"\x08\x00\x16\x00", b"\x00\x08\x00\x16")]
    return data[max(ends) :]


CUTS = {
    "preamble": lambda data: data[132:],
    "the preamble's zeros": lambda data: data[128:],
    "preamble and meta group": without_meta,
    "TransferSyntaxUID": without_syntax,
    "preamble and TransferSyntaxUID": lambda data: without_syntax(data)[132:],
}


def test_old_files_without_preamble_or_syntax_are_read(tmp_path):
    wrong = []
    for syntax in PLAIN:
        whole = write(tmp_path / "whole.dcm", syntax=syntax, ViewPosition="LL", PatientName="a b")
        for lacking, cut in CUTS.items():
            for name in ("old.dcm", "old", "1.2.840.3"):
                (tmp_path / "old").mkdir(exist_ok=True)
                file = tmp_path / "old" / name
                file.write_bytes(cut(whole.read_bytes()))
                try:
                    same = bool((read(file) == read(whole)).all())
                    (study,) = read_folder(tmp_path / "old").studies
                    same = same and study.images[0].view == "lateral"
                except (UserError, ValueError) as error:
                    same = False
                    wrong.append(str(error))
                if not same:
                    wrong.append((syntax.name, lacking, name))
                file.unlink()
    assert not wrong, wrong


def test_compressed_pixels_by_no_named_method_are_refused_by_name(tmp_path):
    file = recoded(write(tmp_path / "a.dcm"), RLELossless)
    file.write_bytes(without_syntax(file.read_bytes()))
    refused(file, "the header lacks TransferSyntaxUID", "compressed")


def test_what_is_not_dicom_is_one_line(tmp_path):
    elements = write(tmp_path / "whole.dcm").read_bytes()
    for number, data in enumerate(
        [
            *(
                b"hello" * 100,
                b"",
                b"\0" * 500,
                b"\x08\0",
                b"{}",
                b"\x89PNG\r\n\x1a\n" + b"\0" * 90,
            ),
            *(bytes(range(256)), b"\x08\x00\x05\x00CS\x0a\x00ISO_IR 100", b"DICM", elements[:140]),
            *(b"\x08\x00\x00\x00\x04\x00\x00\x00\x00\x00\x00\x00" + b"\xff" * 64, elements[:128]),
        ]
    ):
        file = tmp_path / f"{number}.dcm"
        file.write_bytes(data)
        refused(file)
        with pytest.raises(UserError) as caught:
            read_image(file)
        assert "attribute" not in str(caught.value), data[:20]


def test_missing_elements_are_named(tmp_path):
    for name in ("Rows", "Columns", "BitsAllocated", "BitsStored", "PixelRepresentation"):
        data = pydicom.dcmread(write(tmp_path / "a.dcm"))
        del data[name]
        data.save_as(tmp_path / "a.dcm")
        refused(tmp_path / "a.dcm", f"the header lacks {name}")


def test_elements_that_cannot_be_are_one_line_without_python_in_it(tmp_path):
    for name, kind, value, part in (
        ("WindowCenter", "LO", "much", "WindowCenter is 'much'; wanted a number"),
        ("RescaleSlope", "LO", "steep", "RescaleSlope is 'steep'; wanted a number"),
        ("BitsStored", "US", 0, "0 bits stored of 16 allocated"),
        ("BitsStored", "US", 20, "20 bits stored of 16 allocated"),
        ("VOILUTSequence", "OB", b"1234", "is no sequence of items"),
        ("Modality", "LO", "C\nT", "the modality is C T; wanted CR"),
    ):
        data = pydicom.dcmread(write(tmp_path / "a.dcm"))
        data.add_new(name, kind, value)
        if name == "WindowCenter":
            data.WindowWidth = 5
        data.save_as(tmp_path / "a.dcm")
        refused(tmp_path / "a.dcm", part)


FUNCTIONS = ("LINEAR", "LINEAR_EXACT", "SIGMOID")
SIGNED = VALUES.astype(np.int16) - 2048


def windows_that_show_nothing():
    for function in FUNCTIONS:
        for centre, width in ((-9000, 10), (60000, 100), (-1e6, 400), (5e5, 1), (900, 0)):
            yield {"WindowCenter": centre, "WindowWidth": width, "VOILUTFunction": function}
    yield {"WindowCenter": [-9000, 60000], "WindowWidth": [10, 20]}


def test_a_window_off_the_pixels_gives_their_range_and_a_note(tmp_path):
    for values in (VALUES, SIGNED):
        whole = read(write(tmp_path / "whole.dcm", values))
        for window in windows_that_show_nothing():
            file = write(tmp_path / "a.dcm", values, **window)
            assert (read(file) == whole).all(), window
            assert notes_of(file) == (NOTHING,), window
    constant = np.full((4, 4), 9, np.uint16)
    refused(write(tmp_path / "b.dcm", constant, WindowCenter=-9000, WindowWidth=10), "same value")


def test_a_window_that_stands_for_none_is_none(tmp_path):
    for values in (VALUES, SIGNED):
        whole = read(write(tmp_path / "whole.dcm", values))
        for width in (0, 1):
            for function in FUNCTIONS:
                tags = {"WindowCenter": 0, "WindowWidth": width, "VOILUTFunction": function}
                file = write(tmp_path / "a.dcm", values, **tags)
                assert (read(file) == whole).all() and notes_of(file) == ()


def test_the_first_window_that_shows_something_is_used(tmp_path):
    wanted = read(write(tmp_path / "w.dcm", WindowCenter=1000, WindowWidth=800))
    for centre, width, noted in ((0, 1, False), (0, 0, False), (-9000, 10, True), (9, 0, True)):
        tags = {"WindowCenter": [centre, 1000, 3000], "WindowWidth": [width, 800, 10]}
        file = write(tmp_path / "a.dcm", **tags)
        assert (read(file) == wanted).all()
        assert notes_of(file) == ((NOTHING,) if noted else ())


def test_a_rescale_that_leaves_one_value_is_told_of_the_header(tmp_path):
    file = write(tmp_path / "a.dcm", RescaleSlope=0, RescaleIntercept=5)
    refused(file, "rescale slope", "stored values differ")


def test_polarity_is_inverted_once_by_either_tag(tmp_path):
    window = {"WindowCenter": 1000, "WindowWidth": 800}
    for tags in ({}, window):
        upright = read(write(tmp_path / "a.dcm", **tags))
        for photometric, shape, inverted in (
            ("MONOCHROME2", "IDENTITY", False),
            ("MONOCHROME2", "INVERSE", True),
            ("MONOCHROME1", "INVERSE", True),
            ("MONOCHROME1", "IDENTITY", True),
            ("MONOCHROME1", None, True),
        ):
            more = tags if shape is None else {**tags, "PresentationLUTShape": shape}
            grey = read(write(tmp_path / "b.dcm", photometric=photometric, **more))
            assert (grey == (255 - upright if inverted else upright)).all(), (photometric, shape)


def of_part(path, part: bytes, charset: str | None):
    """Write a chest's file whose BodyPartExamined holds these bytes."""
    tags = {} if charset is None else {"SpecificCharacterSet": charset}
    file = write(path, Modality="DX", BodyPartExamined="X" * (len(part) + len(part) % 2), **tags)
    padded = part + b" " * (len(part) % 2)
    file.write_bytes(file.read_bytes().replace(b"X" * len(padded), padded, 1))
    return file


CHESTS = (
    *("CHEST", "PORTABLECHEST", "CHESTPA", "CHEST_PA", "CHEST, PA", "chest-lat", "Chest^AP", "CXR"),
    *("THORAX", "TORAX", "TÓRAX", "Tórax PA", "BRUST", "BRUSTKORB", "POITRINE", "POUMONS"),
    "PULMÃO",
    *("LUNGS", "X-RAY CHEST", "CHEST2VIEWS", "PORT CHEST", "CHESTPORTABLEAP", "GÖĞÜS"),
)
FAR_CHESTS = (("胸部", "GB18030"), ("胸部", "ISO_IR 192"), ("胸部正面", "ISO 2022 IR 87"))
FAR_CHESTS += (("흉부", "ISO_IR 192"), ("ГРУДНАЯ КЛЕТКА", "ISO_IR 144"), ("ΘΩΡΑΚΑΣ", "ISO_IR 126"))
CODECS = {"GB18030": "gb18030", "ISO 2022 IR 87": "iso2022_jp"}
CODECS |= {"ISO_IR 144": "iso8859_5", "ISO_IR 126": "iso8859_7", "ISO_IR 100": "latin-1"}


def spellings():
    for part in CHESTS:
        for form in ("NFC", "NFD"):
            text = unicodedata.normalize(form, part)
            for charset in (None, "ISO_IR 100", "ISO_IR 192") if not part.isascii() else ("",):
                yield part, text.encode(), charset
                if form == "NFC" and part != "GÖĞÜS":
                    yield part, text.encode("latin-1"), charset
    for part, charset in FAR_CHESTS:
        yield part, part.encode(CODECS.get(charset, "utf-8")), charset
        yield part, part.encode(), None


def test_a_chest_is_known_however_it_is_spelt_and_encoded(tmp_path):
    wrong = []
    for part, spelt, charset in spellings():
        try:
            read_image(of_part(tmp_path / "a.dcm", spelt, charset))
        except UserError as error:
            wrong.append((part, spelt, charset, str(error)))
    assert not wrong, wrong


def test_other_parts_stay_out_until_a_setting_lets_them_in(tmp_path):
    for part in (
        *("HAND", "ABDOMEN", "CHESTABDOMEN", "CHEST ABDOMEN", "NECKCHEST", "TSPINE", "BREAST"),
        *("THORACIC SPINE", "WHOLEBODY", "T", "PA", "RODILLA", "PÉ", "胸椎", "腹部", "LONG BONE"),
    ):
        file = of_part(tmp_path / "a.dcm", part.encode(), "ISO_IR 192")
        refused(file, f"body part is {part}; wanted the chest", "data.body_parts=[")
        with pytest.raises(UserError) as caught:
            read_image(file)
        setting = str(caught.value).partition("data.body_parts=[")[2].partition("]")[0]
        for accepted in (part, part.lower(), part.replace(" ", "_"), setting):
            read_image(file, body_parts=["KNEE", accepted])
        with pytest.raises(UserError):
            read_image(file, body_parts=["KNEE"])
    file = of_part(tmp_path / "a.dcm", b"KNIE\nLINKS", None)
    refused(file, "KNIE LINKS")
    assert read_with_facts(of_part(tmp_path / "a.dcm", b"-", None))[1].absent == (
        "BodyPartExamined",
    )
