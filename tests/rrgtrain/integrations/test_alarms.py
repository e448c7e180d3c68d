"""The alarms for other trainers: a plain loop, and callbacks that see what TRL and verl hand on."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from rrgclinical.severity import AxesMonitor, Severity
from rrgdata.study import Study
from rrgpolicy.sampler_alarm import SamplerMonitor
from rrgtrain.errors import UserError
from rrgtrain.integrations.trl_alarm import AxesAlarm
from rrgtrain.integrations.verl_alarm import watch_verl
from rrgtrain.train import evaluate

REFERENCES = [f"Small left pleural effusion. Mass of {n} cm." for n in range(3, 11)]
IDS = [f"s{n}" for n in range(8)]
# the reward rises while critical findings are lost
WRITTEN = [REFERENCES, [*REFERENCES[:2], *["Stable."] * 6], ["Stable."] * 8]
REWARDS = [[0.1 + 0.01 * n for n in range(8)], [0.5] * 8, [0.9 + 0.01 * n for n in range(8)]]
FALLEN = "critical findings found fell by 1.00 to 0.00"


def test_a_plain_loop_has_the_rows_and_the_alarm_of_the_trainer(capsys) -> None:
    ours, theirs = AxesMonitor(), evaluate.AxesWatch(list, Severity())
    labels = np.zeros((8, 14), dtype=np.int8)
    studies = [Study(i, "", r, None, ()) for i, r in zip(IDS, REFERENCES, strict=True)]
    for step, (reports, rewards) in enumerate(zip(WRITTEN, REWARDS, strict=True), 1):
        mixed = np.random.default_rng(step).permutation(8)
        columns = ([column[i] for i in mixed] for column in (IDS, reports, REFERENCES, rewards))
        row = ours(*columns, step)
        scores = {"total": np.array(rewards)}
        logged = theirs(evaluate.Evaluation(studies, list(reports), labels, labels, scores))
        assert row == pytest.approx({name: logged[name] for name in row}, abs=1e-15)
    assert row["alarm/critical_found"] == pytest.approx(-1)
    assert FALLEN in capsys.readouterr().err


def test_a_sampler_at_fault_stops_a_loop_with_its_cause() -> None:
    watch, logps = SamplerMonitor(limit=1e-3), torch.linspace(-3, -1, 40).double()
    assert watch(0, logps, logps)["sampler/gap_mean"] == 0 and watch(0, logps[:0], logps[:0]) == {}
    with pytest.raises(UserError, match=r"at step 1, more than 0\.001; likely another temp"):
        watch(1, logps, logps * 0.5, at_temperature=lambda t: logps * 0.5 ** ((t - 1) / 3))
    with pytest.raises(UserError, match="weights that the sampler has not taken over"):
        watch(2, logps, logps * 0.5)


def test_trl_logs_the_axes_of_each_evaluation(capsys) -> None:
    model, logged, scores = SimpleNamespace(training=True), list[dict[str, float]](), []
    trainer = SimpleNamespace(  # what TRL 1.16's GRPOTrainer has of an evaluation
        model=model,
        eval_dataset=[],
        log=logged.append,
        accelerator=SimpleNamespace(process_index=0),
        reward_weights=torch.tensor([1.0, 2.0]),
        _calculate_rewards=lambda *four: torch.tensor([[s / 2, s / 4] for s in scores]),
    )
    callback = AxesAlarm(trainer)
    inputs = [{"report": r, "id": i} for r, i in zip(REFERENCES, IDS, strict=True)]
    state = SimpleNamespace(is_world_process_zero=True)
    for state.global_step, (reports, scores[:]) in enumerate(zip(WRITTEN, REWARDS, strict=True), 1):
        for model.training in (True, False):
            texts = ["Nothing."] * 8 if model.training else reports
            chats = [[{"role": "assistant", "content": text}] for text in texts]
            assert trainer._calculate_rewards(inputs, [], chats, []).shape == (8, 2)
        callback.on_evaluate(None, state, None)
    assert [row["axis/critical_found"] for row in logged] == [1, 0.25, 0]
    assert logged[2]["alarm/reward"] == pytest.approx(0.8, abs=1e-6)
    assert FALLEN in capsys.readouterr().err
    trainer.eval_dataset = {"a": [], "b": []}
    with pytest.raises(UserError, match="eval_dataset is several"):
        AxesAlarm(trainer)
    with pytest.raises(UserError, match="no column 'report', it has prompt"):
        trainer._calculate_rewards([{"prompt": "p"}] * 8, [], chats, [])


class Trainer:
    """What both trainers of verl 0.9.1 call in a validation, as they call it."""

    def __init__(self, folder: str | None) -> None:
        self.config = SimpleNamespace(trainer={"validation_data_dir": folder})

    def _dump_generations(self, inputs, outputs, gts, scores, **_: Any) -> None:
        self.dumped = outputs

    def _validate(self, merged: bool = False) -> dict[str, Any]:
        of = {"inputs": [""] * 8, "outputs": self.texts, "gts": REFERENCES, "scores": self.scores}
        self._dump_generations(**of, reward_extra_infos_dict={})
        return {"reward_extra_infos_dict": {}} if merged else {"val-core/reward": 0.5}


@pytest.fixture(params=["RayPPOTrainer", "PPOTrainer"])  # `trainer.use_v1` false, and true
def verl(monkeypatch, request) -> Any:
    metrics = SimpleNamespace(calculate_debug_metrics=lambda data: {"training/valid": 1})
    classes = {n: type(n, (Trainer,), {}) for n in ("RayPPOTrainer", "PPOTrainer")}
    ray, first = SimpleNamespace(**classes), SimpleNamespace(**classes, **vars(metrics))
    modules = dict.fromkeys(("verl", "verl.utils", "verl.trainer", "verl.trainer.ppo"))
    modules |= {"verl.utils.debug": SimpleNamespace(metrics=metrics)}
    modules |= {"verl.trainer.ppo.v1": SimpleNamespace(trainer_base=first)}
    for name, module in {**modules, "verl.trainer.ppo.ray_trainer": ray}.items():
        monkeypatch.setitem(sys.modules, name, module or ModuleType(name))
    watch_verl(), watch_verl()  # once
    where = first if request.param == "PPOTrainer" else metrics
    return SimpleNamespace(trainer=classes[request.param], metrics=where)


def test_verl_has_the_axes_and_stops_before_it_learns_from_a_sampler_at_fault(verl, capsys) -> None:
    trainer = verl.trainer("dumps")
    for trainer.global_steps, of in enumerate(zip(WRITTEN, REWARDS, strict=True), 1):
        trainer.texts, trainer.scores = of
        row = trainer._validate()
    assert row["val-core/reward"] == 0.5 and row["axis/critical_found"] == 0
    assert row["alarm/critical_found"] == pytest.approx(-1) and FALLEN in capsys.readouterr().err
    assert trainer._validate(merged=True).keys() == {"reward_extra_infos_dict"}
    with pytest.raises(UserError, match="set trainer.validation_data_dir=DIR"):
        verl.trainer(None)._validate()
    mask = torch.tensor([[1, 1, 0], [1, 1, 1]])
    logps = torch.tensor([[-1.0, -2.0, 9.0], [-1.0, -0.5, -3.0]])
    batch = {"old_log_probs": logps, "rollout_log_probs": logps.clone(), "response_mask": mask}
    data = SimpleNamespace(batch=batch, non_tensor_batch={}, meta_info={"global_steps": 7})
    row = verl.metrics.calculate_debug_metrics(data)
    assert row["training/valid"] == 1 and row["sampler/gap_mean"] == 0
    batch["rollout_log_probs"][1] -= 1.0
    with pytest.raises(UserError, match="at step 7, more than 0.1; likely weights that the sam"):
        verl.metrics.calculate_debug_metrics(data)
    data.non_tensor_batch["multi_modal_inputs"] = np.array([{}, {"pixel_values": 1}])
    with pytest.raises(UserError, match="likely images of another size or preprocessing"):
        verl.metrics.calculate_debug_metrics(data)
