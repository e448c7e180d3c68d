"""Log-probs and gradients of members one at a time, by the whole model's own forward.

That places the images, derives the positions and masks by itself, so it shares nothing with what is
tested. In fp64 log-probs agree to ten digits, so a mistake has nowhere to hide (gradients to six:
transformers normalises in fp32 whatever the dtype).
"""

from __future__ import annotations

from typing import Any

import torch

from rrgpolicy.model.prompt import EncodedPrompt

Group = tuple[EncodedPrompt, list[torch.Tensor]]

CLOSE = {torch.float64: (1e-10, 1e-6), torch.float32: (1e-5, 1e-5)}


def own_logits(model: Any, p: EncodedPrompt, ids: torch.Tensor) -> torch.Tensor:
    """[T, V], the logits of `ids` behind a prompt."""
    row = {"input_ids": torch.cat([p.inputs["input_ids"], ids[None]], 1)}
    for key, values in p.per_token.items():
        row[key] = torch.cat([values, torch.zeros_like(ids)[None]], 1)
    return model(**row, **p.images, use_cache=False).logits[0, len(p.input_ids) - 1 : -1]


def unshared(model: Any, groups: list[Group]) -> torch.Tensor:
    """By the model's own forward, one completion with its whole prompt at a time."""
    logps = [
        own_logits(model, p, ids).log_softmax(-1).gather(1, ids[:, None])[:, 0]
        for p, members in groups
        for ids in members
    ]
    return torch.cat(logps) if logps else torch.zeros(0)


def gradients(model: torch.nn.Module, logps: torch.Tensor) -> dict[str, torch.Tensor]:
    """Gradient of a sum with a different weight on every token."""
    model.zero_grad(set_to_none=True)
    weights = torch.linspace(-1.0, 2.0, logps.numel(), dtype=logps.dtype).cos()
    (logps * weights.view_as(logps)).sum().backward()
    return {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}


def assert_equal(model: torch.nn.Module, ours: torch.Tensor, theirs: torch.Tensor) -> None:
    """Equal log-probs, and equal gradients of every parameter that either reaches."""
    close, close_gradient = CLOSE[next(model.parameters()).dtype]
    torch.testing.assert_close(ours, theirs, rtol=0, atol=close, check_dtype=False)
    left, right = gradients(model, ours), gradients(model, theirs)
    trained = {n for n, p in model.named_parameters() if p.requires_grad}
    assert set(left) == set(right) <= trained
    assert left, "nothing has a gradient: the comparison would be empty"
    for name, gradient in left.items():
        scale = float(right[name].abs().max())
        torch.testing.assert_close(
            gradient,
            right[name],
            rtol=0,
            atol=close_gradient * max(1.0, scale),
            msg=lambda m, n=name: n + m,
        )
