"""Fine-tuning and reinforcement learning of families other than the tiny policy's."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rrgtrain.errors import UserError
from rrgtrain.policy import load
from tests.rrgtrain.common import ALL_STUDIES, phantoms
from tests.rrgtrain.policy.checkpoints import checkpoint
from tests.rrgtrain.runs import command, on_ranks, rows

DATA = ["data.source=iu_xray", f"data.root={phantoms()}", *ALL_STUDIES]
SHORT = [
    *("eval.max_new_tokens=6", "eval.bootstrap=20", "eval.samples=2", "eval.limit=2"),
    *("sft.steps=1", "sft.batch=2", "sft.eval_every=1", "sft.warmup=0", "rl.eval_every=1"),
    *("rl.steps=1", "rl.prompts=2", "rl.group=4", "rl.max_new_tokens=6", "rl.beta=0.01"),
    "checkpoint.steps=1",
]


@pytest.mark.parametrize(
    ("name", "way", "recipe", "ranks"),
    [("qwen3_vl", "row", "combined", 1), ("qwen3_5", "cache", "editgrpo", 2)],
)
def test_both_loops_share_prompts_with_images_as_the_probe_found(
    name: str, way: str, recipe: str, ranks: int, tmp_path: Path
) -> None:
    # combined: edits, token weights and oracle in one step, what the systems ask of a policy
    words = ["demo", recipe, "--out", "run", f"policy.path={checkpoint(name)}", *DATA, *SHORT]
    if ranks == 1:
        done = [command(*words, cwd=tmp_path)]
    else:
        done = on_ranks(*words, "scale.mode=fsdp2", cwd=tmp_path, count=ranks)
    assert [d.status for d in done] == [0] * ranks, done[0].err
    assert json.loads((tmp_path / "run/sharing.json").read_text())["way"] == way
    assert sum(d.err.count("prompts are shared by") for d in done) == 1
    algorithm = "editgrpo+ditpo+orapo" if recipe == "combined" else recipe
    assert {row["phase"] for row in rows(tmp_path / "run")} >= {"sft", algorithm}


def test_transformers_that_takes_no_features_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("transformers.__version__", "5.19.0")
    with pytest.raises(UserError, match=r"qwen3_vl .* needs transformers 5\.23; 5\.19\.0 is"):
        load.read_config(str(checkpoint("qwen3_vl")))
    load.read_config(str(checkpoint("qwen3")))
