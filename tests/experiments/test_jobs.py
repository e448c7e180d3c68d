"""Jobs of the alarm's table under processes that are played, and what a result depends on."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from experiments.alarm.__main__ import main
from experiments.alarm.run import JOBS, AlarmTask
from experiments.jobs import job as job_module
from experiments.jobs.job import digest, identity, with_needs
from experiments.jobs.results import Result, end, finished, stale
from experiments.jobs.runner import run_tasks
from rrgtrain.errors import UserError
from rrgtrain.state.rundir import RunDir


@pytest.fixture(autouse=True)
def _identities_of_this_test() -> Iterator[None]:
    job_module._identity.cache_clear()
    yield
    job_module._identity.cache_clear()


def task(name: str, out: Path, seed: int = 0) -> AlarmTask:
    return AlarmTask(JOBS[name], seed, out)


def tasks_for(name: str, out: Path, seeds: tuple[int, ...] = (0,)) -> list[AlarmTask]:
    return [task(n, out, seed) for n in with_needs([name], JOBS) for seed in seeds]


def leave(one: AlarmTask, *, settings: bool = False) -> None:
    """A finished job; `settings` says also of what settings."""
    one.home.mkdir(parents=True, exist_ok=True)
    end(one, Result(identity(one) if settings else {}, one.command, "abc", {"steps": 80}))


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

    def __call__(self, one: AlarmTask) -> Played:
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


def run(tasks: list[AlarmTask], workers: int, launch: Callable[[AlarmTask], Played]) -> list[str]:
    """What the scheduler says, without the time of day."""
    lines: list[str] = []
    run_tasks(tasks, workers, launch, estimate=lambda one: 1.0, pause=0, tell=lines.append)
    return [line.split()[1] for line in lines]


def test_each_job_runs_once_after_what_it_needs(tmp_path) -> None:
    stage = Stage()
    for _ in range(2):
        run(tasks_for("dr_grpo_early", tmp_path), 2, stage)
        assert stage.begun == ["data", "sft_early", "dr_grpo_early"], "the finished is skipped"


def test_a_slice_goes_on_before_anything_new_begins(tmp_path) -> None:
    stage = Stage({"sft": [75, 75]})
    said = run(tasks_for("editgrpo", tmp_path, (0, 1)), 1, stage)
    assert stage.begun == ["data", "data", "sft", "sft", "sft", "sft", "editgrpo", "editgrpo"]
    assert said.count("pause") == 2


def test_a_failure_names_the_job_ends_the_others_and_keeps_what_has_finished(tmp_path) -> None:
    leave(task("data", tmp_path))
    made = task("sft", tmp_path)
    made.log.write_text("some lines\nrrgtrain: sft, step 3: the loss is nan\n")
    endless = Played(lambda: None)  # type: ignore[arg-type, return-value]

    def launch(one: AlarmTask) -> Played:
        return Played(lambda: 2) if one.job.name == "sft" else endless

    both = [*tasks_for("sft", tmp_path), *tasks_for("sft_early", tmp_path)]
    with pytest.raises(UserError, match="sft of seed 0 ended with status 2: rrgtrain: sft, step 3"):
        run(list(dict.fromkeys(both)), 2, launch)
    assert endless.ended == ["terminate", "wait"]
    assert finished(task("data", tmp_path)) and not finished(made)


def test_a_digest_follows_settings_and_needs_but_no_path(tmp_path, monkeypatch) -> None:
    before = digest(identity(task("editgrpo", tmp_path)))
    assert digest(identity(task("editgrpo", tmp_path / "moved"))) == before
    assert digest(identity(task("editgrpo", tmp_path, 1))) != before
    # the same recipe from another start is another result
    longer = dataclasses.replace(JOBS["sft"], settings=("sft.steps=41",))
    monkeypatch.setitem(JOBS, "sft", longer)
    job_module._identity.cache_clear()
    after = digest(identity(task("editgrpo", tmp_path)))
    assert after != before
    monkeypatch.setattr(job_module, "versions", lambda: {"torch": "9", "python": "3.99"})
    job_module._identity.cache_clear()
    newest = identity(task("editgrpo", tmp_path))
    assert digest(newest) != after and newest["versions"]["torch"] == "9"
    assert "python" not in newest["versions"]


def test_a_changed_recipe_is_told_and_refused(tmp_path, monkeypatch, capsys) -> None:
    for made in tasks_for("sft", tmp_path):
        leave(made, settings=True)
    assert stale(made) is None
    changed = dataclasses.replace(JOBS["sft"], settings=("sft.lr=0.5",))
    monkeypatch.setitem(JOBS, "sft", changed)
    job_module._identity.cache_clear()
    rate = made.recipe().sft.lr
    why = f"sft of seed 0: sft.lr {rate} -> 0.5"
    assert stale(task("sft", tmp_path)) == why
    assert main(["--job", "sft", "--out", str(tmp_path)]) == 2
    assert f"holds results of other settings ({why}); name another" in capsys.readouterr().err
    assert Result.load(made.result).facts["steps"] == 80, "nothing was removed"
