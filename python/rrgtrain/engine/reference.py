"""The frozen policy that KL and preference compare with, in as little memory as it can be had.

Training takes a copy of the weights that train. Training an adapter does not: its base is in memory
already, so the reference is the base with the adapter off, or, where the adapter had learned
something before this training, a second adapter that holds what it was.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, fields
from typing import Any

import torch
from peft import PeftModel

from rrgtrain.policy.policy import Policy

START = "rrgtrain_start"


@dataclass
class Reference(Policy):
    """A policy whose log-probabilities are the reference's inside `active()`, without gradient."""

    active: Callable[[], AbstractContextManager[Any]] = nullcontext
    release: Callable[[], None] = lambda: None


def reference_of(policy: Policy, *, shares: bool = True) -> Reference:
    """The policy as it is now, kept from what training will do to it.

    shares: a copy of the model shares with it what does not train.
    Call `release()` before the policy is saved: a second adapter goes with it.
    """
    model = policy.model
    if not isinstance(model, PeftModel):
        shared = {id(p): p for p in model.parameters() if shares and not p.requires_grad}
        return _view(policy, copy.deepcopy(model, shared).requires_grad_(False).eval())
    if _is_base(model):
        return _view(policy, model, active=lambda: _still(model, model.disable_adapter()))
    own = model.active_adapter
    model.add_adapter(START, model.peft_config[own])
    _copy_adapter(model, own, START)
    return _view(
        policy,
        model,
        active=lambda: _still(model, _switched(model, own)),
        release=lambda: model.delete_adapter(START),
    )


def computing(reference: Policy) -> AbstractContextManager[Any]:
    """The block in which a forward of `reference` is the reference's."""
    return reference.active() if isinstance(reference, Reference) else nullcontext()


def _view(policy: Policy, model: Any, **options: Any) -> Reference:
    kept = {f.name: getattr(policy, f.name) for f in fields(Policy) if f.name != "model"}
    return Reference(model=model, **kept, **options)


def _is_base(model: PeftModel) -> bool:
    """Whether the adapter changes nothing yet: LoRA begins with B = 0."""
    learned = [p for n, p in model.named_parameters() if "lora_B" in n or "lora_embedding_B" in n]
    other = [n for n, p in model.named_parameters() if p.requires_grad and "lora_" not in n]
    return bool(learned) and not other and not any(bool(p.any()) for p in learned)


@torch.no_grad()
def _copy_adapter(model: PeftModel, source: str, target: str) -> None:
    parameters = dict(model.named_parameters())
    for name, parameter in parameters.items():
        if f".{target}." in name:
            parameter.copy_(parameters[name.replace(f".{target}.", f".{source}.")])
            parameter.requires_grad_(False)


@contextmanager
def _switched(model: PeftModel, own: str) -> Iterator[None]:
    model.set_adapter(START, inference_mode=True)
    try:
        yield
    finally:
        model.set_adapter(own)


@contextmanager
def _still(model: Any, change: AbstractContextManager[Any]) -> Iterator[None]:
    """`change`, in evaluation mode: a reference has no dropout."""
    was_training = model.training
    model.eval()
    try:
        with change:
            yield
    finally:
        model.train(was_training)
