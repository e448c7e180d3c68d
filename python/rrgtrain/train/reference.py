"""Keep a frozen reference policy for KL and preference, sharing memory where possible.

Full training takes a copy of the weights that train, in `policy.dtype`. With an adapter the
reference is the base with the adapter off, or, where the adapter had learned something before, a
second adapter that holds what it was. Another checkpoint (`rl.reference`) is loaded, unless it is
what the adapter stands on.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch

from rrgpolicy.model.adapters import is_adapted
from rrgpolicy.model.load import load_policy, read_config
from rrgpolicy.model.policy import Policy
from rrgpolicy.ranks import ranks, sharding
from rrgpolicy.ranks.layout import Layout
from rrgtrain.errors import UserError
from rrgtrain.schema import PolicySettings
from rrgtrain.state.remembered import TINY, base_of

START = "rrgtrain_start"


@dataclass
class Reference(Policy):
    """A policy whose log-probabilities are the reference's inside `active()`, without gradient."""

    active: Callable[[], AbstractContextManager[Any]] = nullcontext
    release: Callable[[], None] = lambda: None


def reference_of(policy: Policy, *, shares: bool = True) -> Reference:
    """The policy as it is now, kept from what training will do to it.

    shares: a copy of the model shares with it what does not train.
    Call `release()` before the policy is saved: a second adapter goes with it. That of a sharded
    policy has its weights after `sharding.setup`.
    """
    model = policy.model
    if sharding.is_sharded(policy):
        model, layout = sharding.frozen_copy(policy)
        return _view(policy, model, layout=layout)
    if not is_adapted(model):
        held = {id(p): _held(p, policy.dtype, shares) for p in model.parameters()}
        frozen = copy.deepcopy(model, held).requires_grad_(False).eval()
        return _view(policy, frozen, layout=Layout())
    if _is_base(model):
        return _view(policy, model, active=lambda: _still(model, model.disable_adapter()))
    own = model.active_adapter
    config: Any = copy.copy(model.peft_config[own])
    config.init_lora_weights = False  # PiSSA's and the like would take from the base once more
    model.add_adapter(START, config)
    _copy_adapter(model, own, START)
    reference = _view(policy, model, active=lambda: _still(model, _switched(model, own)))
    reference.release = lambda: model.delete_adapter(START)
    return reference


def check_reference(asked: str, start: str, work: Path) -> None:
    """UserError where `asked`, another `rl.reference` than "start", names no checkpoint.

    Nothing is loaded. start: `policy.path`. work: the directory of the run, where a tiny policy's
    base will lie.
    """
    if asked == "base":
        asked = base_of(start, work)
        if start == TINY:
            return
    read_config(asked)


def named_reference(
    policy: Policy, asked: str, start: PolicySettings, work: Path, *, shares: bool = True
) -> Reference:
    """The frozen policy that `asked`, `rl.reference`, names, "start" being `policy` as it is now.

    start: by which the policy was opened. work: the directory of the run. shares: as in
    `reference_of`. Raises UserError for a base that is not known, or a checkpoint that reads other
    tokens or sees less than the policy.
    """
    if asked == "start":
        return reference_of(policy, shares=shares)
    path = base_of(start.path, work) if asked == "base" else asked
    model: Any = policy.model
    if is_adapted(model) and _stands_on(model, path):
        return _view(policy, model, active=lambda: _still(model, model.disable_adapter()))
    other = load_policy(
        path,
        dtype=policy.dtype,
        device=policy.device,
        attn=policy.attn,
        vision_attn=start.vision_attn,
        unread=ranks.size() > 1,
    )
    same_eyes = other.sees_images == policy.sees_images
    if not same_eyes or other.tokenizer.get_vocab() != policy.tokenizer.get_vocab():
        raise UserError(
            f"rl.reference={asked}: {path} has another vocabulary or input than the policy, so "
            "their log-probabilities cannot be compared; name a checkpoint of the same family"
        )
    # its tower may be another, and the policy's cache holds what the policy's has seen
    model = other.model.requires_grad_(False).eval()
    return _view(policy, model, vision_cache=None, layout=other.layout)


def _stands_on(model: Any, path: str) -> bool:
    """Whether the model with its adapter off is the checkpoint at `path`."""
    beside = [n for n, p in model.named_parameters() if p.requires_grad and "lora_" not in n]
    under = str(model.get_base_model().name_or_path)
    same = under == path or (Path(under).is_dir() and Path(under).resolve() == Path(path).resolve())
    begun = getattr(model.peft_config[model.active_adapter], "init_lora_weights", True)
    return same and not beside and begun in (True, False, "gaussian")  # PiSSA's takes from the base


def computing(reference: Policy) -> AbstractContextManager[Any]:
    """The block in which a forward of `reference` is the reference's."""
    return reference.active() if isinstance(reference, Reference) else nullcontext()


def _held(parameter: torch.nn.Parameter, dtype: torch.dtype, shares: bool) -> torch.nn.Parameter:
    """The parameter itself where it may be shared, else a copy in the dtype of computation."""
    if shares and not parameter.requires_grad and parameter.dtype == dtype:
        return parameter
    return torch.nn.Parameter(parameter.detach().to(dtype, copy=True), requires_grad=False)


def _view(policy: Policy, model: Any, **options: Any) -> Reference:
    kept = {f.name: getattr(policy, f.name) for f in fields(Policy) if f.name != "model"}
    return Reference(model=model, **{**kept, **options})


def _is_base(model: Any) -> bool:
    """Whether the adapter changes nothing yet: LoRA begins with B = 0."""
    learned = [p for n, p in model.named_parameters() if "lora_B" in n or "lora_embedding_B" in n]
    other = [n for n, p in model.named_parameters() if p.requires_grad and "lora_" not in n]
    return bool(learned) and not other and not any(bool(p.any()) for p in learned)


@torch.no_grad()
def _copy_adapter(model: Any, source: str, target: str) -> None:
    parameters = dict(model.named_parameters())
    for name, parameter in parameters.items():
        if f".{target}." in name:
            parameter.copy_(parameters[name.replace(f".{target}.", f".{source}.")])
            parameter.requires_grad_(False)


@contextmanager
def _switched(model: Any, own: str) -> Iterator[None]:
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
