"""Find a way to share prompts with the model's own log-probs and gradients.

Two prompts of different image counts, one of them longer than the model's window, and five
completions, one of a single token, run through each way and through the model's own logits, under
the run's attention, adapters, frozen parts and checkpointing, in fp32 and without dropout.
FlexAttention must run in the dtype of the run first: its kernels differ from dtype to dtype.
Gradients must be in it: a cache that is detached by mistake passes any check of values.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
import transformers
from torch import Tensor, nn

from rrgclinical.common.errors import Stopped, cause_line
from rrgpolicy.model.backbone import SHARINGS, Backbone, turn_of, window_of
from rrgpolicy.model.forward import head_logps, hidden_states
from rrgpolicy.model.own_forward import with_tokens
from rrgpolicy.model.prompt import EncodedPrompt, placed
from rrgpolicy.ranks import sharding

# Rounding in fp32 stays below 1e-4; each mistake tried was beyond 0.03, or in gradients 0.2.
LOGPS, GRADIENTS = 2e-3, 2e-2
COMPLETIONS = ((5, 1, 9), (3, 7))
# Windows beyond are not crossed: `Probed.tokens` says up to where sharing is known to be exact.
LONGEST = 5000
NAMES = {"row": "a packed row", "cache": "a prefix cache", "none": "a row of its own"}
# Of a row, the fastest first.
ATTENTIONS = {
    "flex": "FlexAttention",
    "blocks": "blocks of SDPA",
    "dense": "the model's own attention",
}


Pairs = list[tuple[EncodedPrompt, list[Tensor]]]
# Log-probs of all completions, and the gradient of each weight, None where it takes none.
Seen = tuple[Tensor, list[Tensor | None]]


@dataclass(frozen=True)
class Probed:
    """A way, its attention (see `Backbone.attn`), and how far it was from the model's own.

    logps: the largest difference of a log-prob; gradients: that of a gradient to its largest
    entry; refused: what was tried before, with the reasons; tokens: the longest sequence for which
    sharing is known to be exact, None where no window limits it.
    """

    way: str
    attn: str
    logps: float
    gradients: float
    refused: tuple[str, ...] = ()
    tokens: int | None = None

    def line(self, model: str) -> str:
        """Tell the outcome for a `model` in one line."""
        close = f"(log-probs within {self.logps:.0e}, gradients {self.gradients:.0e})"
        why = f"; not by {'; '.join(self.refused)}" if self.refused else ""
        if self.way == "none":
            return f"{model}: prompts are NOT shared, each report carries its own {close}{why}"
        by = _named(self.way, self.attn)
        by += f", up to {self.tokens} tokens" if self.tokens else ""
        return f"{model}: prompts are shared by {by} {close}{why}"

    def applied(self, backbone: Backbone) -> None:
        backbone.sharing, backbone.attn, backbone.probed_tokens = self.way, self.attn, self.tokens


class NoWay(ValueError):
    """Say that no way is exact, or not the one that was asked for."""


def probe(backbone: Backbone, prompts: Sequence[EncodedPrompt], sharing: str = "auto") -> Probed:
    """Choose the first of row, cache and none that is exact.

    Args:
        backbone: whole on its device; its mode and generators are as before afterwards.
        prompts: one or two, of different image counts where the model sees images.
        sharing: "auto", or the one way that is tried.

    Raises:
        NoWay: the way that is forced fails, or a completion with its whole prompt does: then the
            head is not what the configuration says; or the model's own forward raises.
    """
    ways = SHARINGS if sharing == "auto" else (sharing,)
    # the attention of the run, and beneath a row those that are slower
    rows = [*ATTENTIONS][[*ATTENTIONS].index(backbone.shared_attention) :]
    tried = [(way, a) for way in ways for a in (rows if way == "row" else [backbone.attn])]
    refused: list[str] = []
    in_run = _in_run(backbone, prompts) if ("row", "flex") in tried else {}
    # fp32, or wider where a parameter is: in bf16 a mistake hides in rounding
    dtypes = {p.dtype for p in backbone.model.parameters()}
    wide = functools.reduce(torch.promote_types, dtypes, torch.float32)
    with _as_probed(backbone, wide) as plain:
        pairs, tokens = _pairs(plain, prompts)
        reach = max(len(p.input_ids) for p in prompts) + max(map(max, COMPLETIONS))
        if tokens is not None and reach > tokens:
            tried = [pair for pair in tried if pair[0] == "none"]
            refused = [f"sharing: rope turns otherwise beyond {tokens} tokens, and {reach} are met"]
        weights = _weights(plain)
        own = _own_or_refused(plain, pairs, weights)
        _refuse_other_values(plain, pairs, own[0])
        for way, attn in tried:
            candidate = replace(plain, sharing=way, attn=attn)
            shared = in_run.get(attn)
            if not isinstance(shared, str):
                shared = _shared(candidate, pairs, weights)
                if isinstance(shared, str) and attn in in_run:
                    shared = _by_blocks(candidate, pairs, weights, own, in_run) or shared
            if isinstance(shared, str):
                refused.append(f"{_named(way, attn)}: {shared}")
                continue
            far = _differences(shared, own)
            if far[0] <= LOGPS and far[1] <= GRADIENTS:
                limit = tokens if way != "none" else None
                return Probed(way, attn, *far, tuple(refused), limit)
            gaps = f"log-probs differ by {far[0]:.1g}, gradients by {far[1]:.1g}"
            refused.append(f"{_named(way, attn)}: {gaps}")
    raise _no_way(type(backbone.backbone).__name__, sharing, "; ".join(refused))


def _no_way(name: str, sharing: str, refused: str) -> NoWay:
    if sharing in ("auto", "none"):
        return NoWay(
            f"a {name} cannot be trained: not even a report with its whole prompt has the model's "
            f"own log-probs ({refused}); its head does more than its configuration says"
        )
    return NoWay(
        f"policy.sharing={sharing}, which is not exact for this {name} ({refused}); use "
        "policy.sharing=auto"
    )


def _named(way: str, attn: str) -> str:
    return f"{NAMES[way]} with {ATTENTIONS[attn]}" if way == "row" else NAMES[way]


def _in_run(backbone: Backbone, prompts: Sequence[EncodedPrompt]) -> dict[str, Seen | str]:
    """Run a row by FlexAttention as training will, in 16 bits, and by blocks if it can.

    Forward and backward; in the place of what was seen stands why it cannot. {} for fp32, which
    needs no run beside the probe's own.
    """
    if backbone.dtype.itemsize > 2:
        return {}
    outcomes: dict[str, Seen | str] = {}
    with _as_probed(backbone, backbone.dtype) as run:
        pairs, weights = _pairs(run, prompts)[0], _weights(run)
        for attn in ("flex", "blocks"):
            outcomes[attn] = _shared(replace(run, sharing="row", attn=attn), pairs, weights)
            if isinstance(why := outcomes[attn], str):
                return {attn: f"in {backbone.dtype}: {why}".replace("torch.", "")}
    return {"flex": outcomes["flex"], "by": outcomes["blocks"]}


def _by_blocks(
    candidate: Backbone, pairs: Pairs, weights: list[nn.Parameter], own: Seen, in_run: dict
) -> Seen | None:
    """Judge FlexAttention in 16 bits where its fp32 kernels do not run, which take more memory.

    The row is held to fp32 by blocks; FlexAttention in 16 bits must be as near to blocks in 16
    bits as those are to fp32. None where it is not, or blocks fail.
    """
    shared = _shared(replace(candidate, attn="blocks"), pairs, weights)
    apart, rounding = _differences(in_run["flex"], in_run["by"]), _differences(in_run["by"], own)
    near = all(
        a <= 2 * r + most for a, r, most in zip(apart, rounding, (LOGPS, GRADIENTS), strict=True)
    )
    return shared if near and not isinstance(shared, str) else None


@contextmanager
def _as_probed(backbone: Backbone, dtype: torch.dtype) -> Iterator[Backbone]:
    """The backbone in train mode, where layers are checkpointed, in `dtype`, with dropout off."""
    with ExitStack() as stack:
        for module in backbone.model.modules():
            stack.callback(setattr, module, "training", module.training)
            for name, rate in [*vars(module).items()]:
                if isinstance(rate, float) and re.search("^p$|drop|jitter", name):
                    stack.callback(setattr, module, name, rate)
                    setattr(module, name, 0.0)
        backbone.model.train()
        stack.enter_context(sharding.computed_in(backbone.model, dtype))
        stack.enter_context(torch.random.fork_rng())
        stack.enter_context(torch.autocast(backbone.device.type, enabled=False))
        stack.enter_context(torch.enable_grad())
        stack.callback(torch.set_float32_matmul_precision, torch.get_float32_matmul_precision())
        torch.set_float32_matmul_precision("highest")
        tower = getattr(backbone.config, "vision_config", None)
        name = getattr(tower, "_attn_implementation", None) or ""
        if name.startswith("flash"):  # which computes in 16 bits alone
            attend_by = backbone.backbone.set_attn_implementation
            stack.callback(attend_by, {"vision_config": name})
            attend_by({"vision_config": "sdpa"})
        yield replace(backbone, compute_dtype=dtype, vision_cache=None, left_out=())


def _pairs(backbone: Backbone, prompts: Sequence[EncodedPrompt]) -> tuple[Pairs, int | None]:
    """Two prompts with their completions, and up to where a window leaves sharing known."""
    draw = torch.Generator().manual_seed(0)
    words = _words(backbone, prompts[0])

    def text(length: int) -> Tensor:
        return words[torch.randint(len(words), (length,), generator=draw)]

    first, *others = sorted(prompts[:2], key=lambda p: -len(p.images.get("pixel_values", ())))
    window = window_of(backbone.text_config)
    of_examples = max(map(len, (p.input_ids for p in prompts)))
    longest = of_examples + 16
    limit = None
    if window is not None and window + 16 > longest:
        limit = None if window + 16 <= LONGEST else longest
        longest = window + 16 if limit is None else longest
    if (turn := turn_of(backbone.text_config)) is not None:
        room = turn - max(map(max, COMPLETIONS))  # all sequences of a prompt on one side of it
        longest = min(longest, room) if of_examples <= room else max(longest, turn + 1)
        limit = turn if limit is None else min(limit, turn)
    first = _extended(backbone, first, text(longest - len(first.input_ids)))
    shorter = others[0] if others else _extended(backbone, first.one_token(), text(13))
    members = [[text(length) for length in lengths] for lengths in COMPLETIONS]
    return [(first, members[0]), (shorter, members[1])], limit


def _words(backbone: Backbone, prompt: EncodedPrompt) -> Tensor:
    """Ids of a prompt that stand for text, not for what the configuration names."""
    config, text = vars(backbone.config), vars(backbone.text_config)
    named = {
        value
        for key, value in (*config.items(), *text.items())
        if key.endswith(("_token_id", "_token_index")) and isinstance(value, int)
    }
    # all alike, tokens would leave attention nothing to do
    few = len(prompt.input_ids.unique()) < 16
    ids = torch.arange(backbone.embedding_shape[0]) if few else prompt.input_ids.unique()
    return ids[~torch.isin(ids, torch.tensor(sorted(named)).long())]


def _extended(backbone: Backbone, prompt: EncodedPrompt, more: Tensor) -> EncodedPrompt:
    """The prompt with more text behind it."""
    inputs = {**prompt.inputs, **prompt.with_tokens(more)}
    inputs.pop("attention_mask", None)
    return placed(backbone, inputs, key=f"{prompt.key}-longer")


def _weights(backbone: Backbone) -> list[nn.Parameter]:
    """The weights whose gradients are compared: the first, the middle and the last that train, and
    those of the decoder's first layer, whose keys and values no other weight reaches."""
    trained = [p for p in backbone.model.parameters() if p.requires_grad and p.ndim > 1]
    layers = [*backbone.language_model.layers[:1].parameters()]
    chosen = [trained[k] for k in (0, len(trained) // 2, -1)] if trained else []
    chosen += [p for p in layers if p.requires_grad and p.ndim > 1]
    return [*{id(p): p for p in chosen}.values()]


def _own(backbone: Backbone, pairs: Pairs, weights: list[nn.Parameter]) -> Seen:
    """By the model's own forward and logits, one completion at a time."""
    model: Any = backbone.model
    keeps = "logits_to_keep" in inspect.signature(backbone.backbone.forward).parameters
    logps: list[Tensor] = []
    total: list[Tensor | None] = [None] * len(weights)
    spread = iter(_spread(pairs))
    for prompt, members in pairs:
        for ids in members:
            # a number, and not places, lets Gemma 4 cut queries in a way that counts on "sdpa"
            logits_kept = {"logits_to_keep": torch.arange(-len(ids) - 1, 0)} if keeps else {}
            inputs = with_tokens(backbone, prompt, ids)
            logits = model(**inputs, **logits_kept, use_cache=False).logits[0, -len(ids) - 1 : -1]
            chosen = ids.to(logits.device)[:, None]
            chosen_logps = logits.log_softmax(-1).gather(-1, chosen)[:, 0]
            logps.append(chosen_logps.detach())
            for k, part in enumerate(_gradients(chosen_logps, next(spread), weights)):
                before = total[k]
                total[k] = part if before is None or part is None else before + part
                total[k] = before if part is None else total[k]
    return torch.cat(logps), total


def _refuse_other_values(backbone: Backbone, pairs: Pairs, own_logps: Tensor) -> None:
    """Raise NoWay where a forward draws at random, or tokens of a report see later ones."""
    prompt, members = pairs[0]
    again, cut = (_own(backbone, [(prompt, [members[0][:n]])], [])[0] for n in (None, 2))
    if (again - own_logps[: len(again)]).abs().max() > LOGPS:
        raise NoWay(
            f"a {type(backbone.backbone).__name__} cannot be trained: its own forward, called "
            "twice, gives other log-probs; turn off what it draws at random in its config.json"
        )
    if (cut - again[:2]).abs().max() > LOGPS:
        raise NoWay(
            f"a {type(backbone.backbone).__name__} cannot be trained: tokens of a report see later "
            f"ones with {', '.join(['input_ids', *prompt.per_token])}; leave out what marks them so"
        )


def _own_or_refused(backbone: Backbone, pairs: Pairs, weights: list[nn.Parameter]) -> Seen:
    try:
        return _own(backbone, pairs, weights)
    except Stopped:
        raise
    except Exception as error:  # whatever a foreign forward raises
        # torch's, which refuses the probe's gradients and not the model
        if "use_reentrant=True" in str(error):
            raise NoWay(
                "gradient checkpointing with use_reentrant=True has no gradients by torch.autograd."
                "grad, by which sharing is probed; use gradient_checkpointing_kwargs="
                "{'use_reentrant': False}"
            ) from error
        calls = " or ".join({", ".join(p.inputs): None for p, _ in pairs})
        raise NoWay(
            f"a {type(backbone.backbone).__name__} cannot be trained: its own forward fails in "
            f"transformers {transformers.__version__} ({cause_line(error)}), given {calls}; give "
            "what it misses, or use another version or model"
        ) from error


def _shared(backbone: Backbone, pairs: Pairs, weights: list[nn.Parameter]) -> Seen | str:
    """By the forward of training: all prompts at once, and the head's weight; or why it fails."""
    prompts, members = [p for p, _ in pairs], [m for _, m in pairs]
    try:
        hidden, batch = hidden_states(backbone, prompts, members)
        logps = head_logps(backbone, hidden, batch.targets)
        return logps.detach(), _gradients(logps, torch.cat(_spread(pairs)), weights)
    except Stopped:
        raise
    except Exception as error:  # whatever a foreign forward raises
        lines = str(error).splitlines() or [""]
        return f"{type(error).__name__}: {lines[0][:100]}"


def _spread(pairs: Pairs) -> list[Tensor]:
    """A weight for each token of each completion, from -1 to 1 over all."""
    lengths = [len(ids) for _, members in pairs for ids in members]
    return list(torch.linspace(-1, 1, sum(lengths)).split(lengths))


def _gradients(logps: Tensor, spread: Tensor, weights: list[nn.Parameter]) -> list[Tensor | None]:
    if not weights:
        return []
    loss = (logps * spread.to(logps)).sum()
    return list(torch.autograd.grad(loss, weights, allow_unused=True))


def _differences(shared: Seen, own: Seen) -> tuple[float, float]:
    """The largest of log-probs, and of gradients relative to the largest entry of each."""
    logps = (shared[0] - own[0]).abs().max()
    top = max((g.abs().max().item() for g in own[1] if g is not None), default=0.0)
    far = [torch.zeros(())]
    for ours, theirs in zip(shared[1], own[1], strict=True):
        if ours is None or theirs is None:
            other = ours if theirs is None else theirs
            far.append(torch.zeros(()) if other is None else (other != 0).any().cpu().float())
            continue
        scale = theirs.abs().max().clamp(min=max(1e-4 * top, 1e-30))
        far.append(((ours - theirs).abs().max() / scale).cpu())
    both = torch.stack([logps.cpu(), torch.stack([f.to(logps.dtype).cpu() for f in far]).max()])
    found_logps, found_gradients = both.nan_to_num(torch.inf).tolist()
    return found_logps, found_gradients
