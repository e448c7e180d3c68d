"""Name what would keep a loop from learning, by one dry step."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import product
from typing import Any, NamedTuple
from unittest import mock

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.utils._pytree import keystr, tree_leaves, tree_leaves_with_path

from rrgpolicy.model.prompt import SHOWN, TOKEN_TYPES
from rrgpolicy.model.template import NO_KWARGS, parted
from rrgpolicy.ranks.rng import random_states_kept

BETA2 = 0.99  # above it the second moment of a weight in bf16 stops far below its value
ADAMS = (torch.optim.Adam, torch.optim.NAdam, torch.optim.RAdam)  # AdamW is an Adam
SAMPLED = 2**20  # weights of a group, about, of which a median is taken
NEAR = 0.02  # of two norms that are one, relative: torch may sum gradients in bf16
NAMES = 3  # parameters that a line names
# Processors' std are 0.14 to 1: 8 bits reach 7 at most, and 255 times that unscaled; scaled twice
# a film varies by 1/255/0.14 at most, and clipped from 16 bits all but the air is white.
FAR, FAINT, WHITE, PATCHES, CHANNELS = 16, 0.05, 0.9, 3, 4  # axes of a list of patches; RGBA
Named = Iterator[tuple[str, str]]


class LoopFault(NamedTuple):
    """Name a fault, one of `MENDS`, with a line for a reader and its mending."""

    name: str
    line: str
    mend: str


def preflight(  # noqa: PLR0913
    model: nn.Module,
    optimizer: Any,
    step: Callable[[], Any],
    *,
    clip: Callable[[], Tensor | float] | None = None,
    groups: Sequence[Sequence[Any]] = (),
    rewards: Sequence[Any] | Tensor = (),
    tokenizer: Any = None,
    messages: Sequence[Mapping[str, Any]] = (),
    taught: str | Tensor | Sequence[int] | None = None,
    chat_template_kwargs: Mapping[str, Any] = NO_KWARGS,
    saved: Mapping[str, Any] | None = None,
    into: Mapping[str, Any] | None = None,
) -> list[LoopFault]:
    """Run one dry step, and name what would keep a loop from learning.

    Nothing is stepped: `step` and `zero_grad` of the optimisers do nothing inside. Gradients,
    `requires_grad`, buffers, training modes and the random states of torch, numpy and Python are
    afterwards as they were; a scaler, scheduler or generator of the loop's own is not. Ranks call
    it at once. DDP and `fully_shard` are known, FSDP 1 and DeepSpeed are not.

    Args:
        model: the module that trains, its wrapper included, as it is before its first step.
        optimizer: torch's, or one that has its `param_groups`; several in a list.
        step: computes the loss as the loop does, reference pass included, and calls backward for
            all micro-batches of an update; what it returns is not used.
        clip: the loop's clipping, called behind `step`, which returns the norm that it used; a
            scaler has unscaled before, in `step`.
        groups: the members of each prompt, texts or ids [T]; rewards: theirs, [B, G], as the loop
            has them.
        tokenizer, messages: a conversation of text that ends with the assistant's answer.
        taught: what the loop trains for it, prompt and answer, as text or ids [T]; by default the
            template's generation prompt with the answer behind it.
        chat_template_kwargs: what the loop renders the template with.
        saved: entries of a checkpoint by name; into: those that they are loaded into, by default
            `model.state_dict()`.

    Returns:
        The faults, each with its name, a line and its mending; empty for a sound loop.

    Raises:
        TypeError: what is no module, optimiser or function, and messages without a tokenizer. What
            `step`, `clip` or the template raises goes through.
    """
    optimizers = [*optimizer] if isinstance(optimizer, list | tuple) else [optimizer]
    for name, value, good, mend in (
        ("model", model, isinstance(model, nn.Module), "a torch.nn.Module, the one that trains"),
        *(("optimizer", o, hasattr(o, "param_groups"), "one of torch.optim") for o in optimizers),
        *(("rewards", rewards, hasattr(g, "__len__"), "a list a group, [B, G]") for g in rewards),
        ("step", step, callable(step), "a function without arguments: wrap it in one"),
    ):
        if not good:
            raise TypeError(f"{name} is a {type(value).__name__}; wanted {mend}")
    if messages and tokenizer is None:
        raise TypeError("messages without a tokenizer; pass the one whose template renders them")
    faults = _of_step(model, optimizers, step, clip)
    for each in optimizers:
        for group in each.param_groups:
            faults += _of_bf16(getattr(each, "optimizer", each), group)  # within accelerate's
    faults += _of_groups(groups)
    faults += _of_rewards(rewards)
    if messages:
        faults += _of_template(tokenizer, messages, taught, chat_template_kwargs)
    if saved is not None:
        faults += _of_entries(saved, model.state_dict() if into is None else into)
    first = dict(reversed(faults))  # of those of one name
    return [LoopFault(name, first[name], MENDS[name]) for name in dict(faults)]


def _of_step(
    model: nn.Module,
    optimizers: Sequence[Any],
    step: Callable[[], Any],
    clip: Callable[[], Tensor | float] | None,
) -> list[tuple[str, str]]:
    """Run the step, and name what it tells of parameters, gradients and images."""
    flags = {p: p.requires_grad for p in model.parameters()}
    held = [p for each in optimizers for group in each.param_groups for p in group["params"]]
    with _put_back(model, optimizers, held), _watched(model) as of_images:
        step()
        trained = {n: p for n, p in model.named_parameters() if flags.get(p, p.requires_grad)}
        gradients = [p.grad for p in held if p.grad is not None]
        return [*_of_parameters(model, trained, held), *_of_norms(gradients, clip), *of_images]


@contextmanager
def _put_back(
    model: nn.Module, optimizers: Sequence[Any], held: Iterable[nn.Parameter]
) -> Iterator[None]:
    """Take no step inside; gradients, flags, modes and random states are as before afterwards."""
    with ExitStack() as stack:
        stack.enter_context(random_states_kept())
        # of whatever wraps the model, or is wrapped
        for owner, name in ((nn.Module, "zero_grad"), *product(optimizers, ("step", "zero_grad"))):
            stack.enter_context(mock.patch.object(owner, name, return_value=None))
        for module in model.modules():
            stack.callback(setattr, module, "training", module.training)
            stack.callback(module._buffers.update, dict(module._buffers))
        for buffer in model.buffers():
            stack.callback(buffer.data.copy_, buffer.detach().clone())
        for parameter in {*model.parameters(), *held}:
            stack.callback(setattr, parameter, "grad", parameter.grad)
            stack.callback(parameter.requires_grad_, parameter.requires_grad)
            parameter.grad = None
        yield


@contextmanager
def _watched(model: nn.Module) -> Iterator[list[tuple[str, str]]]:
    """Note what is amiss with the images that forwards inside get, and with their token types."""
    faults: list[tuple[str, str]] = []

    def watch(module: nn.Module, args: Any, kwargs: Any) -> None:
        takes = inspect.signature(module.forward).parameters
        values = dict(zip(takes, args, strict=False)) | kwargs
        leaves = tree_leaves(values.get("pixel_values"))  # a list where films differ in size
        films = [p for p in leaves if isinstance(p, Tensor) and p.numel()]
        faults.extend(fault for pixels in films for fault in _of_pixels(pixels.detach()))
        types = [values.get(name) for name in TOKEN_TYPES if name in takes]
        # set positions say where images are; types of all 0 that none are, but where 1 is an answer
        of_answers = getattr(getattr(module, "config", None), "model_type", "") == "paligemma"
        typed = any(t is not None and (of_answers or t.any()) for t in types)
        if films and values.get("position_ids") is None and not typed:
            line = f"{type(module).__name__} takes {' or '.join(TOKEN_TYPES)} and gets images"
            faults.extend([("no token types", f"{line} without: they count as text")] * len(types))

    with ExitStack() as hooks:
        for module in model.modules():
            if "pixel_values" in inspect.signature(module.forward).parameters:
                hooks.enter_context(module.register_forward_pre_hook(watch, with_kwargs=True))
        yield faults


def _of_pixels(pixels: Tensor) -> Named:
    """Name values that no normalised film has, [.., C, H, W] or [.., patches, D]."""
    places, channel = ((-2, -1), -3) if pixels.ndim > PATCHES else ((-2,), -1)
    spread = (pixels.amax(places) - pixels.amin(places)).amax()
    of = pixels.movedim(channel, 0).flatten(1)  # each channel has a white of its own
    top, far = of.amax(1, keepdim=True), pixels.abs().amax()
    share = ((of == top) & (top > 0)).float().mean()  # a batch of text has a black image
    # a model scales integers itself; stages of a tower may name what they hand on pixels, too
    films = pixels.is_floating_point() and (channel == -1 or len(of) <= CHANNELS)
    if films and (far > FAR or 0 < spread < FAINT or share > WHITE):
        line = f"pixel values reach {far:.4g}, vary by {spread:.2g}; {share:.0%} are the greatest"
        yield "pixels of no film", line


def _of_parameters(
    model: nn.Module, trained: Mapping[str, nn.Parameter], held: Sequence[nn.Parameter]
) -> Named:
    of_optimizer, having = {*held}, {p for p in held if p.grad is not None}
    if count := len(of_optimizer.difference(model.parameters())):
        line = f"{count} of the {len(held)} parameters that the optimiser holds are not the model's"
        yield "foreign parameters", line
    lack = [name for name, p in trained.items() if p not in of_optimizer]
    yield from _listed("parameters not held", lack, "train, and the optimiser does not hold them")
    changed = [n for n, p in model.named_parameters() if p.requires_grad != (n in trained)]
    yield from _listed("requires_grad changed", changed, "have another requires_grad afterwards")
    # a tower may have parts that nothing reads, such as the layer behind the one that counts
    for adapter in sorted({a for m in model.modules() for a in getattr(m, "peft_config", ())}):
        own = [p for name, p in trained.items() if adapter in name.split(".")]
        if 2 * len(lacks := {*own} - having) > len(own):
            line = f"no gradient reaches {len(lacks)} of {len(own)} tensors of {adapter!r}"
            yield "adapter without gradient", line
            break
    else:
        if 2 * len(lacks := {p for p in of_optimizer if p.requires_grad} - having) > len(held):
            line = f"{len(lacks)} of the {len(held)} parameters that the optimiser holds have none"
            yield "no gradient", line
    both = [(name, p, p.grad) for name, p in model.named_parameters() if p in having]
    odd = [name for name, *of in both if len({getattr(t, "placements", None) for t in of}) > 1]
    line = "and their gradients differ in kind: dense or DTensor, and placements"
    yield from _listed("gradients of another kind", odd, line)


def _of_norms(gradients: Sequence[Tensor], clip: Callable[[], Tensor | float] | None) -> Named:
    """Compare one number of all plain gradients over the ranks, and clipping's with that of all."""
    dense = _norm(g for g in gradients if not isinstance(g, DTensor))
    norm, norms = _norm(gradients), list[Any]([dense])  # before clipping scales them in place
    if dist.is_initialized():
        norms *= dist.get_world_size()
        dist.all_gather_object(norms, dense)
    if not all(map(math.isfinite, (norm, *norms))):  # on all ranks, as `clip` may be
        yield "gradients not finite", f"the norm of the gradients is {norm}"
        return
    if not all(math.isclose(each, dense, rel_tol=1e-6) for each in norms):
        shown = ", ".join(f"{each:.4g}" for each in norms[:4])
        line = f"plain gradients differ over the ranks, which train apart: norms {shown}"
        yield "unreduced gradients", line
    if clip is not None and not math.isclose(used := _number(clip()), norm, rel_tol=NEAR):
        holds = f"what the optimiser holds has {norm:.4g} over all ranks"
        yield "another norm", f"clipping uses a norm of {used:.4g}, and {holds}"


def _of_bf16(optimizer: Any, group: Mapping[str, Any]) -> Named:
    trained = [p for p in group["params"] if p.dtype == torch.bfloat16 and p.requires_grad]
    beta2 = group.get("betas", (0.0, 0.0))[1]
    # those of 8 bits, or that round at random, keep their moments otherwise
    if trained and isinstance(optimizer, ADAMS) and beta2 > BETA2:
        line = f"{len(trained)} parameters are bfloat16 under beta2={beta2:g}: their second moments"
        yield "bf16 under a large beta2", f"{line} are too, and stop growing far below their value"
    own = [(p.to_local() if isinstance(p, DTensor) else p).detach().flatten() for p in trained]
    stride = 1 + sum(p.numel() for p in own) // SAMPLED
    sizes = torch.cat([p[::stride].abs().float().cpu() for p in own] or [torch.zeros(0)])
    if not sizes.any():
        return
    median = float(sizes[sizes > 0].median())
    half = 2.0 ** (math.floor(math.log2(median)) - 8)  # bf16 has 8 bits, the first unwritten
    rate = group.get("initial_lr", group["lr"])  # a warm-up begins at 0
    if rate and rate < half and not getattr(optimizer, "bf16_stochastic_round", False):
        line = f"a rate of {rate:g} is below {half:.2g}, half a bfloat16 unit at the median weight"
        yield "rate below bf16", f"{line} of {median:.2g}: most steps round to nothing"


MENDS = {
    "foreign parameters": "make the optimiser behind fully_shard, an adapter or a move to another "
    "dtype, and not between a forward without backward and its reshard()",
    "parameters not held": "hand them to the optimiser, or set their requires_grad to False",
    "requires_grad changed": "set the flags back behind the pass, as disable_adapter() does not",
    "no gradient": "call backward on a loss of this model, by what fully_shard has taken last",
    "adapter without gradient": "make it active in the forward that has the loss; beside gradient "
    "checkpointing call model.enable_input_require_grads()",
    "gradients of another kind": "call what fully_shard has taken last; redistribute partial ones",
    "unreduced gradients": "call what DDP or fully_shard wrapped; leave no_sync at the last part",
    "gradients not finite": "look at masks, rewards and dtype; lower a GradScaler's first scale",
    "another norm": "clip what the optimiser holds by clip_grad_norm_, and take its full_tensor()",
    "bf16 under a large beta2": f"train fp32 weights under autocast, or a beta2 of at most {BETA2}",
    "rate below bf16": "train fp32 weights under autocast, or an adapter in fp32",
    "no token types": "hand on all that the processor returns beside the ids",
    "pixels of no film": "hand the processor 8 bits, or floats beside do_rescale=False",
    "read-only rewards": "copy them first: torch.tensor(rewards)",
    "rewards not finite": "mend what scores, or leave the report out of its group's mean",
    "equal rewards": "take a reward that tells the reports of a group apart",
    "equal members": "draw each member with a seed of its own, at a temperature above 0",
    "another conversation": "render the prompt as the template closes it (enable_thinking=False "
    "where it reads that), and tokenise it, and the answer, by it, with add_special_tokens=False",
    "saved otherwise": "convert them before the load, or load into what was saved",
}


def _of_groups(groups: Sequence[Sequence[Any]]) -> Named:
    read = [[m if isinstance(m, str) else torch.as_tensor(m).tolist() for m in g] for g in groups]
    if count := sum(len(g) > 1 and all(member == g[0] for member in g) for g in read):
        line = f"{count} of {len(groups)} groups have one text in all members: an advantage of 0"
        yield "equal members", line


def _of_rewards(rewards: Sequence[Any] | Tensor) -> Named:
    if not getattr(getattr(rewards, "flags", None), "writeable", True):
        line = "rewards lie in read-only memory, as Ray gives them: torch.from_numpy writes through"
        yield "read-only rewards", f"{line} to whoever else reads them"
    values = [[float(r) for r in group] for group in rewards]
    if count := sum(not math.isfinite(r) for group in values for r in group):
        yield "rewards not finite", f"{count} of {sum(map(len, values))} rewards are not finite"
    elif any(len(g) > 1 for g in values) and all(len({*g}) < 2 for g in values):
        yield "equal rewards", f"each of {len(values)} groups has one reward: an advantage of 0"


def _of_template(
    tokenizer: Any, messages: Sequence[Mapping[str, Any]], taught: Any, kwargs: Mapping[str, Any]
) -> Named:
    render = tokenizer.apply_chat_template
    conversation = render([*messages], tokenize=False, **kwargs)
    if taught is None:
        prompt = render(messages[:-1], tokenize=False, add_generation_prompt=True, **kwargs)
        taught = f"{prompt}{messages[-1]['content']}"
    elif not isinstance(taught, str):  # compared as the tokenizer spells it, which may compose
        ids = tokenizer(conversation, add_special_tokens=False)["input_ids"]
        taught = torch.as_tensor(taught).tolist()
        if taught[:1] == [tokenizer.bos_token_id] and ids[:1] != taught[:1]:
            taught = taught[1:]  # a BOS of the tokenizer's own
        decode = partial(tokenizer.decode, clean_up_tokenization_spaces=False)
        taught, conversation = str(decode(taught)), str(decode(ids))
    if parts := parted(taught, conversation):
        both, trained, conversation = parts
        line = f"behind {both[-SHOWN:]!r} the loop trains {trained[:SHOWN]!r}, and the template"
        yield "another conversation", f"{line} writes {conversation[:SHOWN]!r}"


def _of_entries(saved: Mapping[str, Any], into: Mapping[str, Any]) -> Named:
    leaves = [tree_leaves_with_path({**of}) for of in (saved, into)]
    kinds = [{keystr(at): getattr(leaf, "dtype", type(leaf)) for at, leaf in of} for of in leaves]
    names = [n for n, kind in kinds[0].items() if kinds[1].get(n, kind) != kind]
    line = "are saved in another dtype or kind than what they are loaded into"
    yield from _listed("saved otherwise", names, line)


def _listed(fault: str, names: Sequence[str], what: str) -> Named:
    """Name the first and count the others; nothing without any."""
    more = f" and {len(names) - NAMES} more" if len(names) > NAMES else ""
    if names:
        yield fault, f"{', '.join(names[:NAMES])}{more} {what}"


def _norm(gradients: Iterable[Tensor]) -> float:
    """Compute the norm of all, over all ranks where they are sharded."""
    return math.sqrt(sum(_number(g.double().square().sum()) for g in gradients))


def _number(value: Tensor | float) -> float:
    return float(value.full_tensor() if isinstance(value, DTensor) else value)
