"""`rrgtrain data check` tells sizes, broken studies and prevalence, and remembers the images."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from rrgclinical.labels import OBSERVATIONS
from rrgdata import load_studies
from rrgdata.images import check as images_module
from rrgdata.sources import every_source, guess_source
from rrgtrain.cli import main
from rrgtrain.errors import UserError
from tests.real_data import REAL
from tests.rrgtrain.common import phantoms


@pytest.fixture
def root(tmp_path) -> Path:
    return Path(shutil.copytree(phantoms(), tmp_path / "data"))


def check(capsys: pytest.CaptureFixture, *words: str | Path) -> tuple[int, list[str]]:
    """Status, and the lines of the report with their blanks joined."""
    status = main(["data", "check", *map(str, words)])
    shown = capsys.readouterr()
    text = shown.out if status < 2 else shown.err
    return status, [" ".join(line.split()) for line in text.splitlines()]


def table(root: Path, count: int) -> Path:
    """IU X-Ray's layout with a radiograph for each of `count` studies."""
    root.mkdir()
    pixels = np.random.default_rng(0).integers(0, 255, (20, 30), dtype=np.uint8)
    for i in range(count):
        Image.fromarray(pixels).save(root / f"{i}.png")
    report = "no effusion ."
    entries = [{"id": f"s{i}", "report": report, "image_path": [f"{i}.png"]} for i in range(count)]
    (root / "annotation.json").write_text(json.dumps({"train": entries}))
    return root


def test_a_whole_data_set(root, capsys, opened) -> None:
    status, lines = check(capsys, root)
    assert status == 0
    assert lines[0].startswith("iu_xray (guessed from the files") and str(root) in lines[0]
    assert "train 8 2,069 8 -" in lines and "all 15 - 15 -" in lines
    assert "broken studies: 0" in lines
    assert any("https://github.com/cuhksz-nlp/R2Gen" in line for line in lines)
    assert "PNG 8 bits 15 56 56" in lines and "broken 0" in lines
    entries = [e for of in json.loads((root / "annotation.json").read_text()).values() for e in of]
    labels = np.array([entry["labels"] for entry in entries])
    for i, name in enumerate(OBSERVATIONS):
        (row,) = [line for line in lines if line.startswith(f"{name} ")]
        assert row.split()[-4:-2] == [f"{(labels[:, i] == k).mean():.1%}" for k in (1, 3)]
    words = sorted(len(entry["report"].split()) for entry in entries)
    (row,) = [line.split() for line in lines if line.startswith("words ")]
    assert (row[1], row[4], row[-1]) == (str(words[0]), str(words[7]), str(words[-1]))
    assert len(opened) == 15
    assert check(capsys, root) == (status, lines) and len(opened) == 15, "remembered"


def test_without_a_split_studies_of_one_image_stay_together(tmp_path) -> None:
    """A table of 40 reports and 16 images had every image of val and test in train."""
    images = {f"s{i}": f"{i % 16}.png" for i in range(40)}
    images |= (chain := {f"c{k}": f"{k}.png|{k + 1}.png" for k in range(100, 109)})
    for name in {name for names in images.values() for name in names.split("|")}:
        (tmp_path / name).write_bytes(b"not decoded here")
    splits = []
    for order in (1, -1):
        rows = [f"{name},{paths},Clear." for name, paths in images.items()][::order]
        (tmp_path / "mine.csv").write_text("\n".join(["id,images,report", *rows]))
        catalogue = load_studies("table", tmp_path / "mine.csv")
        splits.append({s.id: split for split, of in catalogue.studies.items() for s in of})
        assert "studies follow one that shares an image" in catalogue.notes[0]
        assert not any("in several splits" in note for note in catalogue.notes)
    assert splits[0] == splits[1] and len(set(splits[0].values())) == 3
    assert len({splits[0][name] for name in chain}) == 1
    assert all(splits[0][f"s{i}"] == splits[0][f"s{i % 16}"] for i in range(40))


def test_a_picture_in_two_splits_or_twice_in_a_study_is_told(tmp_path, capsys) -> None:
    """By its path where the data are loaded, by its pixels where they are decoded."""
    root = tmp_path / "films"
    root.mkdir()
    rng = np.random.default_rng(0)
    for name in "abcd":
        Image.fromarray(rng.integers(0, 255, (20, 30), dtype=np.uint8)).save(root / f"{name}.png")
    Image.open(root / "a.png").save(root / "copy of a.tif")
    rows = ["1,a.png|d.png,train", "2,b.png,train", "3,c.png,val", "4,d.png,test"]
    cases = {
        "a.png": ("1 images are in several splits, the first is a.png of train, in test as", ""),
        "b.png|b.png": ("1 studies have an image twice, the first is 5", "b.png of train, in test"),
        "copy of a.tif": ("", "a.png of train, in test as copy of a.tif; results on them say less"),
        "c.png": ("c.png of val, in test as c.png", "c.png of val, in test as c.png"),
    }
    for film, (by_path, by_pixels) in cases.items():
        lines = [
            "id,images,split,report",
            *(f"{row},Clear." for row in rows[:3]),
            f"5,{film},test,A.",
        ]
        (root / "a.csv").write_text("\n".join(lines) + "\n")
        status, shown = check(capsys, root)
        text = "\n".join(shown).replace(f"{root}/", "")
        assert status == 0 and by_path in text and by_pixels in text, film
        assert ("by their pixels" in text) and ("several" in text), film
    # a prior may be of train, and what stands once is not told
    (root / "a.csv").write_text(
        "id,images,prior,split,report\n1,a.png,,train,Clear.\n2,b.png,a.png,test,Clear.\n"
        "3,c.png|d.png,,test,Clear.\n4,c.png,,test,Clear.\n5,b.png,a.png,test,Clear.\n"
    )
    _, shown = check(capsys, root, "data.prior=last")
    assert "test: 1.75 ± 0.43 images a study, 50.0% of the studies with a prior" in shown
    assert not any("several splits" in line or "twice" in line for line in shown)


def test_the_broken_ones_are_told_and_listed(root, tmp_path, capsys) -> None:
    bad = sorted(root.glob("images/*val_000001/*.png"))[0]
    bad.write_bytes(bad.read_bytes()[:-30])
    annotation = json.loads((root / "annotation.json").read_text())
    annotation["train"][2]["report"] = " "
    (root / "annotation.json").write_text(json.dumps(annotation))
    status, lines = check(capsys, root)
    assert status == 1
    start = lines.index("broken studies: 2")
    assert "train[2]" in lines[start + 1] and "has an empty report" in lines[start + 1]
    assert f"has the image {bad}: the PNG is truncated" in lines[start + 2]
    assert "train 7 2,069 7 -" in lines and "val 2 296 2 -" in lines and "broken 1" in lines
    out = tmp_path / "new" / "broken.jsonl"
    status, lines = check(capsys, root, "--out", out)
    assert status == 1 and f"2, listed in {out}" in lines
    rows = [json.loads(row) for row in out.read_text().splitlines()]
    assert len(rows) == 2 and rows[0]["why"].startswith("has an empty report")
    assert str(bad) in rows[1]["why"] and "val[1]" in rows[1]["where"]
    before = out.read_bytes()
    status, lines = check(capsys, root, "--out", out)
    assert status == 2 and lines == [
        f"rrgtrain: {out} exists; name another file by --out, or remove it"
    ]
    assert out.read_bytes() == before


def test_settings_of_data_count_and_others_are_refused(root, tmp_path, capsys) -> None:
    status, lines = check(capsys, root, "data.longest_text=20", "--no-images")
    assert status == 1 and any("more than data.longest_text=20" in line for line in lines)
    status, lines = check(capsys, root, "data.source=nih")
    assert status == 2 and "labels.csv" in lines[0] and len(lines) == 1
    status, lines = check(capsys, root, "rl.steps=3")
    assert status == 2 and "is no setting of data" in lines[0]
    status, lines = check(capsys, root, "data.source=mix")
    assert status == 2 and "is several; check each by its own root" in lines[0]
    status, lines = check(capsys, tmp_path / "no")
    assert status == 2 and "does not exist" in lines[0]
    assert main(["data", "check"]) == 2


def test_a_stopped_check_goes_on(tmp_path, capsys, monkeypatch) -> None:
    root = table(tmp_path / "data", 200)
    real, seen = images_module.read_with_facts, []

    def stopping(path: Path) -> object:
        seen.append(path)
        if len(seen) == 150:
            raise KeyboardInterrupt
        return real(path)

    monkeypatch.setattr(images_module, "read_with_facts", stopping)
    assert main(["data", "check", str(root)]) == 130
    assert capsys.readouterr().err.splitlines()[-1] == "rrgtrain: interrupted"
    again: list[Path] = []
    monkeypatch.setattr(
        images_module, "read_with_facts", lambda path: (again.append(path), real(path))[1]
    )
    assert check(capsys, root)[0] == 0
    assert len(again) == 200 - 2 * images_module.CHUNK, "the whole chunks before the 150th"


MARKED = [source for source in every_source().values() if source.marks]


@pytest.mark.parametrize("source", MARKED, ids=lambda source: source.name)
def test_a_layout_is_known_by_its_files(source, tmp_path) -> None:
    for mark in source.marks:
        root = tmp_path / mark.replace("/", "_").replace("*", "+")
        file = root / mark.replace("*", "240401")
        file.parent.mkdir(parents=True)
        file.write_text("")
        assert guess_source(root) == source.name
        (root / "annotation.json").write_text("{}")
        assert guess_source(root) == source.name


def test_annotations_are_told_apart(tmp_path) -> None:
    entry = {"id": "a", "study_id": 1, "subject_id": 2, "report": "x", "image_path": ["a.jpg"]}
    (tmp_path / "annotation.json").write_text(json.dumps({"train": [entry]}))
    assert guess_source(tmp_path) == "r2gen_mimic"
    del entry["subject_id"], entry["study_id"]
    (tmp_path / "annotation.json").write_text(json.dumps({"train": [entry]}))
    assert guess_source(tmp_path) == "iu_xray"


def test_a_layout_that_is_none_or_two_is_told(tmp_path) -> None:
    with pytest.raises(UserError, match=r"no layout is recognised .*data.source=.*mimic_cxr"):
        guess_source(tmp_path)
    (tmp_path / "mine.csv").write_text("")
    assert guess_source(tmp_path) == "table"
    (tmp_path / "other.jsonl").write_text("")
    with pytest.raises(UserError, match=r"no layout is recognised"):
        guess_source(tmp_path)
    (tmp_path / "labels.csv").write_text("")
    (tmp_path / "NLMCXR_reports").mkdir()
    with pytest.raises(UserError, match=r"looks like nih and open_i; name it by data.source"):
        guess_source(tmp_path)


@pytest.mark.realdata
@pytest.mark.skipif(not REAL.is_dir(), reason=f"no real data at {REAL}; set RRG_DATA")
def test_real_data(capsys) -> None:
    status, lines = check(capsys, REAL / "iu_xray", "data.images=none")
    assert status == 0
    for row in ("train 1,800 2,069 0 -", "val 296 296 0 -", "test 269 590 0 -"):
        assert row in lines
    (normal,) = [line for line in lines if line.startswith("No Finding ")]
    assert 30 < float(normal.split()[2].rstrip("%")) < 80
    status, lines = check(capsys, REAL / "iu_xray", "--no-images")
    assert status == 1 and "broken studies: 2,365" in lines
    status, lines = check(capsys, REAL / "nih_starter")
    assert status == 0 and "PNG 8 bits 16 1024 1024" in lines
    assert any("10 of 26 images" in line for line in lines)
