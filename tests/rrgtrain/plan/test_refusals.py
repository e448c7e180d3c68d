"""Test that a plan follows the code, refuses no run that works, and names what helps."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from rrgtrain.cli import main
from rrgtrain.config import load_config
from rrgtrain.errors import UserError
from rrgtrain.plan import (
    Host,
    Setup,
    StagePlan,
    machine_of,
    misfits,
    plan_stage,
    stage_of,
)
from rrgtrain.schema import Recipe
from rrgtrain.train.reference import named_reference
from tests.rrgpolicy.model.common import tiny_directory, tiny_policy
from tests.rrgtrain.common import recipe

GIB = 1 << 30


def paper(name: str, *words: str) -> Recipe:
    return load_config(Recipe, f"paper/{name}", list(words))


def planned(settings: Recipe, gpu: str = "h100", ranks: int = 1, stage: str = "rl") -> StagePlan:
    return plan_stage(Setup.of(settings, machine_of(gpu), ranks), stage)


def sizes(plan: StagePlan, place: str, phase: str) -> dict[str, int]:
    return {p.name: p.bytes.get(phase, 0) for p in getattr(plan, place)}


@pytest.mark.parametrize(
    ("name", "stage"),
    [
        ("sft", "sft"),
        ("paper/editgrpo_sft", "sft"),
        ("deer_sft", "sft"),
        ("orapo_sft", "rl"),
        ("editgrpo", "rl"),
        ("editgrpo+editgrpo_sft", "rl"),
    ],
)
def test_the_stage_follows_the_recipe(
    name: str, stage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert stage_of(name, load_config(Recipe, name, []).rl.algorithm) == stage
    assert main(["plan", name, "--gpu-memory", "500"]) == 0
    assert f"\n{stage}: " in capsys.readouterr().out


def test_staging_copies_what_trains_to_powers_of_two() -> None:
    """Pinned memory is handed out in those: 4.5 MB take 8 MiB."""
    host = sizes(planned(paper("mrg_r1"), ranks=2), "host", "run")
    wide, narrow, inner = 3584, 512, 18944
    pinned = 0
    for side in [wide] * 9 + [narrow] * 2 + [inner] * 3:  # of seven projections' two halves
        part = 128 * side // 2
        # fp32 weights of one of two ranks, and two moments of a byte with their scales
        each = [part * 4, *[part, part // 256 * 4] * 2]
        pinned += 28 * 2 * sum(2 ** math.ceil(math.log2(size)) for size in each)
    assert host["checkpoint's staging"] == pinned


def test_vllm_needs_no_whole_copy_beside_it() -> None:
    settings = paper("editgrpo", "rollout.engine=vllm")
    parts = sizes(planned(settings, ranks=8), "device", "rollout")
    # embedding and tower, and two of 36 layers, in bf16
    assert parts["bfloat16 copies"] < 2.2 * GIB
    assert "weights for vLLM" not in sizes(planned(settings), "disk", "run")
    server = sizes(planned(paper("editgrpo", "rollout.engine=vllm_server")), "disk", "run")
    decoder = 3_085_938_688  # Qwen2.5-3B: the tower stays with the trainer, which embeds images
    assert server["weights for vLLM"] == 3 * 2 * decoder
    served = sizes(planned(settings), "device", "rollout")["vLLM's weights"]
    assert served == 2 * decoder


def test_a_named_reference_is_held_beside_an_adapter() -> None:
    own = paper("mrg_r1", "rl.beta=0.1")
    assert "reference policy" not in sizes(planned(own), "device", "update")
    named = paper("mrg_r1", "rl.beta=0.1", "rl.reference=runs/other")
    held = sizes(planned(named), "device", "update")["reference policy"]
    assert held == 2 * 8_292_166_656


def test_a_reference_from_elsewhere_shares_no_frozen_tower(tmp_path: Path) -> None:
    """The start's copy does; `base` and a path are loaded whole."""
    frozen = tiny_policy(freeze_vision=True)
    words = (f"policy.path={tiny_directory()}", "policy.freeze_vision=true", "rl.beta=0.1")
    own = {p.data_ptr() for p in frozen.model.parameters()}
    for asked in ("start", "base", str(tiny_directory())):
        settings = recipe(*words, f"rl.reference={asked}")
        reference = named_reference(frozen, asked, settings.policy, tmp_path)
        copied = [p for p in reference.model.parameters() if p.data_ptr() not in own]
        held = sizes(planned(settings, "cpu"), "device", "update")["reference policy"]
        assert held == 4 * sum(p.numel() for p in copied), asked


def test_the_optimiser_steps_a_tensor_at_a_time() -> None:
    step = "optimiser's step"
    parts = sizes(planned(paper("editgrpo")), "device", "optimizer")
    assert parts[step] == 2 * 4 * 151_936 * 2048
    fewer = planned(paper("editgrpo", "rl.optimizer=adamw_8bit"))
    assert step not in sizes(fewer, "device", "optimizer")


def test_a_node_has_the_ranks_that_it_has() -> None:
    settings = paper("editgrpo")
    setup = Setup.of(settings, machine_of("h100"), 16)
    four = replace(setup, node=4)
    assert (setup.shards, four.shards, replace(setup, ranks=12).here) == (8, 4, 6)
    eight, half = (sizes(plan_stage(s, "rl"), "host", "start") for s in (setup, four))
    assert half["processes"] * 2 == eight["processes"]
    with pytest.raises(UserError, match="does not divide 12"):
        Setup.of(paper("editgrpo", "scale.shard=5"), machine_of("h100"), 12)


def test_what_is_unmeasured_or_a_limit_refuses_nothing() -> None:
    setup = Setup.of(recipe("data.cache_mib=64000", "plan.refuse=true"), machine_of("h100"))
    plan = plan_stage(setup, "rl")
    (near,) = misfits(setup, plan, Host(memory=16 * GIB))
    assert not near.refused and "that are unmeasured or a limit" in near.line
    (refused,) = misfits(setup, plan, Host(memory=1 << 20))[-1:]
    assert refused.refused, "what is sure is refused still"


def test_a_short_run_writes_few_checkpoints() -> None:
    names = sizes(planned(recipe("rl.steps=1", "checkpoint.keep=5")), "disk", "run")
    assert "2 checkpoints" in names


@pytest.mark.parametrize(("choose", "count"), [("best", 4), ("before_convergence", 5)])
def test_checkpoints_are_those_of_validations_that_may_be_chosen(choose: str, count: int) -> None:
    """As counted in a run of 12 steps with a checkpoint each: two, one in writing, and these."""
    words = ("sft.steps=12", "checkpoint.keep=2", f"sft.choose={choose}")
    assert f"{count} checkpoints" in sizes(planned(recipe(*words), stage="sft"), "disk", "run")
    assert "4 checkpoints" in sizes(planned(recipe("rl.steps=12", *words)), "disk", "run")


def test_no_setting_is_named_that_changes_nothing() -> None:
    """What the stage does not read, what is set already, and what frees hardly anything."""
    cases = [
        (("editgrpo_sft",), "sft", "adamw_8bit"),
        (("editgrpo", "rl.optimizer=adamw_8bit", "policy.lora.rank=8"), "rl", "lora.rank"),
        (("orapo", "rl.beta=0"), "rl", "rl.beta"),
        (("orapo",), "rl", "oracle.log_ratio"),
    ]
    for words, stage, without in cases:
        setup = Setup.of(paper(*words), machine_of("l40s", 8.0))
        (line,) = [m.line for m in misfits(setup, plan_stage(setup, stage), Host())]
        assert "; change " in line and without not in line, (words, line)


@pytest.mark.parametrize(
    ("share", "line", "words"),
    [(0.1, "one sequence", ()), (0.95, "leaves", ("plan.refuse=true",)), (0.95, "leaves", ())],
)
def test_a_share_of_vllm_that_cannot_be_is_refused(
    share: float, line: str, words: tuple[str, ...]
) -> None:
    """Less than the weights is a fact; what training leaves is an estimate."""

    def seen(share: float) -> list[tuple[bool, str]]:
        memory = f"rollout.memory={share}"
        settings = paper("editgrpo", "rollout.engine=vllm", memory, *words)
        setup = Setup.of(settings, machine_of("l40s"), 8)
        found = misfits(setup, plan_stage(setup, "rl"), Host())
        return [(m.refused, m.line) for m in found if "rollout.memory" in m.line]

    ((refused, told),) = seen(share)
    assert refused == (share < 0.5 or bool(words))
    assert line in told and f"rollout.memory={share}" in told
    fitting = float(told.rpartition("; change rollout.memory to ")[2].split()[0])
    assert not any(refused for refused, _ in seen(fitting))
