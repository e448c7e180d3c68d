"""Parts of an update that tests of other rooms replace; here alone stands where they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from rrgtrain.train import batch, gradients

PLACES = {
    "policy_loss": (gradients, "policy_loss"),
    "forward": (gradients, "_forward"),
    "preference_loss": (gradients, "preference_loss"),
    "loss_scale": (batch, "loss_scale"),
    "as_objective": (batch, "as_objective"),
}


def replace_part(
    monkeypatch: pytest.MonkeyPatch, part: str, around: Callable[[Callable], Callable[..., Any]]
) -> None:
    """Put `around(part)` in the place of a part of the update."""
    module, name = PLACES[part]
    monkeypatch.setattr(module, name, around(getattr(module, name)))
