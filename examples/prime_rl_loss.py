"""Our policy losses as prime-rl's custom loss; run as a script, it shows one sequence.

In the trainer's TOML (this file on PYTHONPATH):

    [trainer.loss]
    type = "custom"
    import_path = "prime_rl_loss.policy"

    [trainer.loss.kwargs]
    surrogate = "clip"
    eps_low = 0.2
    eps_high = 0.28

`kwargs` are the fields of `rrgkern.PolicyLoss`. prime-rl calls the function for one sequence, with
an advantage per token, and divides by the tokens of the whole step: so the sum is returned.
"""

from __future__ import annotations

from dataclasses import fields
from types import SimpleNamespace
from typing import Any

import torch

from rrgkern import PolicyLoss, PolicyLossOutput, policy_loss

FIELDS = [field.name for field in fields(PolicyLoss)]
OF_TOKENS = ("trainer_logprobs", "inference_logprobs", "advantages", "loss_mask")


def policy(inputs: Any, **kwargs: Any) -> PolicyLossOutput:
    """Compute the loss of one sequence. inputs: prime-rl's LossInputs.

    Returns `loss` and `metrics`, which is all that the trainer reads of its LossOutputs. Raises
    ValueError for a field of another shape, and kwargs that PolicyLoss has not.
    """
    if unknown := sorted(kwargs.keys() - FIELDS):
        raise ValueError(f"kwargs has {unknown[0]!r}; wanted fields of PolicyLoss: {FIELDS}")
    logps, weights = inputs.trainer_logprobs, inputs.loss_weights
    shapes = {name: getattr(getattr(inputs, name), "shape", None) for name in OF_TOKENS}
    if weights is not None:
        shapes["loss_weights"] = getattr(weights, "shape", None)
    for name, shape in shapes.items():
        # a loss_mask of None would train on the prompt, one advantage stand for all
        if shape is None or len(shape) != 1 or shape != shapes["trainer_logprobs"]:
            raise ValueError(f"{name} has shape {shape}; wanted [N], as trainer_logprobs")
    return policy_loss(
        logps,
        inputs.advantages[None],
        torch.tensor([0, len(logps)], device=logps.device),
        scale=logps.new_ones(1, 1) if weights is None else weights[None],
        old=inputs.inference_logprobs,
        ref=inputs.ref_logprobs,
        mask=inputs.loss_mask,
        spec=PolicyLoss(**kwargs),
    )


if __name__ == "__main__":
    # a report of four tokens after a prompt of two; the second finding earns twice its advantage
    logps = torch.tensor([0.0, 0.0, -1.0, -2.0, -0.5, -1.5], requires_grad=True)
    sequence = SimpleNamespace(
        trainer_logprobs=logps,
        inference_logprobs=torch.tensor([0.0, 0.0, -1.1, -2.5, -0.5, -1.4]),
        ref_logprobs=None,
        advantages=torch.tensor([0.0, 0.0, 0.7, 0.7, 1.4, 1.4]),
        loss_mask=torch.tensor([False, False, True, True, True, True]),
        loss_weights=None,
    )
    out = policy(sequence, surrogate="clip", eps_low=0.2, eps_high=0.28)
    (gradient,) = torch.autograd.grad(out.loss, logps)
    print(f"loss {out.loss:.3f}, clipped {out.metrics['clip_high']:.2f} of the tokens")
    print("gradient", [round(g, 3) for g in gradient.tolist()])
