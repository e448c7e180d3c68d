"""A checkpoint says what it was trained for; what is set goes before it, with a warning."""

from __future__ import annotations

import json
import shutil
import sys
import warnings
from pathlib import Path

import pytest

from rrgclinical.common.files import file_digest
from rrgpolicy.model.load import load_policy, read_config
from rrgpolicy.model.policy import Policy, add_lora
from rrgtrain.config import load_config
from rrgtrain.errors import UserError
from rrgtrain.run.export import export_checkpoint
from rrgtrain.schema import LoraSettings, Recipe
from rrgtrain.state.identity import start_files
from rrgtrain.state.remembered import (
    BASE,
    BASE_FILES,
    FILE,
    PROMPT_FILE,
    as_trained,
    base_files,
    file_digests,
    remembered,
    require_base,
)
from rrgtrain.train import save_policy
from tests.rrgpolicy.model.common import tiny_directory
from tests.rrgtrain.common import recipe, remember


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


def test_what_is_not_set_is_as_it_was_trained(checkpoint, capsys):
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


def test_template_values_priors_and_the_place_of_reports_are_remembered(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    asked = ["data.source=mimic_cxr", "data.root=jpg", "data.reports=texts", "data.prior=last"]
    asked += ["policy.chat_template_kwargs={enable_thinking: true, depth: 012, date: null}"]
    asked += ["data.boxes=true", "data.mix={a: {source: mimic_cxr, root: x, reports: texts}}"]
    remember(load_config(Recipe, "editgrpo", asked), tmp_path)
    taken = used(tmp_path, "editgrpo")
    assert (taken.data.source, taken.data.prior) == ("mimic_cxr", "last")
    places = [str(tmp_path / name) for name in ("jpg", "texts")]
    assert [taken.data.root, taken.data.reports] == places
    assert taken.data.boxes and taken.data.mix["a"].reports == places[1]
    kwargs = {"enable_thinking": True, "depth": "012", "date": None}
    assert taken.policy.chat_template_kwargs == kwargs


def test_phantoms_and_samples_are_those_it_was_trained_on(tmp_path, capsys):
    trained = ["data.each_image=true", "data.max_images=2", "data.splits={train: train+val}"]
    asked = load_config(Recipe, "learning", trained)
    remember(asked, tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        data = used(tmp_path, "editgrpo").data
    assert (data.each_image, data.max_images, data.splits) == (True, 2, {"train": "train+val"})
    assert data.phantom == asked.data.phantom != Recipe().data.phantom
    assert "data.phantom.omit=0.93" in capsys.readouterr().err


def test_a_checkpoint_from_elsewhere_changes_nothing(tmp_path, capsys):
    assert used(tmp_path, "editgrpo") == load_config(Recipe, "editgrpo", [])
    assert remembered("Qwen/Qwen2.5-VL-3B-Instruct") == {}
    assert capsys.readouterr().err == ""


def test_a_checkpoint_names_no_code_and_nobody_s_file(tmp_path, monkeypatch):
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


# Digests of a checkpoint's files tell exchanged weights, whatever they are called.
WEIGHTS = "model.safetensors"


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny_directory(), tmp_path / "copied"))


@pytest.fixture
def adapted(copied: Path) -> Policy:
    """An adapter on the copy."""
    policy = load_policy(copied)
    add_lora(policy, LoraSettings(rank=2), seed=0)
    return policy


def changed(before: dict[str, str], now: dict[str, str]) -> set[str]:
    return {name for name in before | now if before.get(name) != now.get(name)}


def test_one_byte_of_a_small_file_and_the_size_of_any(copied: Path) -> None:
    before = file_digests(str(tiny_directory()))
    assert {WEIGHTS, "config.json", "tokenizer.json"} <= before.keys()
    assert file_digests(str(copied)) == before, "wherever it lies"
    # a note of what it was trained with, which may be deleted; a picture
    (copied / FILE).write_text("{}")
    (copied / "curve.png").write_bytes(b"\x89")
    assert file_digests(str(copied)) == before
    with (copied / WEIGHTS).open("r+b") as file:
        file.seek(-1, 2)
        last = file.read(1)
        file.seek(-1, 2)
        file.write(bytes([last[0] ^ 1]))
    assert changed(before, file_digests(str(copied))) == {WEIGHTS}
    (copied / "new.bin").write_bytes(bytes(1 << 23))
    longer = file_digests(str(copied))
    (copied / "new.bin").write_bytes(bytes((1 << 23) + 1))
    assert changed(longer, file_digests(str(copied))) == {"new.bin"}


def test_blocks_along_a_large_file(tmp_path: Path) -> None:
    file = tmp_path / "pytorch_model.bin"
    file.write_bytes(bytes(64 << 20))
    before = file_digests(str(tmp_path))
    for place in range(0, 64 << 20, 9 << 20):  # trained weights differ all along
        with file.open("r+b") as stream:
            stream.seek(place)
            stream.write(b"\x01" * (1 << 20))
        now = file_digests(str(tmp_path))
        assert now != before, place
        before = now


def test_of_other_files_every_byte_counts(tmp_path: Path) -> None:
    """A tokenizer, or a table of indications, of more than 4 MiB may change in one row."""
    file = tmp_path / "tokenizer.json"
    file.write_bytes(bytes(20 << 20))
    before = file_digest(file)
    with file.open("r+b") as stream:
        stream.seek((10 << 20) + (200 << 10))  # between two blocks
        stream.write(b"\x01")
    assert file_digest(file) != before


def test_an_adapter_stands_on_its_base(copied: Path, adapted: Policy, tmp_path: Path) -> None:
    adapter = Path(adapted.save(tmp_path / "adapter"))
    before = file_digests(str(adapter))
    assert {"adapter_model.safetensors", f"{WEIGHTS} of its base"} <= before.keys()
    (copied / WEIGHTS).write_bytes(b"another")
    assert changed(before, file_digests(str(adapter))) == {f"{WEIGHTS} of its base"}
    settings = json.loads((adapter / "adapter_config.json").read_text())
    settings["base_model_name_or_path"] = None
    (adapter / "adapter_config.json").write_text(json.dumps(settings))
    with pytest.raises(UserError, match="names no base; set base_model_name_or_path"):
        file_digests(str(adapter))


def test_an_adapter_on_another_base_is_refused(copied, adapted, tmp_path):
    """It was decoded, exported and trained on with whatever lay at its base's place by then."""
    adapter = str(adapted.save(tmp_path / "adapter"))
    (tmp_path / "adapter" / FILE).write_text(json.dumps(base_files(adapter)))
    require_base(adapter)
    require_base(str(copied))
    for name in (FILE, "vocab.json", "generation_config.json"):  # as a download goes on
        (copied / name).write_text("{}")
    require_base(adapter)
    (copied / WEIGHTS).write_bytes((copied / WEIGHTS).read_bytes()[:-1] + b"?")
    told = f"^{copied} has other files than when the adapter in {adapter} was trained on it; "
    told += f"put them back: {WEIGHTS}$"
    with pytest.raises(UserError, match=told):
        require_base(adapter)
    with pytest.raises(UserError, match=told):
        export_checkpoint(adapter, tmp_path / "out", merge=True)
    shutil.rmtree(copied)
    told = f"the adapter in {adapter} is of {copied}, which is no checkpoint directory seen from"
    with pytest.raises(UserError, match=told):
        read_config(adapter)
    (tmp_path / "adapter" / FILE).unlink()
    require_base(adapter)


def test_an_adapter_is_saved_though_its_base_is_gone(copied, adapted, tmp_path):
    save_policy(adapted, tmp_path / "before", {})
    assert BASE_FILES in json.loads((tmp_path / "before" / FILE).read_text())
    shutil.rmtree(copied)
    save_policy(adapted, tmp_path / "after", {})
    assert json.loads((tmp_path / "after" / FILE).read_text()) == {}
    assert (tmp_path / "after" / "adapter_model.safetensors").is_file()


def begun(*words: str) -> dict[str, str]:
    asked = recipe(*words)
    return start_files(asked.policy, asked.rl, asked.reward)


def test_what_a_run_begins_from(copied: Path) -> None:
    plain = {f"policy.path: {n}": d for n, d in file_digests(str(tiny_directory())).items()}
    start = f"policy.path={tiny_directory()}"
    assert begun(start) == plain
    assert begun("policy.path=tiny", "rl.reference=base") == {}
    assert begun("policy.path=Qwen/Qwen2.5-VL-3B-Instruct") == {}
    named = begun(start, f"rl.reference={copied}")
    of_reference = {n for n in named if n.startswith("rl.reference: ")}
    assert named.keys() - of_reference == plain.keys() and len(of_reference) == len(plain)
    # a checkpoint of the trainer says what it came from
    (copied / FILE).write_text(json.dumps({BASE: str(tiny_directory())}))
    told = begun(f"policy.path={copied}", "rl.reference=base")
    base = {n.partition(": ")[2]: d for n, d in told.items() if n.startswith("rl.reference: ")}
    assert base == file_digests(str(tiny_directory()))
    # one that does not is its own start, and `check_reference` refuses it
    (copied / FILE).write_text("{}")
    told = begun(f"policy.path={copied}", "rl.reference=base")
    assert all(name.startswith("policy.path: ") for name in told)
