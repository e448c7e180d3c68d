"""Whatever would stop a run later is refused before it, and only what it reads is looked at."""

from __future__ import annotations

import json
import os
import shutil
import warnings
from dataclasses import replace
from pathlib import Path

import pytest

from experiments.masking import session_of
from rrgdata.images import check as images_module
from rrgdata.images.check import ImageMemory, image_paths, look_at
from rrgdata.load import check_lengths, open_studies
from rrgdata.study import Study
from rrgtrain.algorithms import build_algorithm
from rrgtrain.cli import main
from rrgtrain.errors import UserError
from rrgtrain.rewards import RewardService
from rrgtrain.run.checked import Checked, check_settings
from rrgtrain.run.data import broken_images, check_data, split_of, validation_split
from rrgtrain.schema import Recipe
from rrgtrain.train.loader import batch_indices
from tests.rrgtrain.common import OF_PHANTOM, SMALL_POLICY, phantoms, recipe, studies

LABELS = ["reward.against=labels", "reward.terms={mccs: 1.0}"]


def data(**sizes: int) -> dict[str, list[Study]]:
    return {split: studies(count, split) for split, count in sizes.items()}


def checked(
    cfg: Recipe, given: dict[str, list[Study]], *, sft: bool = False, rl: bool = False
) -> list[str]:
    algorithm = build_algorithm(cfg) if rl else None
    check_settings(cfg, sft=sft, rl=rl)
    checked = Checked(cfg, sft=sft, algorithm=algorithm)
    return [s.id for s in check_data(checked, given, RewardService(cfg.reward))]


def from_checkpoint(*overrides: str) -> Recipe:
    return recipe("policy.path=elsewhere", *overrides)


def ids(split: str, indices: range | list[int]) -> set[str]:
    return {f"{split}-{i}" for i in indices}


def test_what_each_command_reads() -> None:
    given = data(train=10, val=4, test=5)
    everything = ids("train", range(10)) | ids("val", range(4)) | ids("test", range(5))
    assert set(checked(from_checkpoint(), given)) == ids("test", range(5))
    assert set(checked(from_checkpoint(), given, sft=True)) == everything
    assert set(checked(recipe(), given)) == ids("test", range(5)) | ids("train", range(10))
    assert set(checked(recipe(), given, sft=True, rl=True)) == everything


def test_reinforcement_learning_reads_the_studies_that_it_reaches() -> None:
    given = data(train=40, val=4, test=5)
    cfg = from_checkpoint("rl.steps=2", "rl.prompts=3", "eval.limit=2")
    reached = [i for step in range(2) for i in batch_indices(40, 3, step, cfg.seed)]
    wanted = ids("train", reached) | ids("val", range(2)) | ids("test", range(2))
    found = checked(cfg, given, rl=True)
    assert set(found) == wanted and len(found) == len(wanted)


def test_a_split_without_studies() -> None:
    given = data(train=3, val=2)
    told = r"the data has no test studies, it has train \(3\), val \(2\); pass eval.split=val"
    with pytest.raises(UserError, match=told):
        checked(from_checkpoint(), given)
    with pytest.raises(UserError, match=r"no train studies, it has test \(2\); move studies"):
        checked(from_checkpoint(), data(test=2, train=0), sft=True)
    with pytest.raises(UserError, match="no val studies, it has none at all; move"):
        split_of({}, "val")
    assert checked(from_checkpoint(), data(test=2)) == ["test-0", "test-1"]


def test_without_val_checkpoints_are_chosen_on_train_and_that_is_said() -> None:
    given = data(train=4, test=2)
    assert validation_split(given) == "train" and validation_split(data(val=1)) == "val"
    with pytest.warns(UserWarning, match="no val studies; checkpoints are chosen on train"):
        checked(from_checkpoint(), given, sft=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        checked(from_checkpoint(), given)


def test_labels_alone() -> None:
    whole = data(train=4, val=2, test=2)
    given = {k: [replace(s, report=None) for s in v] for k, v in whole.items()}
    for truth in ([], LABELS):
        with pytest.raises(UserError, match=r"study train-0 has none; use rl.algorithm=dr_grpo"):
            checked(from_checkpoint("rl.algorithm=editgrpo", *truth), given, rl=True)
    told = [replace(study, report="No edema.") for study in given["train"]]
    assert checked(
        from_checkpoint("rl.algorithm=editgrpo", *LABELS), {**given, "train": told}, rl=True
    )
    assert checked(from_checkpoint("rl.algorithm=dr_grpo", *LABELS), given, rl=True)


@pytest.mark.parametrize("split", ["train", "val", "test"])
def test_one_study_without_labels_anywhere_is_found(split: str) -> None:
    given = data(train=4, val=2, test=2)
    given[split][1] = replace(given[split][1], labels=None)
    cfg = from_checkpoint("rl.algorithm=dr_grpo", "rl.steps=9", *LABELS)
    with pytest.raises(UserError, match=f"study {split}-1 has no labels, but reward.against"):
        checked(cfg, given, rl=True)


def test_a_text_of_megabytes_is_told_by_its_study() -> None:
    given = data(train=3, test=2)
    check_lengths(given, 200)
    given["test"][1] = replace(given["test"][1], indication="x" * 201)
    with pytest.raises(UserError, match=r"^study test-1: its indication has 201 characters, more"):
        check_lengths(given, 200)
    given["train"][2] = replace(given["train"][2], report="No effusion. " * 10**5)
    with pytest.raises(UserError, match=r"train-2: its report has 1,300,000 characters.*=20000;"):
        check_lengths(given, recipe().data.longest_text)
    check_lengths(given, None)
    check_lengths({}, 1)


def test_reinforcement_learning_reads_what_was_chosen_for_it() -> None:
    given = data(train=40, val=2, test=2)
    chosen = given["train"][5:9]
    cfg = from_checkpoint("rl.algorithm=dr_grpo", "rl.steps=9", "rl.prompts=4")
    algorithm, rewards = build_algorithm(cfg), RewardService(cfg.reward)
    used = check_data(Checked(cfg, algorithm=algorithm), given, rewards, chosen=chosen)
    assert {s.id for s in used if s.split == "train"} == ids("train", range(5, 9))


def test_drops_go_on_from_the_best_weights_and_want_them_kept() -> None:
    """EditGRPO's choice keeps others; the drop would train on from those."""
    given = data(train=4, val=2, test=2)
    asked = ["sft.drops=2", "sft.choose=before_convergence"]
    cfg = from_checkpoint(*asked)
    told = "sft.drops=2 goes on from the best weights, but sft.choose=before_convergence keeps oth"
    with pytest.raises(UserError, match=told) as caught:
        checked(cfg, given, sft=True)
    assert "\n" not in str(caught.value) and str(caught.value).endswith(
        "use sft.drops=0 or sft.choose=best"
    )
    assert checked(cfg, given, rl=True), "nothing is fine-tuned"
    for mended in ("sft.drops=0", "sft.choose=best"):
        assert checked(from_checkpoint(*asked, mended), given, sft=True)


# A run knows broken images from a data check, or stops in one line where it meets one.
@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Phantoms called IU X-Ray, an image of train_000003 cut short."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    copy = Path(shutil.copytree(phantoms(), tmp_path / "my data"))
    bad = bad_image(copy)
    bad.write_bytes(bad.read_bytes()[:-30])
    return copy


def bad_image(root: Path) -> Path:
    return sorted(root.glob("images/*train_000003/*.png"))[0]


def words(root: Path, *more: str) -> list[str]:
    return [*OF_PHANTOM, *SMALL_POLICY, "data.source=iu_xray", f"data.root={root}", *more]


def remember(root: Path) -> None:
    studies = open_studies(recipe(*words(root)).data, root)
    everything = [study for split in studies.values() for study in split]
    list(look_at(image_paths(everything), ImageMemory(root)))


def test_a_remembered_broken_image_stops_a_run_that_would_not_look(root, tmp_path, monkeypatch):
    monkeypatch.setattr(images_module, "SAMPLE", 0)
    remember(root)
    with pytest.raises(UserError) as caught:
        session_of(recipe(*words(root)), tmp_path / "run")
    line = str(caught.value)
    assert f"has the image {bad_image(root)}: the PNG is truncated" in line
    assert f"`rrgtrain data check '{root}'`" in line and "data.skip=true" in line
    # without images there is nothing wrong
    session_of(recipe(*words(root, "data.images=none")), tmp_path / "text")


@pytest.mark.filterwarnings("ignore:data.skip leaves out")
def test_skip_leaves_the_study_out_and_lists_it(root: Path, tmp_path: Path) -> None:
    whole = open_studies(recipe(*words(root)).data, tmp_path)
    with pytest.raises(UserError, match="data.skip=true leaves broken ones out"):
        session_of(recipe(*words(root, "data.skip=true")), tmp_path / "run")
    # what the sample met is remembered
    asked = recipe(*words(root, "data.skip=true"))
    session = session_of(asked, tmp_path / "run")
    kept = {study.id for study in session.studies["train"]}
    gone = {study.id for study in whole["train"]} - kept
    assert [name for name in gone if name.endswith("train_000003")] and len(gone) == 1
    (row,) = map(json.loads, (tmp_path / "run" / "left_out.jsonl").read_text().splitlines())
    assert "train_000003" in row["where"] and "truncated" in row["why"]
    assert sorted(broken_images(asked.data)) == [str(bad_image(root))]


def test_an_image_that_breaks_in_mid_run_stops_it_in_one_line_and_it_goes_on(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture
) -> None:
    monkeypatch.setattr(images_module, "SAMPLE", 0)
    monkeypatch.chdir(tmp_path)
    start = words(root, "policy.warmup_steps=0", "sft.steps=4", "sft.batch=3", "sft.eval_every=4")
    assert main(["sft", *start, "--out", "run"]) == 75
    line = capfd.readouterr().err.splitlines()[-1]
    assert f"{bad_image(root)}: the PNG is truncated" in line
    assert "`rrgtrain data check` finds all broken images" in line
    assert line.endswith("go on with: rrgtrain sft --resume run")
    original = next(phantoms().glob(f"images/*/{bad_image(root).name}")).parent.parent
    mended = original / bad_image(root).relative_to(root / "images")
    os.replace(shutil.copy(mended, tmp_path / "mended"), bad_image(root))
    assert main(["sft", "--resume", "run"]) == 0
