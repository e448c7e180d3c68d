"""vLLM in the process of each of two ranks: its tokens, a run, a rank that is killed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rrgreport.run_files import read_metrics
from tests.rrgtrain.common import OF_PHANTOM, SMALL_POLICY
from tests.rrgtrain.runs import At, ends, on_ranks

RUN = [
    *("rl", "--from", "tiny", "--out", "run", *OF_PHANTOM, *SMALL_POLICY),
    *("scale.mode=fsdp2", "rl.steps=2", "rl.prompts=3", "rl.group=4", "rl.max_new_tokens=10"),
    *("rl.eval_every=9", "rl.lr=0.001", "eval.limit=3", "eval.max_new_tokens=10"),
    *("eval.bootstrap=20", "eval.meteor=false"),
    *("eval.samples=2", "checkpoint.steps=1", "rollout.engine=vllm", "rollout.memory=0.05"),
]


@pytest.mark.timeout(1800)
def test_each_rank_has_an_engine_of_its_own_that_samples_the_trainers_tokens(
    tmp_path: Path,
) -> None:
    """In fp32 and greedily: unequal work, sharded weights, a step that is asked for twice."""
    done = on_ranks("served", cwd=tmp_path, main="tests.vllm.two_ranks", patience=1700.0)
    assert [d.status for d in done] == [0, 0], ends(done)
    for rank in (0, 1):
        told = json.loads((tmp_path / f"{rank}.json").read_text())
        assert told["backend"] == "external_launcher" and told["world"] == 2
        assert told["theirs"] == told["ours"]
        assert told["theirs"][0] != told["theirs"][2], "the second step has other weights"
        assert told["theirs"][4] != told["theirs"][2], "of a second engine, after the first's end"
        assert told["after"] == [0, 1], "the trainer's process group outlives the engine"
        assert told["pushes"] == ["take_weights"] * 2, "one a step"


def test_a_rank_killed_in_a_rollout_is_named_and_the_run_goes_on(tmp_path: Path) -> None:
    at = At("rrgpolicy.rollout.vllm_engine:VllmEngine.generate", 2, "SIGKILL")
    done = on_ranks(*RUN, cwd=tmp_path, at=at)
    assert [d.status for d in done] == [75, -9], ends(done)
    assert "rrgtrain: another rank is gone (" in done[0].last
    assert "go on with: torchrun --nproc-per-node 2 -m rrgtrain rl --resume run" in done[0].last
    done = on_ranks("rl", "--resume", "run", cwd=tmp_path)
    assert [d.status for d in done] == [0, 0], ends(done)
    rows = [r for r in read_metrics(tmp_path / "run" / "metrics.jsonl") if "sampler/gap_mean" in r]
    assert [r["step"] for r in rows] == [0, 1]
    assert all(r["sampler/gap_mean"] < 1e-4 for r in rows)
