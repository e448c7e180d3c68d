"""Name what would keep a loop from learning, by one dry step."""

from __future__ import annotations

import inspect
import math
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from rrgpolicy.model.prompt import TOKEN_TYPES
from rrgpolicy.model.template import NO_KWARGS, parted

# Above it the second moment of a weight in bf16 stops growing long before it is right.
BETA2 = 0.99
# Weights of a group, at most about, of which a median is taken.
SAMPLED = 2**20
# Of two norms that are one, relative: torch may sum gradients in bf16.
NEAR = 0.02
SHOWN = 48  # characters on either side of where a template and training part
NAMES = 3  # parameters that a line names


class LoopFault(NamedTuple):
    """Name a fault, one of `MENDS`, with a line for a reader and its mending."""

    name: str
    line: str
    mend: str


@dataclass(frozen=True)
class DryStep:
    """Hold what a dry step has left.

    parameters: the model's by name, behind the step; trained: those of them that trained before it;
    changed: names of those whose `requires_grad` it changed. param_groups: the optimiser's, and
    held: their parameters; gradients: of these, norm: of all of them, dense: of those that are no
    DTensors; clipped: the norm that clipping used, None without. adapters: names of PEFT's.
    untyped: forwards that took images without token types.
    """

    parameters: Mapping[str, nn.Parameter]
    trained: Mapping[str, nn.Parameter]
    changed: Sequence[str]
    param_groups: Sequence[Mapping[str, Any]]
    held: Sequence[nn.Parameter]
    gradients: Mapping[nn.Parameter, Tensor]
    norm: float
    dense: float
    clipped: float | None
    adapters: Sequence[str]
    untyped: Sequence[str]


def preflight(  # noqa: PLR0913
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    step: Callable[[], Any],
    *,
    clip: Callable[[], Tensor | float] | None = None,
    groups: Sequence[Sequence[Any]] = (),
    tokenizer: Any = None,
    messages: Sequence[Mapping[str, Any]] = (),
    taught: str | Tensor | Sequence[int] | None = None,
    chat_template_kwargs: Mapping[str, Any] = NO_KWARGS,
    saved: Mapping[str, Any] | None = None,
    into: Mapping[str, Any] | None = None,
) -> list[LoopFault]:
    """Run one dry step, and name what would keep a loop from learning.

    Nothing is stepped: `step` and `zero_grad` of the optimiser do nothing inside. Gradients,
    `requires_grad`, training modes and the random states of torch, numpy and Python are afterwards
    as they were; a generator or a scheduler of the loop's own is not. Ranks call it at once. DDP
    and `fully_shard` are known, FSDP 1 and DeepSpeed are not.

    Args:
        model: the module that trains, its wrapper included, as it is before its first step.
        optimizer: torch's, or one that has its `param_groups`.
        step: computes the loss as the loop does, reference pass included, and calls backward for
            all micro-batches of an update; what it returns is not used.
        clip: the loop's clipping, called behind `step`, which returns the norm that it used.
        groups: the members of each prompt, texts or ids [T].
        tokenizer, messages: a conversation of text that ends with the assistant's answer.
        taught: what the loop trains for it, prompt and answer, as text or ids [T]; by default the
            template's generation prompt with the answer behind it.
        chat_template_kwargs: what the loop renders the template with.
        saved: entries of a checkpoint by name; into: those that they are loaded into, by default
            `model.state_dict()`.

    Returns:
        The faults, each with its name, a line and its mending; empty for a sound loop.

    Raises:
        TypeError: messages without a tokenizer. Else what `step`, `clip` or the template raises;
            everything is put back before.
    """
    if messages and tokenizer is None:
        raise TypeError("messages without a tokenizer; pass the one whose template renders them")
    made = _dry_step(model, optimizer, step, clip)
    lines = {name: rule(made) for name, rule in RULES.items()}
    lines["equal members"] = _equal_members(groups)
    if messages:
        other = _other_conversation(tokenizer, messages, taught, chat_template_kwargs)
        lines["another conversation"] = other
    if saved is not None:
        entries = model.state_dict() if into is None else into
        lines["saved otherwise"] = _saved_otherwise(saved, entries)
    return [LoopFault(name, line, MENDS[name]) for name, line in lines.items() if line]


def _dry_step(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    step: Callable[[], Any],
    clip: Callable[[], Tensor | float] | None,
) -> DryStep:
    flags = {p: p.requires_grad for p in model.parameters()}
    held = [p for group in optimizer.param_groups for p in group["params"]]
    with _put_back(model, optimizer, held), _watched(model) as untyped:
        step()
        named = dict(model.named_parameters())
        trains = {n: flags.get(p, p.requires_grad) for n, p in named.items()}
        gradients = {p: p.grad for p in held if p.grad is not None}
        return DryStep(
            parameters=named,
            trained={n: p for n, p in named.items() if trains[n]},
            changed=[n for n, p in named.items() if trains[n] != p.requires_grad],
            param_groups=optimizer.param_groups,
            held=held,
            gradients=gradients,
            # before clipping, which scales them in place
            norm=_norm(gradients.values()),
            dense=_norm(g for g in gradients.values() if not isinstance(g, DTensor)),
            clipped=None if clip is None else _number(clip()),
            adapters=sorted({a for m in model.modules() for a in getattr(m, "peft_config", ())}),
            untyped=[*untyped],
        )


@contextmanager
def _put_back(
    model: nn.Module, optimizer: torch.optim.Optimizer, held: Iterable[nn.Parameter]
) -> Iterator[None]:
    """Take no step inside; gradients, flags, modes and random states are as before afterwards."""
    before = [(p, p.grad, p.requires_grad) for p in {*model.parameters(), *held}]
    modes = [(module, module.training) for module in model.modules()]
    python, numpy = random.getstate(), np.random.get_state()
    with ExitStack() as stack:
        stack.enter_context(torch.random.fork_rng())
        for owner, name in ((optimizer, "step"), (optimizer, "zero_grad"), (model, "zero_grad")):
            stack.enter_context(mock.patch.object(owner, name, return_value=None))
        try:
            for parameter, _, _ in before:
                parameter.grad = None
            yield
        finally:
            for parameter, gradient, trains in before:
                parameter.requires_grad_(trains).grad = gradient
            for module, training in modes:
                module.training = training
            random.setstate(python)
            np.random.set_state(numpy)


@contextmanager
def _watched(model: nn.Module) -> Iterator[dict[str, None]]:
    """Note the classes whose forward takes token types and, inside, gets images without any."""
    untyped: dict[str, None] = {}

    def watch(module: nn.Module, args: Any, kwargs: Any) -> None:
        values = inspect.signature(module.forward).bind_partial(*args, **kwargs).arguments
        has = {name for name, value in values.items() if value is not None}
        # positions that are given say where images are
        if "pixel_values" in has and not has & {*TOKEN_TYPES, "position_ids"}:
            untyped[type(module).__name__] = None

    hooks = [
        module.register_forward_pre_hook(watch, with_kwargs=True)
        for module in model.modules()
        if {*TOKEN_TYPES} & {*inspect.signature(module.forward).parameters}
    ]
    try:
        yield untyped
    finally:
        for hook in hooks:
            hook.remove()


def _foreign(step: DryStep) -> str:
    own = {*step.parameters.values()}
    count = sum(p not in own for p in step.held)
    held = f"{len(step.held)} parameters that the optimiser holds"
    return f"{count} of the {held} are not the model's" if count else ""


def _lacking(step: DryStep) -> str:
    held = {*step.held}
    return _listed(
        [n for n, p in step.trained.items() if p not in held],
        "train, and the optimiser does not hold them",
    )


def _unfrozen(step: DryStep) -> str:
    return _listed(step.changed, "have another requires_grad behind the step than before it")


def _no_gradient(step: DryStep) -> str:
    line = f"none of the {len(step.held)} parameters that the optimiser holds has a gradient"
    return "" if step.gradients or _adapter(step) else line


def _adapter(step: DryStep) -> str:
    for adapter in step.adapters:
        own = [p for name, p in step.trained.items() if adapter in name.split(".")]
        if own and not any(p in step.gradients for p in own):
            return f"no gradient reaches the adapter {adapter!r}, any of its {len(own)} tensors"
    return ""


def _other_kind(step: DryStep) -> str:
    odd = {p for p, g in step.gradients.items() if _placements(p) != _placements(g)}
    names = [name for name, p in step.parameters.items() if p in odd]
    return _listed(names, "and their gradients differ in kind: dense or DTensor, and placements")


def _unreduced(step: DryStep) -> str:
    """Compare one number of all plain gradients over the ranks."""
    if not dist.is_initialized() or dist.get_world_size() < 2:
        return ""
    norms: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(norms, step.dense)
    if all(math.isclose(norm, norms[0], rel_tol=1e-6) for norm in norms):
        return ""
    shown = ", ".join(f"{norm:.4g}" for norm in norms[:4])
    return f"plain gradients differ over the ranks, which train apart: norms {shown}"


def _other_norm(step: DryStep) -> str:
    if step.clipped is None or math.isclose(step.clipped, step.norm, rel_tol=NEAR):
        return ""
    return (
        f"clipping uses a norm of {step.clipped:.4g}, and what the optimiser holds has "
        f"{step.norm:.4g} over all ranks"
    )


def _long_memory(step: DryStep) -> str:
    for group in step.param_groups:
        beta2, count = group.get("betas", (0.0, 0.0))[1], len(_in_bf16(group))
        if count and beta2 > BETA2:
            return (
                f"{count} parameters are bfloat16 under beta2={beta2:g}: their second moments are "
                "too, and stop growing far below their value"
            )
    return ""


def _small_rate(step: DryStep) -> str:
    for group in step.param_groups:
        own = [_local(p).detach().flatten() for p in _in_bf16(group)]
        stride = 1 + sum(p.numel() for p in own) // SAMPLED
        sizes = torch.cat([p[::stride].abs().float().cpu() for p in own] or [torch.zeros(0)])
        if not sizes.any():
            continue
        median = float(sizes[sizes > 0].median())
        half = 2.0 ** (math.floor(math.log2(median)) - 8)  # bf16 has 8 bits, the first unwritten
        rate = group.get("initial_lr", group["lr"])  # a warm-up begins at 0
        if rate is not None and rate < half:
            return (
                f"the learning rate {rate:g} is below {half:.2g}, half a unit of bfloat16 at the "
                f"median weight of {median:.2g}: most steps round to nothing"
            )
    return ""


def _untyped(step: DryStep) -> str:
    names, types = ", ".join(step.untyped), " or ".join(TOKEN_TYPES)
    return f"{names} takes {types} and gets images without: they count as text" if names else ""


RULES: Mapping[str, Callable[[DryStep], str]] = {
    "foreign parameters": _foreign,
    "parameters not held": _lacking,
    "requires_grad changed": _unfrozen,
    "no gradient": _no_gradient,
    "adapter without gradient": _adapter,
    "gradients of another kind": _other_kind,
    "unreduced gradients": _unreduced,
    "another norm": _other_norm,
    "bf16 under a large beta2": _long_memory,
    "rate below bf16": _small_rate,
    "no token types": _untyped,
}
MENDS = {
    "foreign parameters": "make the optimiser behind fully_shard, an adapter or a move to another "
    "dtype, and not between a forward without backward and its reshard()",
    "parameters not held": "hand them to the optimiser, or set their requires_grad to False",
    "requires_grad changed": "set the flags back behind the reference pass (disable_adapter() "
    "switches all adapters on again), or keep a reference model",
    "no gradient": "call backward in the step, on a loss of this model, and the forward of the "
    "module that fully_shard has taken last",
    "adapter without gradient": "make it active in the forward that has the loss; beside gradient "
    "checkpointing call model.enable_input_require_grads()",
    "gradients of another kind": "call the forward of the module that fully_shard has taken last, "
    "and redistribute gradients that are partial",
    "unreduced gradients": "call what DistributedDataParallel or fully_shard has wrapped, and "
    "leave no_sync at the last micro-batch",
    "another norm": "clip what the optimiser holds by torch.nn.utils.clip_grad_norm_, which knows "
    "DTensors, and take its full_tensor()",
    "bf16 under a large beta2": f"train fp32 weights under autocast, or a beta2 of at most {BETA2}",
    "rate below bf16": "train fp32 weights under autocast, or an adapter in fp32",
    "no token types": "hand on all that the processor returns beside the ids",
    "equal members": "draw each member with a seed of its own, at a temperature above 0",
    "another conversation": "render the prompt as the template closes it (enable_thinking=False "
    "where it reads that), and tokenise it with add_special_tokens=False",
    "saved otherwise": "convert them before the load, or load into what was saved",
}


def _equal_members(groups: Sequence[Sequence[Any]]) -> str:
    count = 0
    for group in groups:
        members = [m if isinstance(m, str) else torch.as_tensor(m).tolist() for m in group]
        count += len(members) > 1 and all(member == members[0] for member in members)
    line = f"{count} of {len(groups)} groups have one text in all members: an advantage of 0"
    return line if count else ""


def _other_conversation(
    tokenizer: Any,
    messages: Sequence[Mapping[str, Any]],
    taught: str | Tensor | Sequence[int] | None,
    kwargs: Mapping[str, Any],
) -> str:
    render = tokenizer.apply_chat_template
    *turns, answer = messages
    if taught is None:
        prompt = render(turns, tokenize=False, add_generation_prompt=True, **kwargs)
        taught = f"{prompt}{answer['content']}"
    elif not isinstance(taught, str):
        taught = str(tokenizer.decode(taught, clean_up_tokenization_spaces=False))
    parts = parted(taught, render([*messages], tokenize=False, **kwargs))
    if parts is None:
        return ""
    both, trained, conversation = parts
    return (
        f"behind {both[-SHOWN:]!r} the loop trains {trained[:SHOWN]!r}, and the template writes "
        f"{conversation[:SHOWN]!r}"
    )


def _saved_otherwise(saved: Mapping[str, Any], into: Mapping[str, Any]) -> str:
    kinds = [{n: getattr(v, "dtype", type(v)) for n, v in of.items()} for of in (saved, into)]
    names = [n for n, kind in kinds[0].items() if kinds[1].get(n, kind) != kind]
    return _listed(names, "are saved in another dtype or kind than what they are loaded into")


def _listed(names: Sequence[str], what: str) -> str:
    """Name the first and count the others; empty without any."""
    more = f" and {len(names) - NAMES} more" if len(names) > NAMES else ""
    return f"{', '.join(names[:NAMES])}{more} {what}" if names else ""


def _in_bf16(group: Mapping[str, Any]) -> list[Tensor]:
    return [p for p in group["params"] if p.dtype == torch.bfloat16 and p.requires_grad]


def _norm(gradients: Iterable[Tensor]) -> float:
    """Compute the norm of all, over all ranks where they are sharded."""
    return math.sqrt(sum(_number(g.double().square().sum()) for g in gradients))


def _number(value: Tensor | float) -> float:
    return float(value.full_tensor() if isinstance(value, DTensor) else value)


def _local(value: Tensor) -> Tensor:
    return value.to_local() if isinstance(value, DTensor) else value


def _placements(value: Tensor) -> Any:
    return value.placements if isinstance(value, DTensor) else None
