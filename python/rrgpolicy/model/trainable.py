"""Choose the parts of a policy that a stage trains."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rrgclinical.common.errors import UserError
from rrgpolicy.model.policy import Policy


@contextmanager
def training_only(policy: Policy, part: str) -> Iterator[None]:
    """Inside, `all` trains what trains anyway; `vision` leaves out everything but the tower and
    its projector (DEER's first stage).

    Raises UserError where nothing would be left to train.
    """
    if part == "all":
        yield
        return
    if not policy.sees_images:
        raise UserError(
            f"sft.train=vision, but a {type(policy.backbone).__name__} has no vision tower; use "
            "sft.train=all"
        )
    inside = {id(p) for _, p in policy.eyes()}
    frozen = [p for p in policy.model.parameters() if p.requires_grad and id(p) not in inside]
    if policy.vision_frozen:
        raise UserError(
            "sft.train=vision with a frozen vision tower trains nothing; "
            "use policy.freeze_vision=false or sft.train=all"
        )
    for parameter in frozen:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in frozen:
            parameter.requires_grad_(True)
