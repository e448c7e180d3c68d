"""A run that learns nothing says so, and its start competes for the best weights."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

from rrgpolicy.model.load import load_policy
from rrgreport.run_files import read_metrics
from rrgtrain.errors import Stopped
from tests.rrgtrain.common import recipe
from tests.rrgtrain.train.loops import Length, Plain, state, trained


class Flat(Plain):
    """A reward that says nothing."""

    def __call__(self, reports: Sequence[str], *_: object) -> dict[str, np.ndarray]:
        return {"total": np.zeros(len(reports))}


def test_a_run_without_a_group_that_differs_warns_once_or_stops(
    tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    def told() -> list[str]:
        lines = [str(w.message) for w in recwarn if "rl.flat_steps=2" in str(w.message)]
        recwarn.clear()
        return lines

    words = ["rl.algorithm=dr_grpo", "rl.steps=4", "rl.flat_steps=2", "rl.eval_every=9"]
    trained(tmp_path / "warned", recipe(*words), rewards=Flat())
    assert len(told()) == 1
    trained(tmp_path / "learns", recipe(*words), rewards=Length())
    trained(tmp_path / "never", recipe(*words, "rl.flat_steps=0"), rewards=Flat())
    trained(tmp_path / "oracle", recipe(*words, "rl.algorithm=orapo"), rewards=Flat())
    assert not told()
    with pytest.raises(Stopped, match="rl.flat_steps=2 steps in a row had no group"):
        trained(tmp_path / "stopped", recipe(*words, "rl.on_flat=stop"), rewards=Flat())
    steps = [row["step"] for row in read_metrics(tmp_path / "stopped" / "metrics.jsonl")]
    assert steps == [-1, 0, 1] and not told()


def test_the_start_competes_for_the_best(tmp_path: Path) -> None:
    cfg = recipe("rl.algorithm=dr_grpo", "rl.lr=0.05", "rl.steps=2", "rl.eval_every=1")
    for scores, best in (((0.9, 0.2, 0.3), 0), ((0.1, 0.2, 0.3), 2), ((0.3, 0.2, 0.3), 2)):
        result, policy, rows, seen = trained(
            tmp_path / str(scores), cfg, scores=scores, rewards=Length()
        )
        assert (result.best_step, result.best_value) == (best, scores[best])
        assert [r["step"] for r in rows if r["phase"] == "dr_grpo_val"] == [-1, 0, 1]
        kept = state(load_policy(result.best))
        assert all(torch.equal(p, seen[best][n]) for n, p in state(policy).items())
        assert all(torch.equal(p, seen[best][n]) for n, p in kept.items())
    assert any(not torch.equal(p, seen[0][n]) for n, p in state(policy).items())
