"""Count the floating-point operations and the bytes of a step, and turn them into seconds.

2 for a product and its sum, as `torch.utils.flop_counter` counts; a causal block of attention is
counted whole, as there. `tests/rrgtrain/plan` compares with that counter on three tiny sizes.
"""

from __future__ import annotations

from dataclasses import dataclass

from rrgtrain.plan.memory import FP32, Mode
from rrgtrain.plan.setup import Setup
from rrgtrain.plan.sizes import TOWER, Sizes, Weight, elements
from rrgtrain.plan.workload import Packed, Workload

ATTENTION_BACKWARD = 2.5
"""Products of a flash attention's backward over those of its forward: five to two."""
HEAD_BACKWARD = 3
"""Products of the head's backward: logits again, gradients of hidden states and of weight.

A frozen head whose log-probabilities nobody reads needs no logits again (`Mode.loss_alone`)."""


CORES = 32
"""Cores of a node that a plan assumes."""


@dataclass(frozen=True)
class Work:
    """FLOPs of one pass over packed groups: matrices of the decoder, its attention, head, tower."""

    layers: float
    attention: float
    head: float
    tower: float = 0.0

    @property
    def total(self) -> float:
        """All of it."""
        return self.layers + self.attention + self.head + self.tower


def forward_work(sizes: Sizes, packed: Packed) -> Work:
    """FLOPs of a forward with log-probabilities, the vision tower included."""
    text = sizes.text
    return Work(
        2.0 * packed.tokens * sum(sizes.matrices("layer")),
        4.0 * text.layers * text.heads * text.head_width * packed.scores,
        2.0 * packed.scored * text.vocabulary * text.width,
        tower_flops(sizes, packed),
    )


def tower_flops(sizes: Sizes, packed: Packed, images: int = 1) -> float:
    """FLOPs of the vision tower; `images` of equal size share a prompt's patches."""
    return sum(_tower_parts(sizes, packed, images))


def _tower_parts(sizes: Sizes, packed: Packed, images: int) -> tuple[float, float, float, float]:
    """FLOPs of a forward: patches, matrices of the blocks, their attention, merger."""
    vision, patches = sizes.vision, packed.all_patches
    if vision is None or not patches:
        return 0.0, 0.0, 0.0, 0.0
    whole = packed.patches / max(1, images)
    window = min(whole, vision.window**2)
    seen = vision.full * whole + (vision.layers - vision.full) * window
    return (
        2.0 * patches * vision.patch_values * vision.width,
        2.0 * patches * sum(sizes.matrices("block")),
        4.0 * vision.width * patches * seen,
        2.0 * packed.all_embedded * sum(sizes.matrices("merger")),
    )


def _tower_update(sizes: Sizes, packed: Packed, mode: Mode, images: int) -> float:
    """FLOPs of the tower forward and backward; pixels need no gradient."""
    vision = sizes.vision
    if vision is None:
        return 0.0
    patches, matrices, attention, merger = _tower_parts(sizes, packed, images)
    blocks = sizes.matrices("block")
    last = vision.layers * blocks[-1] / sum(blocks)
    again = 1.0 if mode.checkpointing else 0.0
    own = matrices * (3 + again * (1 - last)) + attention * (1 + again + ATTENTION_BACKWARD)
    return 2 * patches + own + 3 * merger


def update_work(
    sizes: Sizes, weights: list[Weight], packed: Packed, mode: Mode, images: int = 1
) -> Work:
    """FLOPs of forward and backward.

    A frozen part has no gradient of weights, one before which nothing trains no backward.
    """
    packed = packed.by(mode.sharing)
    once = forward_work(sizes, packed)
    layer = [w for w in weights if w.part == "layer"]
    trained = elements(w for w in layer if w.trained) / max(1, elements(layer))
    tower = any(w.trained for w in weights if w.part in TOWER)
    again = 1.0 if mode.checkpointing else 0.0
    # what is recomputed ends before the last matrix, whose output nobody asks for
    matrices = sizes.matrices("layer")
    repeated = again * (1 - sizes.text.layers * matrices[-1] / sum(matrices))
    adapter = 6.0 * packed.tokens * elements(weights, "adapter")
    head = any(w.trained for w in weights if w.part in ("head", "embedding"))
    seen = tower_flops(sizes, packed, images)
    return Work(
        once.layers * (2 + repeated + trained) + adapter * (1 + again / 3),
        once.attention * (1 + again + ATTENTION_BACKWARD),
        once.head * (1 + HEAD_BACKWARD - (not head) - mode.loss_alone),
        _tower_update(sizes, packed, mode, images) if tower else seen,
    )


def rollout_work(sizes: Sizes, work: Workload, images: int = 1) -> Work:
    """FLOPs of sampling: a prefill of each prompt, then the members token by token."""
    text, step = sizes.text, work.step
    rows, length = step.groups * work.sampled, step.report
    steps = max(0, length - 1)
    # a token sees its prompt and all of the report before it, itself included
    seen = steps * step.prompt + steps * (steps + 1) / 2
    scores = step.groups * step.prompt**2 + rows * seen
    return Work(
        2.0 * (step.groups * step.prompt + rows * steps) * sum(sizes.matrices("layer")),
        4.0 * text.layers * text.heads * text.head_width * scores,
        2.0 * rows * length * text.vocabulary * text.width,
        tower_flops(sizes, step, images),
    )


def decode_bytes(sizes: Sizes, weights: list[Weight], work: Workload, compute: int) -> float:
    """Bytes that one token step of a rank's batch reads: weights once, prompts' cache once."""
    text, step = sizes.text, work.step
    parts = ("layer", "norm", "embedding" if text.tied else "head", "adapter")
    read = float(elements(weights, *parts) * compute)
    rows = step.groups * work.sampled
    if not sizes.packed:  # each member has a copy of its prompt's
        return read + rows * sizes.cache_bytes(step.prompt + step.report / 2, compute)
    return read + sizes.cache_bytes(step.groups * step.prompt + rows * step.report / 2, FP32)


def phase_seconds(
    setup: Setup, weights: list[Weight], work: Workload, mode: Mode, *, reference: bool
) -> dict[str, float]:
    """Estimate the seconds of each phase of a step on the rank with most groups.

    `images` is what loading takes of the workers; they read ahead, so a step waits only for what
    it takes beyond the other phases. reference: its log-probabilities are computed.
    """
    recipe, sizes, machine, rates = setup.recipe, setup.sizes, setup.machine, setup.rates
    rl, ranks, engine = recipe.rl, setup.ranks, recipe.rollout.engine
    passes, several = 1, False
    peak = machine.flops if mode.compute < FP32 else machine.flops_fp32
    step, seconds = work.step, dict.fromkeys(("images", "weights", "sampling"), 0.0)
    images = step.groups * work.images * work.image_share
    hands = max(1, min(recipe.data.workers or 1, CORES // max(1, min(ranks, 8))))
    seconds["images"] = _over(images * rates.image_seconds, hands)
    if work.stage == "rl":
        passes = rl.epochs
        several = rl.epochs > 1 or (rl.minibatch is not None and rl.minibatch < rl.prompts)
        whole = elements(weights) * mode.compute
        moved = whole * (ranks - 1) / ranks
        seconds["weights"] = _over(moved, machine.link * rates.link_share)
        sampling = rollout_work(sizes, work, max(1, work.images))
        prompt = step.groups * step.prompt
        own = step.groups * work.sampled * step.report
        prefill = sampling.total * prompt / max(1, prompt + own)
        reading = _over(
            decode_bytes(sizes, weights, work, mode.compute), machine.bandwidth * rates.read_share
        )
        computing = _over(sampling.total - prefill, peak * rates.forward_share) / max(
            1, step.report
        )
        host = rates.graph_seconds if engine != "transformers" else 0.0
        if engine == "transformers" and machine.cuda:
            host = sizes.text.layers * rates.launches * rates.launch_seconds
        if engine != "transformers":
            seconds["weights"] += rates.wake_seconds
        token = max(reading, computing, host)
        # a batch ends with its longest report
        seconds["sampling"] = _over(prefill, peak * rates.forward_share) + token * work.longest
        reports = step.groups * step.members
        seconds["edits"] = step.groups * (step.members - work.sampled) * rates.edit_seconds
        seconds["rewards"] = _over(reports, rates.reward_reports)
    update = update_work(sizes, weights, step, mode, max(1, work.images)).total
    again = forward_work(sizes, step.by(mode.sharing))
    flops = several * again.total + reference * (again.total - again.tower)
    seconds["update"] = _over(passes * update, peak * rates.update_share)
    seconds["update"] += _over(flops, peak * rates.forward_share)
    seconds["record"] = rates.record_seconds if machine.cuda else 0.0
    return seconds


def step_seconds(seconds: dict[str, float], *, ahead: bool) -> float:
    """Add the phases up; images read ahead hide behind the others."""
    others = sum(value for name, value in seconds.items() if name != "images")
    return max(others, seconds["images"]) if ahead else others + seconds["images"]


def _over(amount: float, pace: float) -> float:
    """Divide; a pace without end takes no time, and 0 of anything neither."""
    return amount / pace if amount else 0.0
