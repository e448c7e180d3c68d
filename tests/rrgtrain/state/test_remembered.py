"""A checkpoint says what it was trained for; what is set goes before it, with a warning."""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path

import pytest

from rrgtrain.config import load_config
from rrgtrain.errors import UserError
from rrgtrain.schema import Recipe
from rrgtrain.state.remembered import FILE, PROMPT_FILE, as_trained, remembered
from tests.rrgtrain.common import remember


@pytest.fixture
def checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    trained = ["data.source=iu_xray", "data.root=here", "data.images=none"]
    recipe = load_config(Recipe, "mrg_r1_sft", trained)
    (tmp_path / "sft").mkdir()
    remember(recipe, tmp_path / "sft")
    return tmp_path / "sft"


def used(checkpoint: Path, recipe: str, *overrides: str) -> Recipe:
    return as_trained(
        checkpoint, lambda kept: load_config(Recipe, recipe, list(overrides), defaults=kept)
    )


def test_what_is_not_set_is_as_it_was_trained(
    checkpoint: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        recipe = used(checkpoint, "editgrpo")
    assert (recipe.policy.prompt, recipe.reward.blocks) == ("think", "think_report")
    root = str(checkpoint.parent / "here")
    data = recipe.data
    assert (data.source, data.root, data.images) == ("iu_xray", root, "none")
    (line,) = capsys.readouterr().err.splitlines()
    assert line == (
        f"rrgtrain: as {checkpoint} was trained: policy.prompt=think, reward.blocks=think_report, "
        f"data.source=iu_xray, data.root={root}, data.images=none"
    )


def test_values_of_the_chat_template_are_remembered(tmp_path: Path) -> None:
    values = ["policy.chat_template_kwargs={enable_thinking: true, depth: 012, date: null}"]
    remember(load_config(Recipe, "editgrpo", values), tmp_path)
    taken = used(tmp_path, "editgrpo").policy.chat_template_kwargs
    assert taken == {"enable_thinking": True, "depth": "012", "date": None}


def test_what_is_set_goes_before_it_with_a_warning(checkpoint: Path) -> None:
    with pytest.warns(UserWarning, match="was trained with") as told:
        recipe = used(checkpoint, "editgrpo_prior", "data.images=frontal", "data.root=moved")
    assert (recipe.policy.prompt, recipe.data.images) == ("editgrpo", "frontal")
    assert (recipe.data.source, recipe.data.root) == ("iu_xray", "moved")
    assert [str(w.message) for w in told] == [
        f"{checkpoint} was trained with policy.prompt=think, and is used with "
        "policy.prompt=editgrpo",
        f"{checkpoint} was trained with data.images=none, and is used with data.images=frontal",
    ]


def test_another_data_set_takes_no_root_over(checkpoint: Path) -> None:
    with pytest.warns(UserWarning, match="was trained with") as told:
        recipe = used(checkpoint, "editgrpo", "data.source=phantom")
    (warning,) = told
    assert str(warning.message).endswith(
        "data.source=iu_xray, and is used with data.source=phantom"
    )
    assert (recipe.data.root, recipe.data.images) == (None, "all")
    assert recipe.policy.prompt == "think"


def test_priors_and_the_place_of_the_reports_are_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    asked = ["data.source=mimic_cxr", "data.root=jpg", "data.reports=texts", "data.prior=last"]
    remember(load_config(Recipe, "editgrpo", asked), tmp_path)
    data = used(tmp_path, "editgrpo").data
    assert (data.source, data.prior) == ("mimic_cxr", "last")
    assert (data.root, data.reports) == (str(tmp_path / "jpg"), str(tmp_path / "texts"))


def test_phantoms_and_samples_are_those_it_was_trained_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trained = ["data.each_image=true", "data.max_images=2", "data.splits={train: train+val}"]
    asked = load_config(Recipe, "learning", trained)
    remember(asked, tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        data = used(tmp_path, "editgrpo").data
    assert (data.each_image, data.max_images, data.splits) == (True, 2, {"train": "train+val"})
    assert data.phantom == asked.data.phantom != Recipe().data.phantom
    assert "data.phantom.omit=0.93" in capsys.readouterr().err
    with pytest.warns(UserWarning, match="was trained with") as told:
        data = used(tmp_path, "out_of_domain", "data.each_image=false").data
    assert (data.phantom.contrast, data.phantom.omit, data.each_image) == (0.7, 0.93, False)
    lines = [str(w.message) for w in told]
    assert len(lines) == 2 and lines[0].endswith("is used with data.each_image=False")
    assert "data.phantom.contrast=2.0" in lines[1] and "data.phantom.contrast=0.7" in lines[1]


def test_a_checkpoint_from_elsewhere_changes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert used(tmp_path, "editgrpo") == load_config(Recipe, "editgrpo", [])
    assert remembered("Qwen/Qwen2.5-VL-3B-Instruct") == {}
    assert capsys.readouterr().err == ""


def test_a_checkpoint_names_no_code_and_nobody_s_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stranger's checkpoint named a loader beside its weights, and `eval --from` ran it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "secret.txt").write_text("{current}")
    (tmp_path / "ck").mkdir()
    (tmp_path / "ck" / "theirs.py").write_text("def load(root, settings, catalogue): pass\n")
    (tmp_path / "ck" / PROMPT_FILE).symlink_to(tmp_path / "secret.txt")
    for key, value in (
        ("data.source", "ck.theirs:load"),
        ("data.source", "os:system"),
        ("policy.prompt", str(tmp_path / "secret.txt")),
        ("policy.prompt", "secret.txt"),
        ("policy.prompt", "../secret.txt"),
        ("policy.prompt", PROMPT_FILE),
    ):
        (tmp_path / "ck" / FILE).write_text(json.dumps({key: value, "data.root": str(tmp_path)}))
        with pytest.raises(UserError, match=f"names .*{key}={value}, which a checkpoint must not"):
            used(Path("ck"), "editgrpo")
        recipe = used(Path("ck"), "editgrpo", f"{key}={value}")
        assert (recipe.data.source, recipe.policy.prompt)[key == "policy.prompt"] == value
    assert "ck.theirs" not in sys.modules


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "cannot be read"),
        ("[1]", "cannot be read"),
        ('{"reward.blocks": "loud"}', "reward.blocks is 'loud'; wanted one of"),
        ('{"data.root": [1]}', "data.root is .* wanted text"),
    ],
)
def test_a_broken_file_is_told(content: str, message: str, tmp_path: Path) -> None:
    (tmp_path / FILE).write_text(content)
    with pytest.raises(UserError, match=message):
        used(tmp_path, "editgrpo")
