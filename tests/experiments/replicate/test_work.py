"""Jobs at the smallest size in this process: the whole command, a failing job, a resumed one."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from experiments.replicate import command, masking
from experiments.replicate import jobs as jobs_module
from experiments.replicate import work as work_module
from experiments.replicate.__main__ import main
from experiments.replicate.jobs import JOBS, Task
from experiments.replicate.results import Result
from experiments.replicate.work import work
from rrgreport import numbers
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
def _small(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setattr(work_module, "MASKED", 4)
    jobs_module._identity.cache_clear()
    for name, job in list(JOBS.items()):
        balanced = ("data.balanced=6",) if job.settings else ()
        monkeypatch.setitem(JOBS, name, dataclasses.replace(job, settings=(*MICRO, *balanced)))


def in_this_process(one: Task, slice_seconds: float) -> Played:
    return Played(lambda: work(one) or 0)


EACH_KIND = ("data", "sft", "ditpo", "masking", "select", "deer", "orapo")


def test_the_command_runs_each_kind_of_job_and_again_for_nothing(
    tmp_path, monkeypatch, capsys
) -> None:
    monkeypatch.setattr(command, "child", in_this_process)
    real, weighed = masking.mask_top, []

    def watched(text: str, spans: list, weights: np.ndarray, *rest: float) -> str:
        assert len(spans) == len(weights)
        weighed.append(weights)
        return real(text, spans, weights, *rest)

    monkeypatch.setattr(masking, "mask_top", watched)
    for name in JOBS.keys() - set(EACH_KIND):
        monkeypatch.delitem(JOBS, name)
    words = ["--out", str(tmp_path / "out")]
    assert main(words) == 0
    text = capsys.readouterr().out
    assert "claims nothing" in text.splitlines()[0]
    rows = _table(text)
    assert set(rows) == set(EACH_KIND)
    assert rows["orapo"][:4] == ["rl", "orapo", "sft", "3"] and rows["orapo"][4].isdigit()
    assert rows["select"][:4] == ["select", "deer_f1", "sft", numbers.MISSING]

    seed = tmp_path / "out" / "seed0"
    left = {path.name: path.stat().st_mtime_ns for path in seed.glob("*.json")}
    assert set(left) == {f"{name}.json" for name in EACH_KIND}
    assert not list(seed.glob("*/resume")), "the optimiser's state goes with the end of a job"
    assert main(words) == 0
    again = _table(capsys.readouterr().out)
    assert {name: row[:4] for name, row in again.items()} == {n: r[:4] for n, r in rows.items()}
    assert all(row[4:] == ["finished", "before"] for row in again.values())
    assert {path.name: path.stat().st_mtime_ns for path in seed.glob("*.json")} == left
    _deer_saw_the_selected_studies(seed)
    _three_kinds_of_weights(weighed)
    masked = Result.load(seed / "masking.json").measures
    assert {name.partition("/")[2] for name in masked} == {"random", "tfidf", "gradient"}


def _table(text: str) -> dict[str, list[str]]:
    """Cells of each row after the name of its job."""
    lines = text.splitlines()
    head = next(i for i, line in enumerate(lines) if line.split()[:2] == ["job", "kind"])
    return {line.split()[0]: line.split()[4:] for line in lines[head + 1 :]}


def _three_kinds_of_weights(weighed: list[np.ndarray]) -> None:
    count = len(weighed) // 3
    assert count == work_module.MASKED * 4
    even, tfidf, gradient = (weighed[i * count : (i + 1) * count] for i in range(3))
    assert all((w == 1).all() for w in even)
    for kind in (tfidf, gradient):
        assert all((w >= 1).all() for w in kind) and any(np.ptp(w) > 0 for w in kind)
    assert not all(np.array_equal(a, b) for a, b in zip(tfidf, gradient, strict=True))


def _deer_saw_the_selected_studies(seed: Path) -> None:
    chosen = Result.load(seed / "select.json").facts["chosen"]
    assert Result.load(seed / "deer.json").facts["studies"] == chosen == 2
    assert Result.load(seed / "ditpo.json").facts["studies"] == 8
