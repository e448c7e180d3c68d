"""Splits joined, crowded studies left out, an image a sample: what EditGRPO and MRG-R1 train on."""

from __future__ import annotations

import json
import warnings
from dataclasses import replace
from pathlib import Path

import pytest

from rrgdata import Catalogue
from rrgdata.load import join_splits, leave_out_crowded, one_image_each, open_studies
from rrgdata.study import ImageRef, Study
from rrgtrain.errors import UserError
from tests.rrgtrain.common import recipe


def study(name: str, split: str, *images: str) -> Study:
    """With images of these views; one that begins with a "p" is a prior."""
    refs = tuple(ImageRef(Path(f"{v}.png"), v.strip("p"), v.startswith("p")) for v in images)
    return Study(name, split, f"Report of {name}.", None, refs)


def of(*names: str, split: str = "train") -> list[Study]:
    return [study(name, split, "frontal", "lateral") for name in names]


DATA = {"train": of("a", "b"), "val": of("c", split="val"), "test": of("d", split="test")}


def test_splits_are_joined_and_what_was_taken_is_gone() -> None:
    found = join_splits(DATA, {"train": "train+val"})
    assert [s.id for s in found["train"]] == ["a", "b", "c"] and set(found) == {"train", "test"}
    assert {s.split for s in found["train"]} == {"train"}
    assert [s.id for s in DATA["train"]] == ["a", "b"], "the data itself stays as it was"
    assert join_splits(DATA, {}) == DATA
    moved = join_splits(DATA, {"val": "test", "test": "val"})
    assert [s.id for s in moved["val"]] == ["d"] and [s.id for s in moved["test"]] == ["c"]


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"train": "train+dev"}, "the data has no dev, it has train, val, test"),
        ({"train": "train+val", "test": "val+test"}, "val is in train already"),
        ({"train": "train+train"}, "train is in train already"),
        ({"train": "val"}, "leaves the train of the data out; name it too, as in train: train"),
    ],
)
def test_splits_that_cannot_be_joined(asked: dict[str, str], told: str) -> None:
    with pytest.raises(UserError, match=told) as caught:
        join_splits(DATA, asked)
    assert "\n" not in str(caught.value)


def test_studies_with_more_images_are_left_out_and_counted() -> None:
    crowded = study("x", "train", "frontal", "lateral", "pfrontal")
    data = {**DATA, "train": [*DATA["train"], crowded]}
    with pytest.warns(UserWarning, match=r"max_images=2 leaves out .*: train 1 of 3$"):
        found = leave_out_crowded(data, 2)
    assert [s.id for s in found["train"]] == ["a", "b"] and found["test"] == DATA["test"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert leave_out_crowded(data, 3) == data


def test_each_image_is_a_sample_with_the_report_of_its_study() -> None:
    data = {"train": [study("x", "train", "frontal", "pfrontal", "lateral")]}
    first, second = one_image_each(data)["train"]
    assert (first.id, second.id) == ("x#1", "x#2")
    assert [[i.view for i in s.images] for s in (first, second)] == [["frontal"], ["lateral"]]
    assert first.report == second.report == "Report of x."
    bare = replace(data["train"][0], images=())
    with pytest.raises(UserError, match="study x has none; use data.each_image=false"):
        one_image_each({"train": [bare]})


def test_a_recipe_asks_for_all_of_it(tmp_path: Path) -> None:
    for name in ("1.png", "2.png"):
        (tmp_path / name).write_bytes(b"not decoded here")
    entries = [
        {"id": "one", "report": "No edema.", "image_path": ["1.png"]},
        {"id": "two", "report": "Edema.", "image_path": ["1.png", "2.png"]},
    ]
    splits = {"train": entries[:1], "val": entries[1:], "test": []}
    (tmp_path / "annotation.json").write_text(json.dumps(splits))
    given = [f"data.root={tmp_path}", "data.source=iu_xray", "data.splits={train: train+val}"]
    found = open_studies(recipe(*given, "data.each_image=true").data, tmp_path)
    assert [s.id for s in found["train"]] == ["one#1", "two#1", "two#2"] and "val" not in found
    with pytest.raises(UserError, match="has none; use data.each_image=false"):
        open_studies(recipe(*given, "data.each_image=true", "data.images=none").data, tmp_path)
    with pytest.warns(UserWarning, match="max_images=1 leaves out .*: train 1 of 2"):
        few = open_studies(recipe(*given, "data.max_images=1").data, tmp_path)
    assert [s.id for s in few["train"]] == ["one"]


def test_a_study_without_a_current_image_is_listed_and_no_sample_where_broken_ones_are_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalogue = Catalogue()
    for one in (study("x", "train", "frontal"), study("y", "train", "pfrontal")):
        catalogue.add(one, f"place of {one.id}")
    monkeypatch.setattr("rrgdata.load.load_studies", lambda *_: catalogue)
    given = ["data.source=iu_xray", f"data.root={tmp_path}", "data.each_image=true"]
    with pytest.warns(UserWarning, match="leaves out 1 broken studies, .* study y has no current"):
        found = open_studies(recipe(*given, "data.skip=true").data, tmp_path)
    assert [s.id for s in found["train"]] == ["x#1"]
    assert "study y" in (tmp_path / "left_out.jsonl").read_text()
