"""Damaged copies of MIMIC-CXR: a study is named with its defect, a list is told in one line."""

from __future__ import annotations

import errno
import gzip
import os
import re
from pathlib import Path

import pytest

from rrgclinical.common.spreadsheets import whole_number
from tests.rrgdata import mimic_tree as tree
from tests.rrgdata.common import by_id
from tests.rrgdata.mimic_tree import FIRST, broken, load, refused


@pytest.mark.parametrize("kind", ["split", "metadata"])
def test_a_missing_list_is_told_with_the_directory_wanted(tmp_path, kind):
    tree.write_mimic(tmp_path)
    (tmp_path / f"mimic-cxr-2.0.0-{kind}.csv").unlink()
    refused(tmp_path, f"no mimic-cxr-2.0.0-{kind}.csv", "physionet.org/files/mimic-cxr-jpg/2.1.0")


def test_the_folder_of_files_is_told_from_the_one_above(tmp_path):
    tree.write_mimic(tmp_path)
    refused(tmp_path / "files", "it is the directory above this one")


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def metadata(root: Path) -> Path:
    return tree.write_mimic(root) / "mimic-cxr-2.0.0-metadata.csv"


def test_a_study_of_one_list_alone_is_broken(tmp_path):
    path = metadata(tmp_path)
    text = path.read_text().split("\n")
    path.write_text("\n".join(row for row in text if "57375967" not in row))
    broken(tmp_path, "57375967", "no image in mimic-cxr-2.0.0-metadata.csv")
    path.write_text("\n".join(text))
    split = tmp_path / "mimic-cxr-2.0.0-split.csv"
    split.write_text("\n".join(r for r in split.read_text().split("\n") if "57375967" not in r))
    broken(tmp_path, "57375967", "not in mimic-cxr-2.0.0-split.csv")


def test_an_image_in_two_rows_breaks_its_study(tmp_path):
    path = metadata(tmp_path)
    edit(path, tree.image_name(FIRST, 1), tree.image_name(FIRST, 0))
    broken(tmp_path, FIRST, "again in mimic-cxr-2.0.0-metadata.csv: row 3")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("21800626,165500.312", "2180-06-26,1"),
        ("21800626,165500.312", "21801326,1"),
        ("21800626,165500.312", ",1"),
        ("165500.312", "noon"),
    ],
)
def test_a_date_that_is_none_breaks_only_where_dates_are_read(tmp_path, old, new):
    edit(metadata(tmp_path), old, new)
    broken(tmp_path, "53189527", "StudyDate", "wanted YYYYMMDD", prior="last")
    assert not load(tmp_path).broken


def test_priors_are_uncertain_beside_a_study_without_a_date(tmp_path):
    edit(metadata(tmp_path), "21800626,165500.312", ",1")
    (note,) = (n for n in load(tmp_path, prior="last").notes if "no sure prior" in n)
    assert note.startswith("2 studies have no sure prior")
    assert not any("no sure prior" in n for n in load(tmp_path).notes)


def test_an_unknown_split_breaks_the_study(tmp_path):
    tree.write_mimic(tmp_path)
    edit(tmp_path / "mimic-cxr-2.0.0-split.csv", "validate", "valid")
    broken(tmp_path, "57375967", "'valid'", "validate")


def test_a_row_that_breaks_off_is_told_by_number(tmp_path):
    path = metadata(tmp_path)
    with path.open("a") as file:
        file.write("123,456\n")
    (only,) = load(tmp_path).broken
    assert only.where.endswith("metadata.csv: row 11") and "2 cells; wanted 12" in only.why


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "is empty"),
        (b" \n", "is empty"),
        ("FINDINGS: Sj\xf6gren".encode("latin-1"), "byte 0xf6"),
        (None, "No such file"),
    ],
)
def test_a_broken_report_is_named(tmp_path, content, why):
    tree.write_mimic(tmp_path)
    path = tree.folder(tmp_path / "files", "10000032", FIRST).with_suffix(".txt")
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    catalogue = broken(tmp_path, FIRST, str(path), why)
    assert len(by_id(catalogue)) == 4


def test_a_report_that_a_disk_error_hides_is_read_the_next_time(tmp_path, monkeypatch):
    tree.write_mimic(tmp_path)
    path = tree.folder(tmp_path / "files", "10000032", FIRST).with_suffix(".txt")
    real = Path.read_bytes

    def failing(file: Path) -> bytes:
        if file == path:
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(file))
        return real(file)

    with monkeypatch.context() as disk:
        disk.setattr(Path, "read_bytes", failing)
        broken(tmp_path, FIRST, str(path), f"cannot be read ({os.strerror(errno.EIO)})")
    assert not load(tmp_path).broken


@pytest.mark.parametrize("empty", [False, True])
def test_a_missing_image_is_named_as_a_prior_too(tmp_path, empty):
    tree.write_mimic(tmp_path)
    path = tree.folder(tmp_path / "files", "10000032", FIRST) / f"{tree.image_name(FIRST, 1)}.jpg"
    path.unlink()
    if empty:
        path.touch()
    broken(tmp_path, FIRST, str(path), "empty" if empty else "not found")
    catalogue = load(tmp_path, prior="last")
    assert [b.where for b in catalogue.broken] == [f"study {FIRST}", "study 53911762"]


def test_a_label_that_is_none_is_named(tmp_path):
    tree.write_mimic(tmp_path)
    tree.write_labels(tmp_path, {FIRST: {"Edema": "yes"}})
    broken(tmp_path, FIRST, "'yes'", "chexpert.csv.gz: row 2")
    later = by_id(load(tmp_path, prior="last"))["53911762"]
    assert {i.path.parent.name for i in later.images if i.prior} == {f"s{FIRST}"}


@pytest.mark.parametrize(
    ("damage", "part"),
    [
        (lambda packed: packed[:-12], "breaks off"),
        (lambda packed: packed[:40], "breaks off"),
        (lambda packed: b"not gzip at all", "no gzip file"),
        (lambda packed: gzip.compress(b"study_id,subject_id\n"), "no column 'split'"),
        (lambda packed: gzip.compress(b""), "no column 'study_id'; it has nothing"),
        (lambda packed: gzip.compress(gzip.decompress(packed) + b"\xe9\n"), "byte 0xe9"),
    ],
)
def test_a_damaged_list_is_one_line(tmp_path, damage, part):
    path = tree.write_mimic(tmp_path, packed=True) / "mimic-cxr-2.0.0-split.csv.gz"
    path.write_bytes(damage(path.read_bytes()))
    refused(tmp_path, path.name, part)


LISTS = ("split", "metadata", "chexpert", "test-set-labeled")


def with_labels(root: Path) -> dict[str, Path]:
    tree.write_mimic(root)
    for human in (False, True):
        tree.write_labels(root, {FIRST: {"Edema": "1"}}, human=human)
    packed = root / "mimic-cxr-2.0.0-chexpert.csv.gz"
    packed.with_suffix("").write_bytes(gzip.decompress(packed.read_bytes()))
    packed.unlink()
    return {kind: next(root.glob(f"*-{kind}.csv")) for kind in LISTS}


def test_ids_that_pandas_made_floats_are_whole_numbers(tmp_path):
    lists = with_labels(tmp_path)
    whole = by_id(load(tmp_path, prior="last"))
    assert whole[FIRST].expert
    texts = {kind: path.read_text() for kind, path in lists.items()}
    for changed in (*([kind] for kind in LISTS), LISTS):
        for kind in changed:
            text = re.sub(r"(?<=,)(1\d{7}|5\d{7})(?=,)", r"\1.0", f",{texts[kind]}")[1:]
            text = re.sub(r"(?m)^(5\d{7})(?=,)", r"\1.0", text)
            assert ".0," in text
            lists[kind].write_text(text)
        catalogue = load(tmp_path, prior="last")
        catalogue.check(tmp_path)
        assert by_id(catalogue) == whole, changed
        for kind in changed:
            lists[kind].write_text(texts[kind])


def test_an_id_that_is_no_whole_number_is_named_with_its_place(tmp_path):
    lists = with_labels(tmp_path)
    for kind, path in lists.items():
        for odd in (f"{FIRST}.5", f"s{FIRST}", "nan", ""):
            text = path.read_text()
            edit(path, f"{FIRST},", f"{odd},")
            first = load(tmp_path).broken[0]
            assert first.where == f"{path.name}: row 2", kind
            assert first.why.startswith(f"has study_id {odd!r}; wanted a whole number")
            path.write_text(text)


def test_whole_numbers_are_exact() -> None:
    digits = {"7": "7", " 07 ": "07", "7.": "7", "7.0": "7", "5.0414267e7": FIRST, "5E+0": "5"}
    assert {text: whole_number(text) for text in digits} == digits
    for text in ("7.5", "-7", "", "x", "1e99", f"{2**53}.0", "7.0.0", "٧", "inf", "nan", "7,0"):
        assert whole_number(text) is None, text
    assert whole_number(str(2**80)) == str(2**80)
