"""Values of `${oc.env:KEY}` and keys typed into an address are in no output and no file."""

from __future__ import annotations

import base64
import csv
import gzip
import json
import os
import re
import stat
import warnings
from pathlib import Path

import pytest
from PIL import Image

import rrgtrain
from rrgclinical.common.shown import hidden, redacted, shown_url, without
from rrgclinical.store import Store
from rrgdata.file_memory import FileMemory
from rrgtrain.cli import main
from rrgtrain.config import dump_config, load_config
from rrgtrain.errors import UserError
from rrgtrain.schema import Recipe
from rrgtrain.schema.keys import settings
from rrgtrain.state.remembered import FILE, remembered
from tests.rrgtrain.common import SMALL_POLICY, remember
from tests.rrgtrain.runs import TINY_RUN

TEXT, NUMBER = "sk-VERY/SECRET'é&123", "-98765432109"
TINY = [*TINY_RUN, "deterministic=false"]
WRITTEN = "${oc.env:MY_SECRET}"


def value_of(key: str, kind: str, free: bool) -> str:
    """Write the interpolation where a setting of this type holds a value."""
    if key == "reward.options":
        return f"{{green: {{endpoint: '{WRITTEN}', model: '{WRITTEN}'}}}}"
    if free:
        return f"{{a: '{WRITTEN}'}}"
    return f"['{WRITTEN}']" if "list" in kind else f"'{WRITTEN}'"


@pytest.mark.parametrize("secret", [TEXT, NUMBER])
def test_no_setting_shows_the_value_of_an_interpolation(secret, tmp_path, monkeypatch):
    monkeypatch.setenv("MY_SECRET", secret)
    shown, silent, taken = {}, [], []
    dumped, file = tmp_path / "config.yaml", tmp_path / "own.yaml"
    # a number may be taken where a number is wanted; text is tried with every setting
    read = [s for s in settings(Recipe) if secret == TEXT or "number" in s.type]
    for number, setting in enumerate(read):
        value = value_of(setting.key, setting.type, setting.free)
        section, _, name = setting.key.rpartition(".")
        nested = f"{name}: {value}\n"
        for part in reversed(section.split(".") if section else []):
            nested = f"{part}: {{{nested.strip()}}}\n"
        file.write_text(nested)
        # some from a file: what differs is the place alone
        ways = [(None, [f"{setting.key}={value}"]), *([(file, [])] if number % 8 == 0 else [])]
        for recipe, overrides in ways:
            try:
                load_config(Recipe, recipe, overrides)
                taken += overrides
            except UserError as error:
                text = str(error)
                silent += [] if WRITTEN in text else [(setting.key, text)]
                if secret in text or repr(secret)[1:-1] in text:
                    shown[setting.key] = text
    assert shown == {} and silent == []
    assert (20 if secret == TEXT else 1) < len(taken) < number
    dump_config(load_config(Recipe, None, taken), dumped)
    assert dumped.read_text().count(WRITTEN) >= len(taken)
    assert secret not in dumped.read_text() and "VERY" not in dumped.read_text()


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ("${oc.env:${oc.env:MY_SECRET}}", "Environment variable"),
        ("${oc.decode:${oc.env:MY_SECRET}}", "rl.steps"),
        ("${data}", "rl.steps is ${data}, which stands for something else than"),
        ("a ${oc.env:MY_SECRET} b", "rl.steps is a ${oc.env:MY_SECRET} b, which stands for"),
    ],
)
def test_an_interpolation_within_another_is_shown_as_written(written, told, monkeypatch):
    monkeypatch.setenv("MY_SECRET", TEXT)
    with pytest.raises(UserError) as caught:
        load_config(Recipe, None, [f"rl.steps='{written}'"])
    line = str(caught.value)
    assert told in line and "SECRET'" not in line and "phantom" not in line


def leaks(folder: Path, text: str) -> list[str]:
    """List the files, and the output, that hold the secret in any form."""
    forms = (TEXT, repr(TEXT)[1:-1], json.dumps(TEXT)[1:-1])
    found = [f"output: {text[:600]}"] if any(form in text for form in forms) else []
    for path in folder.rglob("*"):
        if path.is_file():
            content = path.read_bytes()
            content = gzip.decompress(content) if path.suffix == ".gz" else content
            found += [str(path)] if any(form.encode() in content for form in forms) else []
    return found


ASKED = (
    *("policy.path", "policy.prompt", "rl.algorithm", "rl.reference", "edit.extractor"),
    *("data.root", "data.reports", "data.subset", "data.columns", "data.splits", "eval.best_by"),
    *("reward.labeller", "reward.extractor", "reward.device", "reward.options", "reward.terms"),
    *("eval.template", "eval.training_reports", "rollout.url", "token_weights.labeller"),
    *("log.wandb", "log.trackers", "sft.template", "data.source"),
)


@pytest.mark.filterwarnings("ignore")
def test_no_run_shows_or_keeps_the_value_of_an_interpolation(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("MY_SECRET", TEXT)
    monkeypatch.chdir(tmp_path)
    kinds = {setting.key: setting for setting in settings(Recipe)}
    found = {}
    needs = {"data.root": ["data.source=iu_xray"], "rollout.url": ["rollout.engine=vllm_server"]}
    for number, key in enumerate(ASKED):
        value = value_of(key, kinds[key].type, kinds[key].free)
        run = ["rl", "dr_grpo", "--from", "none", "--out", str(tmp_path / str(number))]
        for words in (run, ["plan"]):
            main([*words, *TINY, *needs.get(key, []), f"{key}={value}"])
        out, err = capsys.readouterr()
        found |= {key: lost} if (lost := leaks(tmp_path, out + err)) else {}
    assert found == {}


def test_a_checkpoint_neither_keeps_nor_asks_for_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("MY_SECRET", str(tmp_path / "SECRET"))
    (tmp_path / "SECRET").write_text("Report {current}.")
    overrides = ["data.source=iu_xray", f"data.root='{WRITTEN}'", f"policy.prompt='{WRITTEN}'"]
    asked = load_config(Recipe, None, [*overrides, f"data.splits={{train: '{WRITTEN}'}}"])
    remember(asked, tmp_path)
    text = (tmp_path / FILE).read_text()
    assert 'SECRET"' not in text and text.count(WRITTEN) == 2
    with pytest.warns(UserWarning, match=r"data.root, data.splits stands for"):
        kept = remembered(tmp_path)
    assert kept["data.source"] == "iu_xray" and "data.root" not in kept
    # the prompt itself lies in the checkpoint, whatever its place was called
    assert Path(kept["policy.prompt"]).read_text() == "Report {current}."
    # what was not written so is kept as it is
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        asked = load_config(Recipe, None, ["data.splits={train: train+val}"])
        remember(asked, tmp_path)
        assert remembered(tmp_path)["data.splits"] == {"train": "train+val"}


@pytest.mark.parametrize(
    "address",
    [
        "http://me:PASSWORD9@h/v1",
        "http://h/v1?api-key=PASSWORD9",
        "http://h/v1?access_token=PASSWORD9&x=1",
        "http://h/PASSWORD9abcdef/v1",
        "http://h/v1/sk-PASSWORD9",
        "https://h:8000/my-secret-PASSWORD9/v1",
    ],
)
def test_a_key_in_an_address_is_for_the_owner_alone(address: str, tmp_path: Path) -> None:
    assert "PASSWORD9" not in shown_url(address) + redacted(f"x {address} 'y'")
    assert redacted("see http://localhost:8000/v1/chat/completions?x=1 now").count("***") == 0
    given = f"reward.options.green.endpoint={address}"
    file = tmp_path / "config.yaml"
    dump_config(load_config(Recipe, None, [given]), file)
    assert "PASSWORD9" in file.read_text(), "a resume needs it"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    dump_config(load_config(Recipe, None, ["reward.options.green.endpoint=http://h/v1"]), file)
    assert stat.S_IMODE(file.stat().st_mode) & 0o044
    for wrong in (given.replace("options.green.endpoint", "labelled"), f"rl.steps={address}"):
        with pytest.raises(UserError) as caught:
            load_config(Recipe, None, [wrong])
        assert "PASSWORD9" not in str(caught.value)


def test_a_server_s_echo_of_a_key_is_hidden_whole_in_part_and_encoded() -> None:
    key = "k3y-of-Mine-77aZ"
    assert without(f"no {key}, {key[:9]}****{key[-6:]}", [key]) == "no ***, **********"
    for before in ("", "x", "xy", "Bearer ", "me:"):
        encoded = base64.b64encode(f"{before}{key}:zz".encode()).decode()
        shown = without(f"no {encoded} here", [key])
        begin, end = len(before) * 4 // 3 + 2, (len(before) + len(key)) * 4 // 3 - 2
        assert encoded[begin : begin + 4] not in shown and encoded[end - 4 : end] not in shown
    assert without("all is well", ["", key]) == hidden("all is well") == "all is well"


def test_no_recipe_is_copied_without_what_was_written() -> None:
    """`dataclasses.replace` forgets `${...}`, so that its values are kept; `replaced` does not."""
    root = Path(rrgtrain.__file__).parent
    copied = re.compile(r"\breplace\(\s*[\w.]*recipe,")
    assert [str(f) for f in root.rglob("*.py") if copied.search(f.read_text())] == []


# Text of reports is readable by its owner alone, and one page names every place where it ends.
CANARIES = {"report": "zanzibarium", "indication": "quokkaitis", "id": "study-xyzzy"}
PAGE = Path(__file__).parents[2] / "docs" / "warnings.md"


def readable_by_others(folder: Path) -> list[str]:
    return [str(p) for p in folder.rglob("*") if p.is_file() and p.stat().st_mode & 0o077]


@pytest.mark.usefixtures("at_home")
def test_caches_are_private_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        Store(tmp_path / "store", "model").put("key", b"text of a report")
        memory = FileMemory("reports", tmp_path, "1", "nothing is kept")
        memory.keep([(tmp_path / "a", (1, 1), "text of a report")])
    finally:
        os.umask(before)
    assert memory.path.is_file() and readable_by_others(tmp_path) == []
    assert memory.path.parent.stat().st_mode & 0o077 == 0


def table(folder: Path) -> Path:
    """Write a table of studies whose texts hold the canaries."""
    Image.linear_gradient("L").resize((64, 48)).save(folder / "image.png")
    with (folder / "data.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["id", "split", "images", "report", "indication"])
        for number, split in enumerate(["train"] * 4 + ["val", "test"]):
            report = f"Small effusion of the {CANARIES['report']}. Lungs are clear."
            rows.writerow(
                [f"{CANARIES['id']}{number}", split, "image.png", report, CANARIES["indication"]]
            )
    return folder / "data.csv"


def places_of(word: str, *folders: Path) -> set[str]:
    """Name the files that hold a word, as the page names them."""
    found = set()
    for path in (p for folder in folders for p in folder.rglob("*") if p.is_file()):
        content = path.read_bytes()
        if path.suffix == ".gz":
            content = gzip.decompress(content)
        if word.encode() in content:
            name = {
                ".gz": "steps/*.json.gz",
                ".pt": "resume/*/state.pt",
                ".sqlite": f"{path.name.split('-')[0]}-*.sqlite",
            }
            found.add(name.get(path.suffix, path.name))
    return found


@pytest.mark.filterwarnings("ignore")
@pytest.mark.usefixtures("at_home", "few_paraphrases")
def test_whole_runs_keep_no_value_and_a_page_names_every_place_of_a_text(tmp_path, monkeypatch):
    (tmp_path / "SECRET-data").mkdir()
    (prompt := tmp_path / "SECRET-prompt.txt").write_text("Write the report of {current}")
    data = table(tmp_path / "SECRET-data")
    for name, value in {"D": str(data), "P": str(prompt), "S": "val+train"}.items():
        monkeypatch.setenv(name, value)
    asked = ["data.root=${oc.env:D}", "data.source=table", "data.workers=0"]
    asked += ["policy.prompt=${oc.env:P}", "data.splits={train: '${oc.env:S}'}"]
    small = [word for word in SMALL_POLICY if not word.startswith("data.")]
    short = ["eval.max_new_tokens=6", "rl.max_new_tokens=6", "eval.bootstrap=5", "eval.samples=1"]
    short += ["sft.steps=1", "rl.steps=1", "rl.prompts=2", "rl.group=2", "sft.batch=2"]
    tuned, trained = "runs/sft/checkpoints/sft", "runs/rl/checkpoints/editgrpo"
    before = os.umask(0o022)
    try:
        for words in (
            ["data", "check", str(data)],
            ["sft", "--out", "runs/sft", *asked, *small, *short, "checkpoint.steps=1"],
            ["rl", "--from", tuned, "--out", "runs/rl", *asked, *short, "log.records=1"],
            ["generate", tuned, ".", "--out", "runs/written.jsonl", *short[:1]],
            ["export", trained, "--out", "exported"],
        ):
            assert main(words) == 0, words
    finally:
        os.umask(before)
    assert readable_by_others(tmp_path / "runs") == [] != readable_by_others(tmp_path / "exported")
    left = [tmp_path / name for name in ("runs/sft", "runs/rl", "exported")]
    for value in ("SECRET-data", "SECRET-prompt", "val+train"):
        assert places_of(value, *left) == set()
    kept = (tmp_path / trained / FILE).read_text()
    assert all(f"${{oc.env:{name}}}" in kept for name in "DS")
    page = PAGE.read_text(encoding="utf-8").partition("## Where text ends up")[2]
    for kind, word in CANARIES.items():
        places = places_of(word, tmp_path / "runs", tmp_path / "cache", tmp_path / "exported")
        assert places, kind
        unnamed = [place for place in places if f"`{place}`" not in page]
        assert not unnamed, (kind, unnamed)
