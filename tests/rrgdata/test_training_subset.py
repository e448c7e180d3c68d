"""Test the training studies that reinforcement learning sees, and refusals."""

from __future__ import annotations

import json
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from rrgclinical import Labeller, build_labeller
from rrgclinical.labels import OBSERVATIONS
from rrgdata import Catalogue
from rrgdata.load import join_splits, leave_out_crowded, one_image_each, open_studies
from rrgdata.study import ImageRef, Study
from rrgdata.training_subset import Subset, balanced, training_subset
from rrgtrain.errors import UserError
from rrgtrain.schema import Recipe
from tests.rrgtrain.common import recipe, studies

RULES = build_labeller("rules")


def written(path: Path, *chosen: str) -> str:
    Subset("random", 0.5, 0, list(chosen)).save(path)
    return f"data.subset={path}"


def subset_of(asked: Recipe, given: list[Study], labeller: Labeller) -> list[Study]:
    return training_subset(asked.data, asked.seed, given, labeller)


def test_nothing_asked_for_is_all() -> None:
    assert subset_of(recipe(), studies(7), RULES) == studies(7)


def test_a_subset_keeps_the_order_of_the_data(tmp_path) -> None:
    asked = written(tmp_path / "subset.json", "train-5", "train-1")
    found = subset_of(recipe(asked), studies(7), RULES)
    assert [study.id for study in found] == ["train-1", "train-5"]
    folder = recipe(f"data.subset={tmp_path}")
    assert subset_of(folder, studies(7), RULES) == found, "its directory will do"


def test_balanced_studies_by_own_labels_or_by_reports() -> None:
    given = studies(12)
    by_label = subset_of(recipe("data.balanced=5"), given, RULES)
    assert len(by_label) == 5 and all(study in given for study in by_label)
    bare = [replace(study, labels=None) for study in given]
    assert [s.id for s in subset_of(recipe("data.balanced=5"), bare, RULES)] == [
        s.id for s in by_label
    ]
    assert subset_of(recipe("data.balanced=5", "seed=9"), given, RULES) != by_label


def test_a_subset_of_other_data(tmp_path) -> None:
    asked = written(tmp_path / "s.json", "train-1", "elsewhere")
    with pytest.raises(UserError, match=r"names study elsewhere, which is not among the 7") as e:
        subset_of(recipe(asked), studies(7), RULES)
    assert "\n" not in str(e.value)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (None, "data.subset: no file .*; make one with `rrgtrain select`"),
        ("{", "is no subset file"),
        (json.dumps({"ids": ["a"]}), "is no subset file"),
        (json.dumps({"method": "random", "share": 1, "seed": 0, "chosen": []}), "names no study"),
    ],
)
def test_what_is_no_subset_is_refused(content, told, tmp_path) -> None:
    path = tmp_path / "s.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(UserError, match=told):
        subset_of(recipe(f"data.subset={path}"), studies(3), RULES)


def test_more_than_there_are() -> None:
    with pytest.raises(UserError, match="data.balanced=8, but there are 7 training studies"):
        subset_of(recipe("data.balanced=8"), studies(7), RULES)


@pytest.mark.parametrize("bare", [None, "", " "])
def test_a_study_without_findings_is_in_no_balanced_draw(bare) -> None:
    given = [replace(s, report=bare) if i % 3 == 0 else s for i, s in enumerate(studies(9))]
    with pytest.warns(UserWarning, match="data.balanced leaves out 3 of 9 training studies"):
        found = subset_of(recipe("data.balanced=6"), given, RULES)
    assert [s.id for s in found] == [s.id for s in given if s.report and s.report.strip()]
    labels_alone = [replace(s, report=None) for s in studies(9)]
    assert len(subset_of(recipe("data.balanced=6"), labels_alone, RULES)) == 6


def test_reports_that_say_what_their_labels_say() -> None:
    given = studies(12)
    silent = replace(given[2], report="The heart is normal in size.")
    wrong = replace(given[3], report=f"{given[3].report} Displaced right rib fracture.")
    spoilt = [*given[:2], silent, wrong, *given[4:]]
    told = RULES.label([silent.report or "", wrong.report or ""]).tolist()
    assert told != [list(given[2].labels or ()), list(given[3].labels or ())]
    found = subset_of(recipe("data.agreeing=true"), spoilt, RULES)
    assert [s.id for s in found] == [s.id for s in given if s.id not in ("train-2", "train-3")]
    assert subset_of(recipe("data.agreeing=true"), given, RULES) == given
    both = subset_of(recipe("data.agreeing=true", "data.balanced=4"), spoilt, RULES)
    assert both == subset_of(recipe("data.balanced=4"), found, RULES)


def test_a_negative_label_agrees_with_silence_and_an_uncertain_one_with_a_positive() -> None:
    one = studies(1)[0]
    report = "Possible left pleural effusion."
    labels = [0] * 14
    labels[OBSERVATIONS.index("Pleural Effusion")] = 1
    labels[OBSERVATIONS.index("Edema")] = 2
    study = replace(one, report=report, labels=tuple(labels))
    assert subset_of(recipe("data.agreeing=true"), [study], RULES) == [study]


@pytest.mark.parametrize("lost", ["labels", "report"])
def test_agreement_needs_both(lost) -> None:
    given = studies(4)
    bare = [*given[:2], replace(given[2], **{lost: None}), given[3]]
    told = "data.agreeing compares reports with labels, but study train-2 lacks one of them"
    with pytest.raises(UserError, match=told):
        subset_of(recipe("data.agreeing=true"), bare, RULES)


# Label-balanced draws: exact sizes, even labels, the same for a seed.
def test_rare_labels_are_drawn_as_often_as_common_ones() -> None:
    rng = np.random.default_rng(0)
    positive = rng.random((600, 5)) < 0.5 ** np.arange(1, 6)
    chosen = balanced(positive, 60, seed=3)
    assert len(set(chosen)) == 60 and chosen == sorted(chosen)
    drawn, given = positive[chosen].sum(0), positive.sum(0)
    assert given.max() > 10 * given.min()
    assert drawn.max() < 2.6 * drawn.min()
    # the rarest label sets the pace: its studies come in until they are spent
    assert drawn[4] >= min(given[4], 12)
    assert positive[chosen].any(1).all(), "studies without a label are drawn last"


def test_by_hand() -> None:
    positive = np.array([[1, 0], [1, 0], [1, 0], [0, 1], [0, 0]], dtype=bool)
    for seed in range(5):
        two = balanced(positive, 2, seed)
        assert 3 in two and len({0, 1, 2} & set(two)) == 1
        assert 4 not in balanced(positive, 4, seed)


# Splits joined, crowded studies left out, an image a sample: what EditGRPO and MRG-R1 train on.
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
def test_splits_that_cannot_be_joined(asked, told) -> None:
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


def test_a_recipe_asks_for_all_of_it(tmp_path) -> None:
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
    tmp_path, monkeypatch
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
