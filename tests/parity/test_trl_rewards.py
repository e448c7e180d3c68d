"""`trl_reward`, padded losses and shared prefixes called by TRL's own trainer."""

from __future__ import annotations

from types import MethodType, SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from bench.update_step import Case, Theirs, checkpoint, completions
from rrgkern import PolicyLoss, loss_scale, policy_loss, policy_loss_from_logits, token_logps
from rrgpolicy.model.load import load_policy
from rrgtrain.errors import RewardError
from rrgtrain.integrations.trl import SharedPrefix
from rrgtrain.integrations.trl_rewards import trl_reward
from rrgtrain.rewards import RewardService
from rrgtrain.schema import RewardSettings
from tests.parity.padded import FP64, Padded, padded, peer, unrounded
from tests.parity.trl_grpo import trl

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


LOSSES = ("grpo", "bnpo", "dr_grpo", "dapo")
VOCABULARY = 23


def spec_of(level: str, beta: float) -> PolicyLoss:
    return PolicyLoss(
        ratio_level=level, eps_low=0.1, eps_high=0.15, dual_clip=1.3, beta=beta, kl="k3"
    )


def batch(seed: int) -> tuple[Padded, Tensor, Tensor]:
    """The batch, and logits [B, T + 1, V] and labels [B, T] whose log-probabilities are its."""
    data = padded(seed)
    generator = torch.Generator().manual_seed(seed)
    rows, tokens = data.mask.shape
    logits = torch.randn(rows, tokens + 1, VOCABULARY, generator=generator, dtype=torch.float64)
    labels = torch.randint(VOCABULARY, (rows, tokens), generator=generator)
    shift = logits[:, :-1].log_softmax(-1).gather(-1, labels[..., None])[..., 0] - data.logps
    moved = {name: getattr(data, name) + shift for name in ("logps", "old", "ref")}
    logits[:, :-1][~data.mask] = torch.nan
    return data.changed(**moved), logits, labels.masked_fill(~data.mask, -100)


@pytest.mark.parametrize("loss", LOSSES)
def test_loss_and_gradient_are_trls_in_padded_tensors(loss: str) -> None:
    for number, (level, beta) in enumerate((("token", 0.0), ("token", 0.3), ("sequence", 0.3))):
        data, logits, labels = batch(number)
        options = {"delta": 1.3, "use_bias_correction_kl": False}
        theirs = trl(data, loss, level, beta=beta, epsilon=(0.1, 0.15), **options)
        mask = data.mask.int()
        counts = {"dr_grpo": {"max_length": data.limit}, "dapo": {"total_tokens": data.tokens}}
        rest = {
            "scale": unrounded(loss_scale(loss, mask=mask, **counts.get(loss, {}))),
            **{"old": data.old, "ref": data.ref, "mask": mask, "spec": spec_of(level, beta)},
        }
        leaf = logits.requires_grad_()
        logps = token_logps(leaf[:, :-1], labels, mask=mask).logps
        composed = policy_loss(logps, data.advantages, **rest).loss
        one_pass = policy_loss_from_logits(leaf[:, :-1], labels, data.advantages, **rest).loss
        by_logps, by_logits = torch.autograd.grad(composed, (logps, leaf), retain_graph=True)
        (direct,) = torch.autograd.grad(one_pass, leaf)
        for ours in (composed, one_pass):
            torch.testing.assert_close(ours.detach(), theirs.loss, **FP64)
        torch.testing.assert_close(by_logps[data.mask], theirs.gradient[data.mask], **FP64)
        torch.testing.assert_close(direct, by_logits, rtol=1e-9, atol=1e-14)
        assert not direct[:, :-1][~data.mask].any()


peer("trl")
CASE = Case(groups=2, members=3, length=12, pixels=56)


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Theirs:
    place = checkpoint(tmp_path_factory.mktemp("policy"), CASE, "tiny")
    made = Theirs(place, CASE, "cpu", torch.float32)
    with torch.no_grad():
        # At initialisation attention is nearly uniform, and a wrong mask would hardly show.
        for name, weight in made.model.named_parameters():
            if weight.dim() > 1 and "embed_tokens" not in name:
                weight.mul_(3.0)
    made.give(completions(load_policy(place), CASE))
    return made


def shared(trainer: Any) -> Any:
    return MethodType(SharedPrefix._get_per_token_logps_and_entropies, trainer)


def shuffled(inputs: dict[str, Any]) -> dict[str, Any]:
    """As TRL shuffles them: members of both groups by turns."""
    from trl.trainer.utils import (
        shuffle_sequence_dict,
        split_pixel_values_by_grid,
        unsplit_pixel_values_by_grid,
    )

    torch.manual_seed(3)
    return unsplit_pixel_values_by_grid(shuffle_sequence_dict(split_pixel_values_by_grid(inputs)))


@pytest.mark.parametrize("mixed", [False, True])
def test_loss_and_gradients_are_trls(
    mixed: bool, theirs: Theirs, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer, model = theirs.trainer, theirs.model
    monkeypatch.setattr(trainer, "temperature", 1.0)
    inputs = trainer._generate_and_score_completions(theirs.batch)
    inputs = shuffled(inputs) if mixed else inputs

    def outcome() -> tuple[float, dict[str, torch.Tensor]]:
        model.zero_grad()
        loss = trainer.compute_loss(model, inputs, num_items_in_batch=None)
        loss.backward()
        return float(loss), {
            n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None
        }

    loss, gradients = outcome()
    tokens: list[int] = []
    forward = model.model.language_model.forward

    def counted(*args: Any, **options: Any) -> Any:
        tokens.append(options["inputs_embeds"].shape[:2].numel())
        return forward(*args, **options)

    monkeypatch.setattr(model.model.language_model, "forward", counted)
    outcome()
    unshared = tokens.pop()
    monkeypatch.setattr(trainer, "_get_per_token_logps_and_entropies", shared(trainer))
    found, ours = outcome()
    assert tokens.pop() < unshared / 1.5
    assert found == pytest.approx(loss, rel=1e-5)
    assert ours.keys() == gradients.keys()
    for name, gradient in gradients.items():
        assert (ours[name] - gradient).norm() <= 1e-4 * gradient.norm(), name
