"""Commands through vLLM in process: greedy reports, families, pictures, and two ranks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rrgreport.run_files import read_metrics
from rrgtrain.cli import main
from tests.rrgpolicy.model.common import tiny_directory
from tests.rrgpolicy.model.sighted import checkpoint, sighted
from tests.rrgtrain.common import OF_PHANTOM, SMALL_POLICY, phantoms
from tests.rrgtrain.runs import At, on_ranks
from tests.vllm.server import LENGTH, Server, engine_of
from tests.vllm.test_families import SIZES, followed, policy_of

ENGINE = ["rollout.max_model_len=256", "rollout.memory=0.1", "policy.prompt=short"]
SHORT = ["eval.max_new_tokens=8", "eval.batch=2", "rl.max_new_tokens=8", "select.samples=2"]
DATA = [*OF_PHANTOM, f"data.root={phantoms()}", "eval.split=train", "eval.limit=3"]


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_generate_writes_what_the_trainer_writes(tmp_path: Path) -> None:
    films = str(phantoms())
    found = []
    for engine in ("transformers", "vllm"):
        more = [f"rollout.engine={engine}", *ENGINE, *SHORT]
        out = tmp_path / f"{engine}.jsonl"
        assert main(["generate", str(tiny_directory()), films, "--out", str(out), *more]) == 0
        found.append([json.loads(line)["report"] for line in out.open()])
    assert found[0] == found[1]
    assert len(set(found[0])) > 1


def test_select_draws_through_it(tmp_path: Path) -> None:
    words = ["--from", str(tiny_directory()), *DATA, *ENGINE, *SHORT, "rollout.engine=vllm"]
    assert main(["select", *words, "--out", str(tmp_path / "subset")]) == 0
    rows = [json.loads(line) for line in (tmp_path / "subset" / "sampled.jsonl").open()]
    assert len(rows) == 8 and all(len(row["reports"]) == 2 for row in rows)


def test_two_ranks_evaluate_to_what_the_trainer_writes(tmp_path: Path) -> None:
    words = ["eval", "--from", str(tiny_directory()), *DATA, "eval.meteor=false", *ENGINE, *SHORT]
    words += ["eval.bootstrap=20", "eval.batch=1"]
    assert main([*words, "--out", str(tmp_path / "transformers")]) == 0
    for done in on_ranks(*words, "--out", "vllm", "rollout.engine=vllm", cwd=tmp_path):
        assert done.status == 0, done.err
    assert not (tmp_path / "vllm" / "served").exists()
    own, theirs = (tmp_path / name / "predictions.jsonl" for name in ("transformers", "vllm"))
    assert theirs.read_bytes() == own.read_bytes()


def test_a_server_follows_all_weights(tmp_path: Path) -> None:
    policy = policy_of("qwen3_vl")
    served = lambda: Server(tmp_path, checkpoint("qwen3_vl", **SIZES["qwen3_vl"]))  # noqa: E731
    with engine_of("server", tmp_path / "work", policy, served) as engine:
        followed(engine, policy)


@pytest.mark.parametrize("name", ["gemma3", "internvl"])
def test_check_says_if_a_family_is_served(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Tokens of Gemma 3's images see each other, but in vLLM's attention for CPUs."""
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


def test_a_step_reads_pictures_through_the_loader(tmp_path: Path) -> None:
    """RL of the tower too, its prompts encoded by a worker: the sampler's gap stays rounding."""
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
    on_ranks("served", cwd=tmp_path, main="tests.vllm.two_ranks", patience=1700.0, statuses=[0, 0])
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
    done = on_ranks(*RUN, cwd=tmp_path, at=at, statuses=[75, -9])
    assert "rrgtrain: another rank is gone (" in done[0].last
    assert "go on with: torchrun --nproc-per-node 2 -m rrgtrain rl --resume run" in done[0].last
    on_ranks("rl", "--resume", "run", cwd=tmp_path, statuses=[0, 0])
    rows = [r for r in read_metrics(tmp_path / "run" / "metrics.jsonl") if "sampler/gap_mean" in r]
    assert [r["step"] for r in rows] == [0, 1]
    assert all(r["sampler/gap_mean"] < 1e-4 for r in rows)
