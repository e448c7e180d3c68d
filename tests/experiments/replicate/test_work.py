"""Whole claims at the smallest size, every job in this process: numbers, page, resumed jobs."""

from __future__ import annotations

import dataclasses
import json
import shlex
import signal
from pathlib import Path

import numpy as np
import pytest

from experiments.replicate import command, masking
from experiments.replicate import jobs as jobs_module
from experiments.replicate.__main__ import main
from experiments.replicate.jobs import JOBS, Task
from experiments.replicate.results import Result, finished, stale
from experiments.replicate.work import work
from rrgclinical.common.stop import stopping
from rrgtrain.cli import main as rrgtrain
from rrgtrain.errors import Stopped
from rrgtrain.state.rundir import RunDir
from rrgtrain.train import rl as rl_module
from tests.experiments.replicate.common import task
from tests.experiments.replicate.test_runner import Played
from tests.rrgtrain.common import OF_PHANTOM, SMALL_POLICY

MICRO = (
    *OF_PHANTOM,
    *SMALL_POLICY,
    *("sft.steps=2", "sft.batch=2", "sft.eval_every=2", "sft.warmup=0"),
    *("rl.steps=3", "rl.prompts=2", "rl.group=4", "rl.max_new_tokens=8", "rl.eval_every=3"),
    *("eval.max_new_tokens=8", "select.samples=2", "token_weights.distil_steps=2"),
)


@pytest.fixture(autouse=True)
def _small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setattr(masking, "STUDIES", 4)
    jobs_module._identity.cache_clear()
    for name, job in list(JOBS.items()):
        balanced = ("data.balanced=6",) if job.quick else ()
        monkeypatch.setitem(JOBS, name, dataclasses.replace(job, quick=(*MICRO, *balanced)))


def in_this_process(one: Task, slice_seconds: float) -> Played:
    def act() -> int:
        work(Task(JOBS[one.job.name], one.seed, one.out, one.quick))
        return 0

    return Played(act)


def test_claims_end_to_end_and_again_for_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "child", in_this_process)
    real, weighed = masking.mask_top, []

    def seen(text: str, spans: list, weights: np.ndarray, *rest: float) -> str:
        assert len(spans) == len(weights)
        weighed.append(weights)
        return real(text, spans, weights, *rest)

    monkeypatch.setattr(masking, "mask_top", seen)
    words = ["--quick", "--out", str(tmp_path / "out")]
    words += ["--claims", "masking", "ddsampling", "fifth", "oracle"]
    assert main(words) == 0
    shown = capsys.readouterr().out
    assert "claims nothing" in shown and "not judged; 1 seed" in shown
    assert "reproduce here" not in shown and "reproduces here" not in shown
    found = json.loads((tmp_path / "out" / "replicate.json").read_text())
    claims = {c["claim"]: c for c in found["claims"]}
    assert list(claims) == ["masking", "ddsampling", "fifth", "oracle"]
    for claim in claims.values():
        assert all(row["commands"] for row in claim["rows"].values())
        for row in claim["rows"].values():
            assert all(np.isfinite(v["value"]) for v in row["values"].values())
    assert claims["oracle"]["rows"]["with oracle"]["tried"] == (
        "6 studies, 3 steps, of 2 prompts, in groups of 4"
    )
    page = (tmp_path / "out" / "replicate.html").read_text()
    assert page.count("<svg") == 4 and "/common.yaml+orapo" in page
    assert "http" not in page.replace("http-equiv", ""), "self-contained"

    seed = tmp_path / "out" / "seed0"
    kept = {path.name: path.stat().st_mtime_ns for path in seed.glob("*.json")}
    assert {"orapo.json", "select.json", "masking.json", "deer.json"} <= set(kept)
    assert not list(seed.glob("*/resume")), "the optimiser's state goes with the end of a job"
    assert main(words) == 0
    assert "0 jobs to run, 9 finished before" in capsys.readouterr().out
    assert {path.name: path.stat().st_mtime_ns for path in seed.glob("*.json")} == kept
    _deer_saw_the_selected_studies(seed)
    _three_kinds_of_weights(weighed)


def _three_kinds_of_weights(weighed: list[np.ndarray]) -> None:
    count = len(weighed) // 3
    assert count == masking.STUDIES * 4
    even, tfidf, gradient = (weighed[i * count : (i + 1) * count] for i in range(3))
    assert all((w == 1).all() for w in even)
    for kind in (tfidf, gradient):
        assert all((w >= 1).all() for w in kind) and any(np.ptp(w) > 0 for w in kind)
    assert not all(np.array_equal(a, b) for a, b in zip(tfidf, gradient, strict=True))


def _deer_saw_the_selected_studies(seed: Path) -> None:
    chosen = Result.load(seed / "select.json").facts["chosen"]
    assert Result.load(seed / "deer.json").facts["studies"] == chosen == 2
    assert Result.load(seed / "ditpo.json").facts["studies"] == 8


def test_a_job_in_slices_gives_what_it_gives_in_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("data", "base", "orapo"):
        work(task(name, 0, tmp_path))
    whole = Result.load(task("orapo", 0, tmp_path).result)
    task("orapo", 0, tmp_path).result.unlink()
    rerun = task("orapo", 0, tmp_path)
    rerun.directory.rename(tmp_path / "aside")
    real, calls = rl_module.sample_groups, []

    def stopped(*args, **options):
        calls.append(args[3])
        if len(calls) == 2:
            signal.raise_signal(signal.SIGTERM)
        return real(*args, **options)

    monkeypatch.setattr(rl_module, "sample_groups", stopped)
    with (
        stopping.installed("rrgtrain"),
        pytest.raises(Stopped, match="stopped by SIGTERM after 1 steps"),
    ):
        work(rerun)
    assert not finished(rerun) and stale(rerun) is None and RunDir(rerun.directory).resume.is_dir()
    with stopping.installed("rrgtrain"):  # as a process of its own would
        work(rerun)
    assert calls == [0, 1, 1, 2], "the step that was cut off is taken again, and no other"
    again = Result.load(rerun.result)
    assert again.identity == whole.identity
    for name, measure in whole.measures.items():
        assert np.array_equal(measure.top, again.measures[name].top), name
    assert whole.measures["zero_rate"].units == 3

    words = shlex.split(rerun.command)[1:]
    words[words.index("--out") + 1] = str(tmp_path / "by_hand")
    monkeypatch.setattr(rl_module, "sample_groups", real)
    assert rrgtrain(words) == 0
    summary = json.loads((tmp_path / "by_hand" / "summary.json").read_text())
    by_hand = summary["systems"]["OraPO"]["metrics"]
    for name in ("micro_f1", "macro_f1", "reward"):
        assert by_hand[name]["value"] == pytest.approx(whole.measures[name].value()[0]), name
