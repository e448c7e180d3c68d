"""PadChest-GR's own files: English sentences, the prior, the split of the table, damage."""

from __future__ import annotations

import json
from functools import partial

import pytest

from tests.rrgdata.common import broken, by_id, catalogue_of, refused, table

SOURCE = "padchest_gr"
found = partial(catalogue_of, SOURCE)


REPORTS = "grounded_reports_20240819.json"
EARLIER = "PadChest_GR_progression_prior_studies"


def entry(number, *sentences, prior=None):
    findings = [
        {
            "sentence_en": sentence,
            "sentence_es": "Sin hallazgos.",
            "abnormal": True,
            "boxes": [[0.1, 0.2, 0.3, 0.4]],
            "labels": ["nodule"],
            "progression": None,
        }
        for sentence in sentences
    ]
    return {
        "StudyID": f"s{number}",
        "ImageID": f"i{number}.png",
        "PreviousStudyID": prior and f"s{prior}",
        "PreviousImageID": prior and f"i{prior}.png",
        "findings": findings,
    }


ENTRIES = [
    entry(1, "Nodule  in the left\n lung.", "No effusion", prior=9),
    entry(2, "Cardiomegaly."),
    entry(3, "Normal!"),
    entry(4),
]
SPLITS = [
    ("s1", "train", "label a"),
    ("s1", "train", "b"),
    ("s2", "validation", ""),
    ("s3", "test", ""),
    ("s4", "test", ""),
]


def write(root, entries=ENTRIES, splits=SPLITS, inner=".", prior=True):
    (root / REPORTS).write_text(json.dumps(entries))
    rows = "".join(f"{study},x.png,{label},{split},\n" for study, split, label in splits)
    (root / "master_table.csv").write_text("StudyID,ImageID,label,split,prior_imageID\n" + rows)
    folder = root / "Padchest_GR_files" / inner
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(1, 5):
        (folder / f"i{number}.png").write_bytes(b"x")
    if prior:
        (root / EARLIER).mkdir(exist_ok=True)
        (root / EARLIER / "i9.png").write_bytes(b"x")
    return root


@pytest.mark.parametrize("inner", [".", "PadChest_GR"])
def test_sentences_are_the_report_and_the_prior_is_read(tmp_path, inner):
    catalogue = found(write(tmp_path, inner=inner), prior="last")
    studies = by_id(catalogue)
    assert {s.id: (s.split, s.report) for s in studies.values()} == {
        "s1": ("train", "Nodule in the left lung. No effusion."),
        "s2": ("val", "Cardiomegaly."),
        "s3": ("test", "Normal!"),
    }
    assert [(i.path.name, i.view, i.prior) for i in studies["s1"].images] == [
        ("i1.png", "frontal", False),
        ("i9.png", "", True),
    ]
    assert all(i.path.is_file() for s in studies.values() for i in s.images)
    assert dict(catalogue.left_out) == {"without a findings section": 1}
    assert not catalogue.broken and not catalogue.notes and studies["s1"].labels is None


def test_a_sentence_gets_a_stop_where_no_sign_ends_it_and_a_missing_one_is_counted(tmp_path):
    ends = ("", ".", "!", "?", ";", ":", "...", "…", ".)", '."', ".’", ";)", ")", " (left)", "]")
    sentences = [f"Nodule {number}{end}" for number, end in enumerate(ends)]
    signs = set(".!?;:…")
    stops = ["" if set(end) & signs else "." for end in ends]
    entries = [entry(1, None, *sentences, None), entry(2, None, "Normal."), *ENTRIES[2:]]
    catalogue = found(write(tmp_path, entries))
    assert by_id(catalogue)["s1"].report == " ".join(
        map("".join, zip(sentences, stops, strict=True))
    )
    (line,) = catalogue.nothing.lines()
    assert "3 texts say that nothing is there" in line and "sentence_en 'null' 3" in line


def test_a_prior_that_the_table_alone_names_is_read(tmp_path):
    write(tmp_path)
    table = tmp_path / "master_table.csv"
    table.write_text(
        table.read_text().replace("s2,x.png,,validation,", "s2,x.png,,validation,i1.png")
    )
    (study,) = found(tmp_path, prior="last").studies["val"]
    assert [image.path.name for image in study.images] == ["i2.png", "i1.png"]


def test_views_and_sections_that_are_wanted(tmp_path):
    write(tmp_path)
    frontal = by_id(found(tmp_path, images="frontal", sections="both"))
    assert [[i.prior for i in s.images] for s in frontal.values()] == [[False]] * 3
    refused(SOURCE, tmp_path, "has no impressions", sections="impression")
    for image in (tmp_path / "Padchest_GR_files").iterdir():
        image.unlink()
    refused(SOURCE, tmp_path, "has none of the images", "data.images=none")
    assert len(by_id(found(tmp_path, images="none"))) == 3


@pytest.mark.parametrize(("change", "why"), table("damaged studies of PadChest-GR"))
def test_a_damaged_study_is_broken_and_the_others_are_read(tmp_path, change, why):
    entries = [ENTRIES[0], ENTRIES[2], ENTRIES[1] | change]
    broken(found(write(tmp_path, entries)), f"{REPORTS}: [2]", why)


def test_a_table_of_two_minds_is_broken(tmp_path):
    catalogue = found(write(tmp_path, splits=[*SPLITS, ("s1", "test", "")]))
    broken(catalogue, "master_table.csv: row 7 (s1)", "split 'test' after 'train'")
    assert "s1" not in by_id(catalogue), "data.skip would train on a study of the test split"


def test_a_prior_is_of_the_same_split_or_of_train(tmp_path):
    entries = [
        entry(1, "A.", prior=3),
        entry(2, "B.", prior=1),
        entry(3, "C.", prior=4),
        entry(4, "D.", prior=9),
    ]
    catalogue = found(write(tmp_path, entries), prior="last")
    priors = {s.id: [i.path.name for i in s.images[1:]] for s in by_id(catalogue).values()}
    assert priors == {"s1": [], "s2": ["i1.png"], "s3": ["i4.png"], "s4": ["i9.png"]}
    assert catalogue.notes == ["1 studies are no prior of later ones, which have another split"]


def test_damaged_files_are_refused(tmp_path):
    refused(SOURCE, tmp_path, f"no file {REPORTS[:17]}")
    write(tmp_path)
    for damaged, part in (("[]", "wanted a list of studies"), ("[{", "not JSON")):
        (tmp_path / REPORTS).write_text(damaged)
        refused(SOURCE, tmp_path, REPORTS, part)
    write(tmp_path)
    (tmp_path / "master_table.csv").write_text("StudyID\ns1\n")
    refused(SOURCE, tmp_path, "no column 'split'; it has StudyID")
    (tmp_path / "master_table.csv").unlink()
    refused(SOURCE, tmp_path, "master_table.csv not found", "unpack")
