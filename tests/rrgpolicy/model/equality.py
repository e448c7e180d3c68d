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


def unshared(model: Any, groups: list[Group]) -> torch.Tensor:
    dtype = next(model.parameters()).dtype
    logps = []
    for p, members in groups:
        for member in members:
            ids = torch.cat([p.input_ids, member])
            types = torch.cat([p.mm_token_type_ids, torch.zeros_like(member)])
            images = {}
            if p.pixel_values is not None:
                images = {
                    "pixel_values": p.pixel_values.to(dtype),
                    "image_grid_thw": p.image_grid_thw,
                    "mm_token_type_ids": types[None].int(),
                }
            logits = model(input_ids=ids[None], **images).logits[0]
            scored = logits[len(p.input_ids) - 1 : -1].log_softmax(-1)
            logps.append(scored.gather(1, member[:, None]).squeeze(1))
    return torch.cat(logps)


def gradients(model: torch.nn.Module, logps: torch.Tensor) -> dict[str, torch.Tensor]:
    """Gradient of a sum with a different weight on every token."""
    model.zero_grad()
    weights = torch.linspace(-1.0, 2.0, len(logps)).cos()
    (logps * weights).sum().backward()
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
