"""Commands and a server through vLLM with families other than Qwen2.5-VL."""

from __future__ import annotations

from pathlib import Path

import pytest

from rrgreport.run_files import read_metrics
from rrgtrain.cli import main
from tests.rrgpolicy.model.checkpoints import checkpoint
from tests.rrgpolicy.model.sighted import sighted
from tests.rrgtrain.common import OF_PHANTOM, phantoms
from tests.vllm.server import LENGTH, Server, engine_of
from tests.vllm.test_families import SIZES, followed, policy_of


def test_a_server_follows_all_weights(tmp_path: Path) -> None:
    policy = policy_of("qwen3_vl")
    served = lambda: Server(tmp_path, checkpoint("qwen3_vl", **SIZES["qwen3_vl"]))  # noqa: E731
    with engine_of("server", tmp_path / "work", policy, served) as engine:
        followed(engine, policy)


@pytest.mark.parametrize("name", ["gemma3", "internvl"])
def test_check_says_if_a_family_is_served(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Tokens of Gemma 3's images see each other, but in vLLM's attention for CPUs."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    words = ["rollout.engine=vllm", "rollout.memory=0.1", f"rollout.max_model_len={LENGTH}"]
    words += ["policy.prompt=short", "rl.max_new_tokens=16", "eval.max_new_tokens=16"]
    status = main(["check", str(sighted(name, **SIZES[name])), *words])
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("engine")]
    if name == "gemma3":
        assert status == 1
        assert "REFUSED: vLLM in this process failed" in line
        assert (
            "the tokens of an image see each other in this model, and not in vLLM's CPU_ATTN"
            in line
        )
    else:
        assert status == 0
        assert float(line.split("differ by ")[1].split()[0]) < 1e-5 and "with images" in line


def test_a_step_reads_pictures_through_the_loader(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """RL of the tower too, its prompts encoded by a worker: the sampler's gap stays rounding."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    words = ["rl", "--from", str(checkpoint("qwen3_vl", **SIZES["qwen3_vl"]))]
    words += ["--out", str(tmp_path / "run"), *OF_PHANTOM, f"data.root={phantoms()}", "rl.lr=0.001"]
    words += ["rollout.engine=vllm", "rollout.memory=0.1", f"rollout.max_model_len={LENGTH}"]
    words += ["policy.prompt=short", "policy.min_pixels=null", "policy.max_pixels=null"]
    words += ["rl.steps=2", "rl.prompts=2", "rl.group=4", "rl.max_new_tokens=8", "rl.eval_every=9"]
    words += ["eval.limit=2", "eval.max_new_tokens=8", "eval.bootstrap=20", "eval.meteor=false"]
    assert main([*words, "eval.samples=2", "data.workers=1", "checkpoint.steps=5"]) == 0
    rows = [r for r in read_metrics(tmp_path / "run/metrics.jsonl") if "sampler/gap_mean" in r]
    assert [row["step"] for row in rows] == [0, 1]
    assert all(row["sampler/gap_mean"] < 1e-4 for row in rows)
