"""Test what `rrgtrain plan` counts and says first, and the update that `check --step` measures."""

from __future__ import annotations

import copy
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from rrgreport.run_files import read_metrics
from rrgtrain import plan
from rrgtrain.cli import main
from rrgtrain.config import load_config
from rrgtrain.errors import UserError
from rrgtrain.plan import Host, Setup, StagePlan, machine_of, plan_stage, stage_of, verdict
from rrgtrain.run import model_check
from rrgtrain.schema import Recipe
from rrgtrain.train.optim import adamw
from rrgtrain.train.reference import named_reference
from tests.docs.blocks import blocks_of, commands
from tests.rrgpolicy.model.common import tiny_directory, tiny_policy
from tests.rrgtrain.common import recipe
from tests.rrgtrain.runs import TINY_RUN, finished_demo

GIB = 1 << 30


def paper(name: str, *words: str) -> Recipe:
    return load_config(Recipe, f"paper/{name}", list(words))


def plan_of(settings: Recipe, gpu: str = "h100", ranks: int = 1, stage: str = "rl") -> StagePlan:
    return plan_stage(Setup.of(settings, machine_of(gpu), ranks), stage)


def sizes(plan: StagePlan, place: str, phase: str) -> dict[str, int]:
    return {p.name: p.bytes.get(phase, 0) for p in getattr(plan, place)}


def judged(
    settings: Recipe, gpu: str, ranks: int = 1, host: Host | None = None
) -> tuple[bool, str]:
    setup = Setup.of(settings, machine_of(gpu), ranks)
    return verdict(setup, plan_stage(setup, "rl"), host or Host())


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    status = main(["plan", *words])
    out, err = capsys.readouterr()
    return status, out, err


def test_the_page_prints_what_the_command_prints(capsys: pytest.CaptureFixture[str]) -> None:
    page = Path(__file__).parents[3] / "docs" / "gpus.md"
    blocks = blocks_of(page)
    at = next(
        n
        for n, block in enumerate(blocks)
        if block.text.startswith("rrgtrain plan paper/editgrpo --gpus 8")
    )
    command, text = blocks[at : at + 2]
    (words,) = commands(command.text)
    status, out, _ = printed(capsys, *words[2:])
    assert status == 0 and out == text.text
    assert out.startswith("fits: rl's state takes ") and "3,754.6 M parameters" in out


def test_state_that_does_not_fit_is_a_fact_with_its_mend(capsys):
    status, out, _ = printed(capsys, "paper/editgrpo", "--gpu", "l40s")
    line, *table = out.splitlines()
    assert status == 2 and any("memory of each GPU" in row for row in table)
    assert re.match(
        r"does not fit: rl's update holds [\d.]+ GiB of state, more than each l40s's", line
    )
    change = line.rpartition("; ")[2].removesuffix(" would")
    assert judged(paper("editgrpo", change), "l40s")[0], "what it names is so"
    hard = judged(paper("editgrpo", change, "policy.freeze_vision=false"), "a10")[1]
    gpus = re.search(r"; (\d+) GPUs would", hard)
    words = [change, "policy.freeze_vision=false"]
    if gpus is not None:
        assert judged(paper("editgrpo", *words), "a10", int(gpus[1]))[0]
    else:
        assert "policy.lora.rank=64 would" in hard


def test_disk_and_host_are_compared() -> None:
    settings = recipe("rl.steps=50")
    need = plan_of(settings).total("disk", "run")
    fits, line = judged(settings, "h100", host=Host(disk=need - 1))
    assert not fits and "of the disk's" in line and "checkpoint.keep" in line
    assert judged(settings, "h100", host=Host(disk=need))[0]
    assert "of the host's" in judged(settings, "h100", host=Host(memory=1 << 20))[1]


def test_a_share_of_vllm_that_cannot_hold_its_weights() -> None:
    """The share that the line names does."""
    words = ("rollout.engine=vllm", "policy.dtype=bfloat16")
    fits, line = judged(paper("editgrpo", *words, "rollout.memory=0.1"), "l40s", 8)
    assert not fits and "rollout.memory=0.1 gives vLLM" in line
    share = float(line.rpartition(" ")[2])
    assert judged(paper("editgrpo", *words, f"rollout.memory={share}"), "l40s", 8)[0]


@pytest.mark.parametrize(
    ("words", "gpus", "useful"),
    [
        (["paper/mrg_r1"], 8, "4 GPUs are of use; start 4, or raise rl.prompts"),
        (["paper/editgrpo", "rl.minibatch=2"], 4, "2 GPUs are of use; start 2, or raise rl.mini"),
        (["paper/editgrpo_sft", "sft.batch=3"], 8, "3 GPUs are of use; start 3, or raise sft.b"),
        (["paper/mrg_r1"], 4, ""),
    ],
)
def test_idle_gpus_are_told(words, gpus, useful, capsys):
    status, _, err = printed(capsys, *words, "--gpus", str(gpus))
    assert status == 0 and (useful in err if useful else err == "")


def test_more_gpus_divide_the_state() -> None:
    cfg = recipe("rl.prompts=64", "rl.beta=0.01", "policy.dtype=bfloat16")
    one, eight = (sizes(plan_of(cfg, ranks=count), "device", "update") for count in (1, 8))
    for name in ("weights", "moments", "gradients"):
        assert one[name] / eight[name] == pytest.approx(8, rel=0.05), name
    setup = Setup.of(paper("editgrpo"), machine_of("h100"), 16)
    assert (setup.shards, replace(setup, node=4).shards, replace(setup, ranks=12).here) == (8, 4, 6)
    with pytest.raises(UserError, match="does not divide 12"):
        Setup.of(paper("editgrpo", "scale.shard=5"), machine_of("h100"), 12)


@pytest.mark.parametrize(
    ("name", "stage"),
    [
        ("sft", "sft"),
        ("paper/editgrpo_sft", "sft"),
        ("orapo_sft", "rl"),
        ("editgrpo", "rl"),
        ("editgrpo+editgrpo_sft", "rl"),
    ],
)
def test_the_stage_follows_the_recipe(name: str, stage: str) -> None:
    assert stage_of(name, load_config(Recipe, name, []).rl.algorithm) == stage


def test_vllm_needs_no_whole_copy_beside_it() -> None:
    settings = paper("editgrpo", "rollout.engine=vllm")
    parts = sizes(plan_of(settings, ranks=8), "device", "rollout")
    # embedding and tower, and two of 36 layers, in bf16
    assert parts["bfloat16 copies"] < 2.2 * GIB
    decoder = 3_085_938_688  # Qwen2.5-3B: the tower stays with the trainer, which embeds images
    assert sizes(plan_of(settings), "device", "rollout")["vLLM's weights"] == 2 * decoder
    server = sizes(plan_of(paper("editgrpo", "rollout.engine=vllm_server")), "disk", "run")
    assert server["weights for vLLM"] == 3 * 2 * decoder


def test_a_reference_shares_what_does_not_train(tmp_path: Path) -> None:
    """The start's copy does; `base` and a path are loaded whole."""
    frozen = tiny_policy(freeze_vision=True)
    words = (f"policy.path={tiny_directory()}", "policy.freeze_vision=true", "rl.beta=0.1")
    own = {p.data_ptr() for p in frozen.model.parameters()}
    for name in ("start", "base", str(tiny_directory())):
        settings = recipe(*words, f"rl.reference={name}")
        reference = named_reference(frozen, name, settings.policy, tmp_path)
        copied = [p for p in reference.model.parameters() if p.data_ptr() not in own]
        held = sizes(plan_of(settings, "cpu"), "device", "update")["reference policy"]
        assert held == 4 * sum(p.numel() for p in copied), name
    named = paper("mrg_r1", "rl.beta=0.1", "rl.reference=runs/other")
    assert sizes(plan_of(named), "device", "update")["reference policy"] == 2 * 8_292_166_656
    assert "reference policy" not in sizes(plan_of(paper("mrg_r1")), "device", "update")


@pytest.mark.parametrize(("choose", "count"), [("best", 4), ("before_convergence", 5)])
def test_checkpoints_are_those_of_validations_that_may_be_chosen(choose: str, count: int) -> None:
    """As counted in a run of 12 steps with a checkpoint each: two, one in writing, and these."""
    words = ("sft.steps=12", "checkpoint.keep=2", f"sft.choose={choose}")
    assert f"{count} checkpoints" in sizes(plan_of(recipe(*words), stage="sft"), "disk", "run")
    short = recipe("rl.steps=1", "checkpoint.keep=5")
    assert "2 checkpoints" in sizes(plan_of(short), "disk", "run")
    phases = [row["phase"] for row in read_metrics(finished_demo()[0] / "metrics.jsonl")]
    setup = Setup.of(recipe(*TINY_RUN), machine_of("cpu"), 1)
    for stage, name in (("sft", "sft_val"), ("rl", "editgrpo_val")):
        told = plan.as_table(setup, plan_stage(setup, stage), "")
        assert f" {phases.count(name)} validations" in told


@pytest.mark.parametrize("adapter", ["", "policy.lora.rank=4"])
@pytest.mark.parametrize("stage", ["sft", "rl"])
def test_a_step_is_really_trained_at_the_longest_lengths(stage, adapter, tmp_path, monkeypatch):
    """No report ends before its limit, and nothing is left."""
    start = str(finished_demo()[0] / "checkpoints" / "sft")
    monkeypatch.setattr(model_check, "WIDTH", 64)
    monkeypatch.setattr(model_check, "HEIGHT", 48)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    seen = []

    def rows(of: object, name: str, step: int, row: dict[str, float]) -> None:
        seen.append(row)

    monkeypatch.setattr("rrgtrain.log.logs.RunLog.write", rows)
    words = ["rl.prompts=2", "rl.group=4", "rl.max_new_tokens=60", "sft.batch=3", adapter]
    words += ["rl.truncated=mask", "rl.beta=0", "data.images=none"]
    words += ["data.source=mix", "data.mix={a: {source: iu_xray, images: all}}"]
    settings = load_config(Recipe, "editgrpo", [f"policy.path={start}", *filter(None, words)])
    (line,) = model_check.measure_step(settings, stage)
    count = 2 if stage == "rl" else 3
    assert line.startswith(
        f"step: one {stage} update of {count} prompts, 2 images each, reports of"
    )
    assert re.search(r"peak [\d.,]+ [MG]iB of this process", line)
    if stage == "rl":
        (row,) = [row for row in seen if "report_tokens" in row]
        assert row["report_tokens"] == 60.0 and row["grad_norm"] > 0
        assert row["reward/total"] not in (0.0, 1.0) and row["scored_tokens"] > 0
    assert list(tmp_path.iterdir()) == []
    served = load_config(Recipe, "editgrpo", [f"policy.path={start}", "rollout.engine=vllm"])
    with pytest.raises(UserError, match="add rollout.engine=transformers"):
        list(model_check.measure_step(served, "rl"))


def test_a_step_that_would_not_learn_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """The optimiser holds other weights than the policy: lines before that of the peak."""
    settings = load_config(
        Recipe,
        "editgrpo",
        [f"policy.path={finished_demo()[0] / 'checkpoints' / 'sft'}", "sft.batch=1"],
    )

    def other(model: torch.nn.Module, *own: Any) -> torch.optim.Optimizer:
        return adamw(copy.deepcopy(model), *own)

    monkeypatch.setattr(model_check, "adamw", other)
    monkeypatch.setattr(model_check, "WIDTH", 64)
    told = [line.split(":")[1].strip() for line in model_check.measure_step(settings, "sft")]
    assert told[:3] == ["foreign parameters", "parameters not held", "no gradient"]
    assert told[-1].startswith("one sft update")
