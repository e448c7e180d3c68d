"""`rrgtrain init` writes an experiment on data of one's own, whose commands run as they stand."""

from __future__ import annotations

import csv
import json
import os
import re
import shlex
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from PIL import Image

from rrgdata.phantom import PhantomConfig, write_phantom
from rrgtrain.cli import main
from rrgtrain.config import load_config
from rrgtrain.plan import fitted
from rrgtrain.run import model_check
from rrgtrain.schema import Recipe
from tests.rrgpolicy.model.common import tiny_directory
from tests.rrgtrain.runs import TINY_RUN, command

REPORTS = ("The lungs are clear.", "Small left pleural effusion.", "The heart is enlarged.")


def table(path: Path, *, images: bool, split: bool = True) -> Path:
    """A table of eight studies, its images beside it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    splits = ["train"] * 4 + ["val"] * 2 + ["test"] * 2
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["id", "images", "report", *(["split"] if split else [])])
        for i, name in enumerate(splits):
            if images:
                Image.effect_noise((64, 64), 60 + i).save(path.parent / f"{i}.png")
            given = [f"s{i}", f"{i}.png" if images else "", REPORTS[i % 3]]
            rows.writerow([*given, *([name] if split else [])])
    return path


def commands_of(folder: Path) -> list[list[str]]:
    (block,) = re.findall(r"```bash\n(.*?)```", (folder / "README.md").read_text(), re.DOTALL)
    return [shlex.split(line)[1:] for line in block.splitlines() if line[0] != "#"]


def test_its_commands_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data, folder = table(tmp_path / "my data" / "mine.csv", images=True), tmp_path / "experiment"
    assert main(["init", str(folder), "--data", str(data), "--small"]) == 0
    verdict, sizes, *printed = capsys.readouterr().out.splitlines()[1:]
    ran = commands_of(folder)
    assert " ".join(words[0] for words in ran) == "data sft check rl eval generate report"
    assert printed == [f"rrgtrain {shlex.join(words)}" for words in ran]
    assert verdict.startswith("# fits: 1.5 M parameters from scratch")
    assert sizes.startswith("# studies: 4 train, 2 val, 2 test; 2 of the test are too few to judge")
    tiny = [word for word in TINY_RUN if not word.startswith("data.")]
    for words in ran:
        sized = [w for w in tiny if words[0] == "sft" or not w.startswith("policy.")]
        done = command(*words, *(sized if words[0] not in ("data", "report") else ()), cwd=folder)
        assert done.status == 0, (words, done.err)
    page = (folder / "runs" / "rl" / "report.html").read_text()
    assert "reward: mine:brevity" in page and (folder / "runs/eval/metrics.json").is_file()
    assert (folder / "runs" / "compare.html").is_file()


def test_forty_reports_and_a_policy_are_moved_and_checked(tmp_path, capsys, monkeypatch):
    """The table's absolute path stood in the recipe, which no other machine has."""
    here = tmp_path / "here"
    write_phantom(PhantomConfig(train=36, val=2, test=2, size=64), here / "drawn")
    splits = json.loads((here / "drawn" / "annotation.json").read_text())
    with (here / "mine.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["id", "images", "report"])
        for one in (study for of in splits.values() for study in of):
            images = "|".join(f"drawn/images/{path}" for path in one["image_path"])
            rows.writerow([one["id"], images, f"Kein Erguss ({one['id']})."])
    shutil.copytree(tiny_directory(), here / "policy")
    words = ["--data", str(here / "mine.csv"), "--policy", str(here / "policy")]
    monkeypatch.setattr(model_check, "WIDTH", 64)
    monkeypatch.setattr(model_check, "HEIGHT", 48)
    assert main(["init", str(here / "experiment"), *words, "--step"]) == 0
    _, verdict, *lines, sft, rl = capsys.readouterr().out.splitlines()
    assert any("40 of 40 reports have none" in line and "English?" in line for line in lines)
    for line, steps in ((sft, "sft update of 16 .* s; 21"), (rl, "rl update of 8 .* s; 20")):
        assert re.match(f"# step: one {steps} as long are [0-9.]+ minutes at most: no", line)
        assert line in (here / "experiment" / "README.md").read_text().splitlines()
    assert re.match(
        r"# fits: (sft|rl)'s state takes .* the whole model trains; .*unmeasured", verdict
    )
    recipe = load_config(Recipe, here / "experiment" / "mine.yaml", [])
    assert recipe.policy.path == "../policy" and recipe.data.root == "../mine.csv"
    assert (recipe.sft.batch, recipe.sft.steps, recipe.rl.steps) == (16, 21, 20)
    here = here.rename(tmp_path / "there")
    tiny = ("rl.prompts=1", "rl.group=2", "rl.max_new_tokens=8", "eval.max_new_tokens=8")
    checks = [words for words in commands_of(here / "experiment") if "check" in words[:2]]
    assert [words[0] for words in checks] == ["data", "check"]
    for words in checks:
        sized = tiny if words[0] == "check" else ()
        done = command(*words, *sized, cwd=here / "experiment", status=0)
    assert "step: one rl update of 1 prompts" in done.out and "REFUSED" not in done.out


@pytest.mark.parametrize(
    ("memory", "size", "verdict"),
    [
        (79 << 30, "paper/qwen_3b", "fits: .* the whole model trains"),
        (22 << 30, "paper/lora_24gb", "fits: .* an adapter of rank 64 trains"),
        (2 << 30, "paper/lora_24gb", "does not fit: .* an adapter of rank 64 trains"),
    ],
)
def test_a_policy_trains_as_the_gpu_has_room(memory, size, verdict, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    gpu = SimpleNamespace(name="card", total_memory=memory)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: gpu)
    start = fitted("Qwen/Qwen2.5-VL-3B-Instruct")
    assert start.size == size and start.policy["dtype"] == "bfloat16"
    assert re.match(verdict, start.verdict)


def test_what_cannot_be_begun_is_one_line_and_leaves_nothing(tmp_path, refusal):
    good = table(tmp_path / "good.csv", images=False)
    broken = table(tmp_path / "broken.csv", images=True)
    (tmp_path / "3.png").unlink()
    empty = tmp_path / "empty.csv"
    empty.write_text("id,report,split\na,Clear.,test\n")
    wordless = tmp_path / "wordless.csv"
    wordless.write_text("id,text\na,Clear.\n")
    blind = tmp_path / "blind.csv"  # `init` wrote images: none, and the policy would have seen none
    blind.write_text("id,Film,report\na,films/1.PNG,Clear.\n")
    os.mkfifo(tmp_path / "pipe.csv")
    cases = {
        "is gone": (tmp_path / "gone.csv", [], "does not exist"),
        "is broken": (broken, ["--policy", "no/body"], "1 studies of"),
        "has no training": (empty, [], "no training study with a report"),
        "has no report": (wordless, [], "no column"),
        "has pictures": (blind, [], "'data.columns={images: Film}'"),
        "is a pipe": (tmp_path / "pipe.csv", [], "pipe.csv is a pipe or a device, which may have"),
        "another setting": (good, ["rl.lr=1"], "'rl.lr=1' is no setting of data"),
    }
    for name, (data, words, told) in cases.items():
        assert told in refusal("init", str(tmp_path / "out"), "--data", str(data), *words), name
        assert not (tmp_path / "out").exists(), name
    assert main(["init", str(tmp_path / "out"), "--data", str(good)]) == 0
    before = (tmp_path / "out" / "mine.yaml").read_bytes()
    line = refusal("init", str(tmp_path / "out"), "--data", str(broken), "data.skip=true")
    assert "holds mine.yaml, mine.py, README.md already" in line
    assert (tmp_path / "out" / "mine.yaml").read_bytes() == before
