"""R2Gen's layout: what is read, and the one line told about each way it can be broken."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import pytest
from PIL import Image

from rrgtrain.errors import UserError
from tests.rrgdata.common import studies_under, told


def entry(name="CXR1_IM-0001", **changes):
    return {
        "id": name,
        "report": "The heart is normal in size.",
        "split": "train",
        "image_path": [f"{name}/0.png", f"{name}/1.png"],
        **changes,
    }


def write(root, annotation=None, images=True, folder="images"):
    annotation = {"train": [entry()]} if annotation is None else annotation
    (root / "annotation.json").write_text(json.dumps(annotation), encoding="utf-8")
    if images:
        for entries in annotation.values():
            for one in entries:
                for path in one.get("image_path", []):
                    file = root / folder / path
                    file.parent.mkdir(parents=True, exist_ok=True)
                    Image.new("L", (2, 2)).save(file)
    return root


refused = partial(told, "iu_xray")


@pytest.mark.parametrize("folder", ["images", "."])
def test_images_are_found_under_images_or_beside_the_annotation(tmp_path, folder):
    study = studies_under("iu_xray", write(tmp_path, folder=folder))["train"][0]
    assert [(i.view, i.prior) for i in study.images] == [("frontal", False), ("lateral", False)]
    assert all(i.path.is_file() for i in study.images)
    assert study.labels is None and study.report == "The heart is normal in size."


def test_order_and_split_follow_the_lists(tmp_path):
    annotation = {"train": [entry("b"), entry("a")], "test": [entry("c", split="train")]}
    studies = studies_under("iu_xray", write(tmp_path, annotation))
    ids = {split: [s.id for s in kept] for split, kept in studies.items()}
    assert ids == {"train": ["b", "a"], "test": ["c"]}
    assert studies["test"][0].split == "test"


def test_views_and_priors(tmp_path):
    changes = {
        "image_path": ["x/0.png", "x/1.png", "x/2.png"],
        "views": ["lateral", "prior frontal", "frontal"],
    }
    write(tmp_path, {"train": [entry(**changes)]})
    images = studies_under("iu_xray", tmp_path)["train"][0].images
    assert [(i.view, i.prior) for i in images] == [
        ("lateral", False),
        ("frontal", True),
        ("frontal", False),
    ]
    only = studies_under("iu_xray", tmp_path, images="frontal")["train"][0].images
    assert [i.path.name for i in only] == ["2.png"]


def test_sections_join_on_the_study_and_the_entry_wins(tmp_path):
    write(tmp_path, {"train": [entry(technique="PA."), entry("CXR2_IM-9")]})
    (tmp_path / "sections.jsonl").write_text(
        '{"id": "CXR1", "indication": " Cough. ", "technique": "AP.", "comparison": null}\n\n'
    )
    first, second = studies_under("iu_xray", tmp_path)["train"]
    assert (first.indication, first.technique, first.comparison) == ("Cough.", "PA.", "")
    assert second.indication == ""


def test_labels(tmp_path):
    labels = [0, 1, 2, 3] + [0] * 10
    write(tmp_path, {"train": [entry(labels=labels), entry("z", labels=None)]})
    first, second = studies_under("iu_xray", tmp_path)["train"]
    assert first.labels == tuple(labels) and second.labels is None


def test_without_images_none_are_looked_for(tmp_path):
    bare = entry()
    del bare["image_path"]
    write(tmp_path, {"train": [bare, entry("b", image_path=["../../x.png"])]}, images=False)
    assert [s.images for s in studies_under("iu_xray", tmp_path, images="none")["train"]] == [
        (),
        (),
    ]


def test_missing_image_is_named_and_the_rest_counted(tmp_path):
    write(tmp_path, {"train": [entry(), entry("CXR2")]}, images=False)
    refused(
        tmp_path, "train[0] (CXR1_IM-0001)", "CXR1_IM-0001/0.png", "images=none", "(and 1 more)"
    )


@pytest.mark.parametrize("path", ["../secret.png", "/etc/hosts", "a/../../secret.png"])
def test_image_outside_the_root(tmp_path, path):
    root = tmp_path / "data"
    root.mkdir()
    Image.new("L", (2, 2)).save(tmp_path / "secret.png")
    write(root, {"train": [entry(image_path=[path])]}, images=False)
    refused(root, repr(path), "outside")


BROKEN: list[tuple[dict[str, list[Any]], tuple[str, ...]]] = [
    *(
        (
            {"train": [entry(labels=[0, 0, value] + [0] * 11)]},
            ("train[0]", f"label {value!r} for Lung Opacity", "0 blank, 1 positive"),
        )
        for value in (4, -1, 1.0, "1", True, None)
    ),
    ({"train": [entry(labels=[0] * 13)]}, ("13 of them", "14 class ids")),
    *(
        ({"train": [entry(), entry("x", report=report)]}, ("train[1] (x)", "empty report"))
        for report in ("", "  \n\t")
    ),
    *(
        ({"train": [entry(report=report)]}, ("as report; wanted text",))
        for report in (None, 3, ["a"], {"a": 1})
    ),
    *(
        ({"train": [entry(id=value)]}, ("train[0] has id", "wanted a name"))
        for value in ("", " ", None, 1.5, ["a"])
    ),
    ({"train": [entry()], "test": [entry()]}, ("test[0]", "repeats the id", "train[0]")),
    ({"train": [entry()], "dev": [entry("b")]}, ("split 'dev'", "train, val, test")),
    ({"train": [entry(views=["frontal"])]}, ("for 2 images",)),
    ({"train": [entry(views=["frontal", "oblique"])]}, ("'oblique'",)),
    ({"train": [entry(indication=["a"])]}, ("a list as indication",)),
    ({"train": [entry(report="h\ud800eart")]}, ("not Unicode",)),
    *(
        ({"val": [{k: v for k, v in entry().items() if k != key}]}, (f"val[0] lacks {key}",))
        for key in ("id", "report", "image_path")
    ),
    *(
        ({"train": [entry(image_path=paths)]}, ("image_path", "wanted a list of paths"))
        for paths in ([], "a.png", [3], [""], None)
    ),
]


@pytest.mark.parametrize(("annotation", "parts"), BROKEN)
def test_what_is_wrong_with_an_entry_is_named(tmp_path, annotation, parts):
    write(tmp_path, {"train": [entry(), entry("x"), entry("b")]})
    (tmp_path / "annotation.json").write_text(json.dumps(annotation))
    refused(tmp_path, *parts)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ('{"train": [', "line 1"),
        ("[]", "wanted an"),
        ("{}", "wanted an"),
        ('{"train": 3}', "a number"),
        ('{"train": [3]}', "train[0] is a number"),
        ('{"train": [], "train": []}', "stands twice"),
    ],
)
def test_annotation_that_is_not_one(tmp_path, text, part):
    (tmp_path / "annotation.json").write_text(text)
    refused(tmp_path, "annotation.json", part)


def test_frontal_is_asked_for_but_missing(tmp_path):
    write(tmp_path, {"train": [entry(views=["lateral", "prior frontal"])]})
    refused(tmp_path, "no frontal", images="frontal")
    assert len(studies_under("iu_xray", tmp_path)["train"][0].images) == 2


@pytest.mark.parametrize(
    ("line", "part"),
    [("{", "line 2"), ('{"id": 3}', "line 2 has no id"), ('{"id": "CXR1"}', "repeats the id")],
)
def test_broken_sections(tmp_path, line, part):
    write(tmp_path)
    (tmp_path / "sections.jsonl").write_text('{"id": "CXR1"}\n' + line)
    refused(tmp_path, "sections.jsonl", part)


def test_no_annotation_no_directory_no_source(tmp_path):
    refused(tmp_path, "annotation.json not found")
    for path in (tmp_path / "absent", __file__):
        with pytest.raises(UserError, match="wanted the directory"):
            studies_under("iu_xray", path)
    with pytest.raises(UserError, match=r"'mimic' is unknown; did you mean mimic_cxr\?.* iu_xray"):
        studies_under("mimic", tmp_path)
    with pytest.raises(UserError, match=r"images='some'"):
        studies_under("iu_xray", tmp_path, images="some")
