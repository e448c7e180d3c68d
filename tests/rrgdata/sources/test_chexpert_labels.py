"""CheXpert Plus: text and labels of a study are of one image, whatever the order of the lines."""

from __future__ import annotations

from itertools import permutations

import pytest

from tests.rrgdata.common import broken, by_id, catalogue_of
from tests.rrgdata.sources.test_chexpert_plus import at, labelled, row, write

SOURCE, FILE = "chexpert_plus", "findings_fixed.json"
TEXTS = {"view1_frontal": "Edema.", "view2_lateral": "Fracture.", "view3_lateral": "nan"}
LABELS = {
    "view1_frontal": {"Edema": 1.0},
    "view2_lateral": {"Fracture": 1.0},
    "view3_lateral": {"Pneumonia": 1.0},
}
FINDING_OF = {"Edema.": "Edema", "Fracture.": "Fracture"}


def path_of(view: str) -> str:
    return f"train/patient00001/study1/{view}.jpg"


def test_labels_are_those_of_the_image_whose_text_is_taken(tmp_path):
    for views in permutations(TEXTS):
        rows = [row(1, 1, v, 1, section_findings=TEXTS[v]) for v in views]
        write(tmp_path, rows, base=None)
        first = next(TEXTS[v] for v in views if TEXTS[v] != "nan")
        for lines in permutations(LABELS):
            labelled(tmp_path, FILE, [(path_of(v), LABELS[v]) for v in lines])
            catalogue = catalogue_of(SOURCE, tmp_path, images="none")
            (study,) = by_id(catalogue).values()
            assert study.report == first, (views, lines)
            positive = [n for n in ("Edema", "Fracture", "Pneumonia") if at(study.labels, n) == 1]
            assert positive == [FINDING_OF[first]], (views, lines)
            assert catalogue.notes == [
                "the images of 1 studies have different reports: the first is taken",
                f"the images of 1 studies have different labels in {FILE}: those of the image "
                "whose report is taken count",
            ]


def test_no_line_of_that_image_is_no_labels(tmp_path):
    write(tmp_path, [row(1, 1, v, 1, section_findings="Edema.") for v in TEXTS], base=None)
    labelled(tmp_path, FILE, [(path_of(v), LABELS[v]) for v in list(TEXTS)[1:]])
    catalogue = catalogue_of(SOURCE, tmp_path, images="none")
    (study,) = by_id(catalogue).values()
    assert study.labels is None
    assert catalogue.notes[0].startswith(f"1 studies have no labels: {FILE} has no line of the")
    # equal reports and labels are no note
    labelled(tmp_path, FILE, [(path_of(v), {"Edema": 1.0}) for v in TEXTS])
    assert catalogue_of(SOURCE, tmp_path, images="none").notes == []
    # a line of the study alone is of all its images
    labelled(tmp_path, FILE, [("train/patient00001/study1", {"Edema": 1.0})])
    (study,) = by_id(catalogue_of(SOURCE, tmp_path, images="none")).values()
    assert at(study.labels, "Edema") == 1


def test_an_image_of_two_lines_that_differ_is_told(tmp_path):
    write(tmp_path, [row(1, 1, "view1_frontal", 1, section_findings="Edema.")], base=None)
    lines = [(path_of("view1_frontal"), {"Edema": value}) for value in (1.0, 0.0)]
    labelled(tmp_path, FILE, lines)
    broken(catalogue_of(SOURCE, tmp_path, images="none"), f"{FILE}: line 2", "has other labels")


@pytest.mark.parametrize("sections", ["findings", "impression", "both"])
def test_no_text_is_made_of_two_images(tmp_path, sections):
    """With both, an image that has both sections goes before an earlier one that has one."""
    texts = {"findings": ("", "B.", "C."), "impression": ("a.", "", "c.")}
    rows = [
        row(1, 1, view, 1, section_findings=f, section_impression=i, section_comparison=view)
        for view, f, i in zip(TEXTS, *texts.values(), strict=True)
    ]
    wanted = {"findings": ("B.", 1), "impression": ("a.", 0), "both": ("C. c.", 2)}[sections]
    write(tmp_path, rows, base=None)
    (study,) = by_id(catalogue_of(SOURCE, tmp_path, images="none", sections=sections)).values()
    assert (study.report, study.comparison) == (wanted[0], list(TEXTS)[wanted[1]])
