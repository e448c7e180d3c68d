"""TRL's trainer with shared prefixes: its own log-probs, loss and gradients, from fewer tokens."""

from __future__ import annotations

from types import MethodType
from typing import Any

import pytest
import torch

from bench.update_step import Case, Theirs, checkpoint, completions
from rrgpolicy.model.load import load_policy
from rrgtrain.integrations.trl import SharedPrefix
from tests.parity.padded import peer

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


def test_log_probs_and_entropies_row_by_row(theirs: Theirs) -> None:
    trainer = theirs.trainer
    inputs = shuffled(trainer._generate_and_score_completions(theirs.batch))
    ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], 1)
    mask = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], 1)
    kept = inputs["completion_mask"].bool()
    images = ("pixel_values", "image_grid_thw", "num_images", "mm_token_type_ids")
    arguments = {"compute_entropy": True, **{k: inputs[k] for k in images}}
    with torch.no_grad():
        wanted, found = (
            method(trainer.model, ids, mask, kept.shape[1], **arguments)
            for method in (trainer._get_per_token_logps_and_entropies, shared(trainer))
        )
    for a, b in zip(found[:2], wanted[:2], strict=True):
        torch.testing.assert_close(a[kept], b[kept], rtol=0, atol=1e-4)
        assert not a[~kept].any()
