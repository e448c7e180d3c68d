"""`trl_reward` called by TRL's own `GRPOTrainer._calculate_rewards`, as its `reward_funcs`."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from rrgtrain.errors import RewardError
from rrgtrain.integrations.trl_rewards import trl_reward
from rrgtrain.rewards import RewardService
from rrgtrain.schema import RewardSettings
from tests.parity.padded import peer

GRPOTrainer = peer("trl.trainer.grpo_trainer").GRPOTrainer

COMPLETIONS = ["Cardiomegaly. Edema.", "Lungs are clear.", "", "No edema. Fracture."]
REFERENCES = ["Edema.", "Edema.", "Clear.", "Clear."]


def rewarded(service: RewardService, step: int) -> tuple[torch.Tensor, dict[str, float]]:
    """[R, 1] rewards as the trainer has them, and what was logged beside."""
    logged: dict[str, float] = {}
    trainer = SimpleNamespace(
        accelerator=SimpleNamespace(device=torch.device("cpu"), is_main_process=True),
        args=SimpleNamespace(report_to=[]),
        state=SimpleNamespace(global_step=step, max_steps=10),
        environments=None,
        reward_funcs=[trl_reward(service, name="clinical")],
        reward_processing_classes=[None],
        reward_func_names=["clinical"],
        _log_completion_extra=lambda *_: None,
        _log_metric=logged.__setitem__,
    )
    rows = [{"prompt": "p", "report": reference, "id": "x"} for reference in REFERENCES]
    ids = [[1]] * len(rows)
    found = GRPOTrainer._calculate_rewards(trainer, rows, ["p"] * len(rows), COMPLETIONS, ids)
    return found, logged


def test_the_trainer_gets_the_weighted_total() -> None:
    service = RewardService(
        RewardSettings(terms={"label_f1": 1.0, "bleu2": 0.5}, starts={"bleu2": 0.8})
    )
    scores = service(COMPLETIONS, REFERENCES)
    for step, wanted in ((7, scores["label_f1"]), (8, scores["total"])):
        found, logged = rewarded(service, step)
        assert found.tolist() == torch.tensor(wanted, dtype=torch.float32)[:, None].tolist()
        assert logged["clinical/bleu2"] == pytest.approx(scores["bleu2"].mean())
    assert scores["label_f1"].tolist() != scores["total"].tolist()


def test_a_term_that_fails_stops_the_trainer() -> None:
    service = RewardService(RewardSettings(terms={"label_f1": 1.0}))
    service.labeller.label = None  # type: ignore[assignment, method-assign]
    with pytest.raises(RewardError, match="reward term label_f1 failed: TypeError"):
        rewarded(service, 0)
