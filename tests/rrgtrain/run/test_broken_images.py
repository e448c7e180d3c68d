"""A run knows broken images from a data check, or stops in one line where it meets one."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from rrgdata.images import check as images_module
from rrgdata.images.check import ImageMemory, image_paths, look_at
from rrgdata.load import open_studies
from rrgtrain.cli import main
from rrgtrain.errors import UserError
from rrgtrain.run.data import broken_images
from rrgtrain.run.session import session_of
from tests.rrgtrain.common import OF_PHANTOM, SMALL_POLICY, phantoms, recipe


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


def test_a_remembered_broken_image_stops_a_run_that_would_not_look(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
