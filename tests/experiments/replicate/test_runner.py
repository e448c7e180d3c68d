"""The scheduler with processes that are played, and the whole command at the smallest size."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from experiments.replicate import command, masking, runner
from experiments.replicate import jobs as jobs_module
from experiments.replicate import work as work_module
from experiments.replicate.__main__ import main
from experiments.replicate.jobs import JOBS, Task, identity, with_needs
from experiments.replicate.results import Result, end, finished
from experiments.replicate.runner import run_tasks
from experiments.replicate.work import work
from rrgreport import numbers
from rrgtrain.errors import UserError
from rrgtrain.state.rundir import RunDir
from tests.rrgtrain.common import OF_PHANTOM, SMALL_POLICY


def task(name: str, seed: int, out: Path) -> Task:
    return Task(JOBS[name], seed, out)


def leave(one: Task, *, settings: bool = False) -> Task:
    """A finished job; `settings` says also of what settings."""
    one.home.mkdir(parents=True, exist_ok=True)
    end(one, Result(identity(one) if settings else {}, one.command, "abc", {}, {"steps": 80}))
    return one


def quiet(line: str) -> None:
    pass


@dataclass
class Played:
    """A process that ends at its first poll, having done `act`."""

    act: Callable[[], int]
    ended: list[str] = field(default_factory=list)

    def poll(self) -> int | None:
        return self.act()

    def terminate(self) -> None:
        self.ended.append("terminate")

    def wait(self) -> int:
        self.ended.append("wait")
        return 0


@dataclass
class Stage:
    """Launches played jobs and remembers which, and how many ran at once."""

    scripts: dict[str, list[int]] = field(default_factory=dict)
    begun: list[str] = field(default_factory=list)

    def __call__(self, one: Task) -> Played:
        self.begun.append(one.job.name)

        def act() -> int:
            script = self.scripts.get(one.job.name)
            code = script.pop(0) if script else 0
            if code == 0:
                leave(one)
            if code == 75:
                kept = RunDir(one.directory).resume
                kept.mkdir(parents=True, exist_ok=True)
                (kept / f"{len(list(kept.iterdir())):06d}-step").mkdir()
            return code

        return Played(act)


def tasks_for(name: str, out: Path, seeds: tuple[int, ...] = (0,)) -> list[Task]:
    return [task(n, seed, out) for n in with_needs([name]) for seed in seeds]


def test_each_job_runs_once_after_what_it_needs(tmp_path) -> None:
    stage = Stage()
    seconds = run_tasks(tasks_for("deer", tmp_path), 2, stage, pause=0, tell=quiet)
    assert stage.begun == ["data", "sft", "select", "deer"]
    assert [one.job.name for one in seconds] == stage.begun
    assert run_tasks(tasks_for("deer", tmp_path), 2, stage, pause=0, tell=quiet) == {}
    assert len(stage.begun) == 4, "what has finished is skipped"


def test_a_slice_goes_on_before_anything_new_begins(tmp_path, monkeypatch) -> None:
    stage, lines = Stage({"sft": [75, 75]}), []
    clock = itertools.count(0, 10.0)
    monkeypatch.setattr(runner.time, "monotonic", lambda: next(clock))
    tasks = tasks_for("editgrpo", tmp_path, (0, 1))
    seconds = run_tasks(tasks, 1, stage, pause=0, tell=lines.append)
    assert stage.begun == ["data", "data", "sft", "sft", "sft", "sft", "editgrpo", "editgrpo"]
    assert [line.split()[1] for line in lines].count("pause") == 2
    assert list(seconds.values()) == [10, 10, 30, 10, 10, 10], "of all slices together"


def test_a_failure_names_the_job_ends_the_others_and_keeps_what_has_finished(tmp_path) -> None:
    leave(task("data", 0, tmp_path))
    made = task("sft", 0, tmp_path)
    made.log.write_text("some lines\nrrgtrain: sft, step 3: the loss is nan\n")
    endless = Played(lambda: None)  # type: ignore[arg-type, return-value]

    def launch(one: Task) -> Played:
        return Played(lambda: 2) if one.job.name == "sft" else endless

    both = [*tasks_for("sft", tmp_path), *tasks_for("sft_blocks", tmp_path)]
    with pytest.raises(UserError, match="sft of seed 0 ended with status 2: rrgtrain: sft, step 3"):
        run_tasks(list(dict.fromkeys(both)), 2, launch, pause=0, tell=quiet)
    assert endless.ended == ["terminate", "wait"]
    assert finished(task("data", 0, tmp_path)) and not finished(made)


MICRO = (
    *OF_PHANTOM,
    *SMALL_POLICY,
    *("sft.steps=2", "sft.batch=2", "sft.eval_every=2", "sft.warmup=0"),
    *("rl.steps=3", "rl.prompts=2", "rl.group=4", "rl.max_new_tokens=8", "rl.eval_every=3"),
    *("eval.max_new_tokens=8", "select.samples=2", "token_weights.distil_steps=2"),
)


@pytest.fixture
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


@pytest.mark.usefixtures("_small")
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
