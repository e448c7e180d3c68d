"""Trackers get the rows of metrics.jsonl; one that is missing or fails is told in one line."""

from __future__ import annotations

import sys
import types
import warnings
from typing import Any

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from rrgreport.run_files import read_metrics
from rrgtrain.errors import UserError
from rrgtrain.log.logs import OPTIONS, RunLog, require_trackers
from rrgtrain.schema import LogSettings
from rrgtrain.state.rundir import RunDir

KEY = "0123456789abcdef-secret"


class Service:
    """Stands for the package of a tracker, and for the run that its `init` gives."""

    def __init__(self, refuses: int = 0) -> None:
        self.begun: list[dict] = []
        self.rows: list[tuple[dict, int | None]] = []
        self.defined: list[tuple] = []
        self.finished, self.refuses = 0, refuses
        self.config: dict[str, str] = {}

    def init(self, **options: object) -> Service:
        self.begun.append(options)
        return self

    def define_metric(self, name: str, step_metric: str | None = None) -> None:
        self.defined.append((name, step_metric))

    def log(self, row: dict, step: int | None = None) -> None:
        if self.refuses:
            self.refuses -= 1
            raise ConnectionError(f"no answer for {KEY}")
        self.rows.append((row, step))

    def finish(self) -> None:
        self.finished += 1


def mlflow(service: Service) -> types.SimpleNamespace:
    """Stands for MLflow, whose functions are the module's."""

    def start_run(**options: object) -> types.SimpleNamespace:
        service.begun.append(options)
        number = options["run_id"] or f"id {len(service.begun)}"
        return types.SimpleNamespace(info=types.SimpleNamespace(run_id=number))

    return types.SimpleNamespace(
        search_experiments=lambda filter_string: [],
        create_experiment=lambda **options: options["name"],
        start_run=start_run,
        log_metrics=lambda row, step: service.log(row, step),
        end_run=service.finish,
    )


@pytest.fixture
def services(monkeypatch: pytest.MonkeyPatch) -> dict[str, Service]:
    made = {name: Service() for name in OPTIONS}
    for name, service in made.items():
        module: Any = mlflow(service) if name == "mlflow" else service
        monkeypatch.setitem(sys.modules, name, module)
    return made


def test_several_trackers_and_tensorboard_get_the_same_numbers(run, services):
    named = dict.fromkeys(OPTIONS, "chest")
    with RunLog(run, LogSettings(trackers=named)) as log:
        log.write("dr_grpo+orapo", 4, {"edits/a.b": torch.tensor(0.25)})
    assert services.pop("wandb").rows == [
        ({"dr_grpo+orapo/step": 4, "dr_grpo+orapo/edits/a.b": 0.25}, None)
    ]
    for name, service in services.items():
        assert service.rows == [({"dr_grpo_orapo/edits/a_b": 0.25}, 4)], name
        assert len(service.begun) == service.finished == 1, name
    assert services["trackio"].begun[0]["project"] == "chest"
    assert len(services["swanlab"].begun[0]["id"]) == 21
    assert services["mlflow"].begun[0]["experiment_id"] == "chest"
    events = EventAccumulator(str(run.events / "dr_grpo+orapo"))
    events.Reload()
    assert [(e.step, e.value) for e in events.Scalars("edits/a.b")] == [(4, 0.25)]


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("mlflow", "log.trackers.mlflow names a project, but mlflow is not installed; pip install"),
        ("ml_flow", "log.trackers.ml_flow names no tracker that is known; did you mean mlflow?"),
        ("x", "log.trackers.x names no tracker that is known; known are wandb, mlflow, trackio"),
    ],
)
def test_a_tracker_that_is_missing_or_unknown(name, told, monkeypatch):
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(UserError) as error:
        require_trackers(LogSettings(trackers={name: "chest"}))
    assert str(error.value).startswith(told) and "\n" not in str(error.value)


def test_one_that_cannot_start_is_told_without_what_it_says(run, services, monkeypatch):
    def refused(**_: object) -> None:
        raise PermissionError(f"key {KEY} is not valid")

    monkeypatch.setattr(services["trackio"], "init", refused)
    with pytest.raises(UserError, match="trackio cannot start \\(PermissionError\\); log") as error:
        RunLog(run, LogSettings(trackers={"mlflow": "chest", "trackio": "chest"}))
    assert services["mlflow"].finished == 1
    assert KEY not in str(error.value) and error.value.__cause__ is None


def test_one_that_keeps_failing_is_left_alone(run: RunDir, services: dict[str, Service]) -> None:
    services["trackio"].refuses = 100
    log = RunLog(run, LogSettings(trackers={"trackio": "chest", "mlflow": "chest"}))
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for step in range(10):
            log.write("rl", step, {"reward": 1.0})
        log.close()
    assert services["trackio"].refuses == 97 and len(services["mlflow"].rows) == 10
    assert [str(w.message).split(";")[0] for w in told] == [
        "trackio did not take the metrics of rl, step 0 (ConnectionError)",
        "trackio failed 3 times in a row and is not asked again in this run",
    ]
    assert services["trackio"].finished == 1


def test_one_that_cannot_start_ends_no_resume(run, services, monkeypatch):
    """A run that is requeued by night ended where the tracker was down."""

    def refused(**_: object) -> None:
        raise SystemExit(f"no answer for {KEY}")

    settings = LogSettings(trackers={"trackio": "chest", "mlflow": "chest"})
    RunLog(run, settings).close()
    monkeypatch.setattr(services["trackio"], "init", refused)
    with pytest.warns(UserWarning, match="trackio cannot start .SystemExit. and is not") as told:
        log = RunLog(run, settings)
    log.write("rl", 0, {"reward": 1.0})
    log.close()
    assert len(told) == 1 and KEY not in str(told[0].message)
    assert len(services["mlflow"].rows) == len(read_metrics(run.metrics)) == 1


@pytest.mark.parametrize("part", ["start", "log", "finish"])
def test_tensorboard_that_fails_is_told_once_and_ends_no_run(part, run, monkeypatch):
    def refused(*_: object, **__: object) -> None:
        raise OSError(5, "Input/output error")

    with RunLog(run) as log:
        log.write("rl", 0, {"reward": 1.0})
        end = log.size
        log.write("rl", 1, {"reward": 1.0})
    monkeypatch.setattr(f"accelerate.tracking.TensorBoardTracker.{part}", refused)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        with RunLog(run) as log:
            log.rewind_to(end)
            for phase in ("rl", "rl_val"):
                log.write(phase, 1, {"reward": 1.0})
    assert [str(w.message).split(" (")[0] for w in told] in (
        ["TensorBoard did not take the metrics of rl, step 1"]
        + [
            "TensorBoard failed 3 times in a row and is not asked again in this run; metrics.jsonl "
            "has all rows"
        ]
        * (part == "start"),
        ["TensorBoard did not end well"],
    )
    assert [row["step"] for row in read_metrics(run.metrics)] == [0, 1, 1]


def test_the_world_of_torchrun_is_no_matter_to_the_trackers(run, monkeypatch):
    from accelerate import PartialState

    PartialState._reset_state()
    threads = torch.get_num_threads()
    joined = torch.distributed.is_initialized()  # an earlier test may have a world of one
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    for name, value in {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0"}.items():
        monkeypatch.setenv(name, value)
    with RunLog(run) as log:
        log.write("rl", 0, {"reward": 1.0})
    assert PartialState().num_processes == 1 and torch.get_num_threads() == threads
    assert torch.distributed.is_initialized() == joined


def test_a_resume_goes_on_in_the_same_run_and_sends_no_step_again(run, services):
    settings = LogSettings(trackers=dict.fromkeys(OPTIONS, "chest"))
    with RunLog(run, settings) as log:
        for step in range(7):
            log.write("sft", step, {"loss": 1.0})
            if step == 3:
                size = log.size
    with RunLog(run, settings) as log:
        assert log.rewind_to(size) == 3
        for step in range(4, 10):
            log.write("sft", step, {"loss": 1.0})
        log.write("rl", 0, {"loss": 1.0})
    assert [row["step"] for row in read_metrics(run.metrics)] == [*range(10), 0]
    assert len(services.pop("wandb").rows) == 7 + 6 + 1
    for name, service in services.items():
        assert [step for _, step in service.rows] == [*range(10), 0], name
    first, second = services["mlflow"].begun
    assert first["run_id"] is None and second["run_id"] == "id 1"
