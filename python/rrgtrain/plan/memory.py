"""Count the bytes that a rank holds of a policy in training: state, activations, rollouts.

State is exact. Activations are what autograd saves of transformers' Qwen2.5-VL in PyTorch's eager
mode, module by module, and the largest working set on the way back; `tests/rrgtrain/plan` compares
both with runs of three tiny sizes, within 10 %. Of other families the same formulas make an
estimate. On a GPU nothing here was measured.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from rrgtrain.plan.sizes import TOWER, Sizes, Weight, elements
from rrgtrain.plan.workload import Packed, Workload

FP32 = 4
# bitsandbytes keeps smaller tensors in 32 bits, and one fp32 scale for each block of the others.
SMALLEST_8BIT, BLOCK_8BIT = 4096, 256
# A tile of logits (`rrgkern/logps`): elements, columns, and their most where rows are few.
TILE_GPU = 1 << 23, 4096, 20480
TILE_CPU = 1 << 19, 1024, 0
PLACES = 64
"""Places by which the cache of a decode loop grows (`rrgpolicy/rollout/cache.py`)."""
SAMPLE_BYTES = 24
"""Bytes a logit while a token is drawn: logit, log-prob, probability and running sum in fp64."""
UNITS_AHEAD = 2
"""Layers whose gathered copy is there at once: the one that computes and the next."""


@dataclass(frozen=True)
class StateBytes:
    """Bytes of one rank.

    `gathered` is the copy of the whole model in `policy.dtype` that rollouts and pushes to vLLM
    read; gradients are freed before there is one. `staged` is the pinned copy that a checkpoint is
    written from, each tensor of a power of two, as PyTorch allocates them.
    """

    weights: int
    gradients: int
    moments: int
    gathered: int
    staged: int


def state_bytes(
    weights: Iterable[Weight], *, compute: int, ranks: int = 1, optimizer: str = "adamw"
) -> StateBytes:
    """Predict what each of `ranks` holds of a policy loaded with `masters`, placed or not.

    A weight is cut along its first axis into equal parts, the last ones padded. Of n elements, what
    trains takes 4n bytes of weights, 4n of gradients and 8n of moments (2n in 8 bits), and 2n of a
    gathered copy in bf16; what never trains takes its own bytes. In a process alone there is no
    second copy of what is in `policy.dtype` already.

    compute: bytes of a number of `policy.dtype`. optimizer: `rl.optimizer`. The reference of KL,
    activations and vLLM come on top.
    """
    held = gradients = moments = gathered = staged = 0
    for weight in weights:
        rows = weight.shape[0] if weight.shape else 1
        part = -(-rows // ranks) * (weight.elements // max(1, rows))
        held += part * weight.itemsize
        if ranks > 1 or weight.itemsize != compute:
            gathered += weight.elements * compute
        if weight.trained:
            own, moment = part * weight.itemsize, _moment(part, weight.itemsize, optimizer)
            gradients += own
            moments += 2 * sum(moment)
            staged += sum(1 << (size - 1).bit_length() for size in (own, *moment, *moment))
    return StateBytes(held, gradients, moments, gathered, staged)


def _moment(count: int, size: int, optimizer: str) -> tuple[int, ...]:
    if optimizer == "adamw_8bit" and count >= SMALLEST_8BIT:
        return count, FP32 * -(-count // BLOCK_8BIT)
    return (count * size,)


@dataclass(frozen=True)
class Mode:
    """Say how a policy computes: bytes of a number, checkpointing, device, adapter."""

    compute: int = FP32
    checkpointing: bool = False
    cuda: bool = False
    lora: int = 0
    dropout: bool = False
    sharded: bool = False
    """`fully_shard` makes copies in the dtype of computation."""
    embeddings_kept: bool = False
    """The tower is frozen, and embeddings of images are kept."""
    loss_alone: bool = False
    """Nobody reads the log-probabilities that go through a frozen head into the policy loss."""
    sharing: str = "row"
    """How a group's prompt is shared: "row", "cache" or "none"."""


@dataclass(frozen=True)
class Stage:
    """Count the bytes of one module on the way.

    kept: by autograd until its backward. recomputed, work: there, the second beside what is saved.
    gradients: of its weights.
    """

    kept: int
    recomputed: int = 0
    work: int = 0
    gradients: int = 0


def stages(
    sizes: Sizes, weights: list[Weight], micro: Packed, mode: Mode, ranks: int = 1
) -> list[Stage]:
    """List the modules of a forward in order; the backward walks in reverse.

    The gradients of a stage are a rank's part of them.
    """
    text, size, micro = sizes.text, mode.compute, micro.by(mode.sharing)
    made = [] if sizes.vision is None else _tower(sizes, weights, micro, mode)
    tokens, hidden = micro.tokens, micro.tokens * text.width * size
    scored = micro.scored
    layer = [w for w in weights if w.part == "layer"]
    adapter = [w for w in weights if w.part == "adapter"]
    trained = any(w.trained for w in layer)
    saved = _layer(sizes, micro, mode, trained=trained)
    # d_prod, d_silu and d_up while prod and silu are still there, the gradient of the stream twice
    work = 2 * hidden + 2 * tokens * text.inner * size
    own = FP32 * (elements(w for w in layer if w.trained) + elements(adapter)) // text.layers
    if mode.checkpointing:
        # a prompt's cache has a graph of its own, which stays until its members are done
        cache = micro.groups * sizes.cache_bytes(micro.prompt, size) // text.layers
        one = Stage(hidden + cache * (mode.sharing == "cache"), saved - hidden, work, own)
    else:
        one = Stage(saved, 0, work, own)
    embedding = _trained(weights, "embedding")
    # ids of the tokens, and the embeddings of the images; a tied weight gets its second gradient
    images = micro.all_embedded * text.width * size
    again, alone = (FP32 * embedding, 0) if text.tied else (0, FP32 * embedding)
    first = Stage(8 * tokens + images, 0, again, alone)
    norm = _norm(tokens, text.width, size, trained)
    head = _trained(weights, "head") or (embedding if text.tied else 0)
    last = Stage(
        norm + scored * (text.width * size + 8 * 3 + FP32 * 4),
        0,
        _head_work(scored, sizes, mode, head),
        FP32 * head,
    )
    passed = [*made, first, *[one] * text.layers, last]
    return [replace(stage, gradients=stage.gradients // ranks) for stage in passed]


def activation_peak(passed: list[Stage], gradients: int, *, first: bool) -> int:
    """Walk a backward; return the most bytes above weights and moments.

    gradients: of all weights. first: none is there when it begins, as in the first micro-batch.
    """
    kept = sum(stage.kept for stage in passed)
    held, most = (0 if first else gradients), 0
    for stage in reversed(passed):
        own = stage.gradients if first else 0
        most = max(most, kept + held + own + stage.recomputed + stage.work)
        kept -= stage.kept
        held += own
    return most


@dataclass(frozen=True)
class Copies:
    """Bytes of copies in the dtype of computation that `fully_shard` gathers for an update.

    What lies outside the layers stays gathered, and its gradients wait for the end of the backward.
    gathered: the weights. waiting: gradients not yet reduced while layers go back. last: those of
    the root when it is reduced, the layers' being done.
    """

    gathered: int = 0
    waiting: int = 0
    last: int = 0


def copies(weights: list[Weight], layers: int, mode: Mode, ranks: int = 1) -> Copies:
    """Count the copies of an update; none where nothing is sharded or cast.

    In a process alone what never trains and has that dtype is used as it is.
    """
    if not mode.sharded:
        return Copies()
    cast = [w for w in weights if ranks > 1 or w.trained or w.itemsize != mode.compute]
    inside = [w for w in cast if w.part in ("layer", "adapter")]
    root = elements(cast) - elements(inside)
    waiting = elements(w for w in weights if w.trained and w.part not in ("layer", "adapter"))
    own = elements(w for w in inside if w.trained) // max(1, layers)
    return Copies(
        mode.compute * (root + UNITS_AHEAD * elements(inside) // max(1, layers)),
        mode.compute * waiting + (mode.compute + FP32) * own,
        (mode.compute + FP32) * waiting,
    )


def update_peak(
    sizes: Sizes, weights: list[Weight], work: Workload, mode: Mode, ranks: int = 1
) -> int:
    """Return the most bytes of an update above weights and moments, gradients among them.

    Where one micro-batch is all there are no gradients yet when its backward begins.
    """
    gradients = sum(w.elements * w.itemsize for w in weights if w.trained) // ranks
    passed = stages(sizes, weights, work.micro, mode, ranks)
    held = copies(weights, sizes.text.layers, mode, ranks)
    walked = activation_peak(passed, gradients, first=work.one_micro) + held.waiting
    return held.gathered + max(walked, gradients + held.last)


def rollout_peak(sizes: Sizes, work: Workload, mode: Mode, *, validation: bool = False) -> int:
    """Return the most bytes beside weights while transformers samples a rank's reports.

    Prefill of all prompts at once, then a decode loop. Its cache holds each prompt once where the
    decoder is packed, else each member has a copy of its prompt's.
    """
    text, size = sizes.text, mode.compute
    prompts = work.validated if validation else work.step.groups
    members = 1 if validation else work.sampled
    rows, prompt = prompts * members, work.step.prompt
    tokens, longest = prompts * prompt, work.longest
    if sizes.packed:
        places = -(-longest // PLACES) * PLACES
        prefix = sizes.cache_bytes(tokens, FP32)
        begun = prefix + rows * sizes.cache_bytes(PLACES, size)
        held = prefix + rows * sizes.cache_bytes(places, size)
        # a layer's cache is widened to be read where it is in bf16
        widened = rows * sizes.cache_bytes(longest, FP32) if size != FP32 else 0
    else:
        begun = (prompts + rows) * sizes.cache_bytes(prompt, size)
        held = rows * sizes.cache_bytes(prompt + longest, size)
        widened = held  # a layer's is copied as it grows
    step = widened // text.layers
    step += 2 * rows * text.heads * (prompt + longest) * FP32
    head = text.vocabulary * text.width * FP32 if size != FP32 else 0
    drawn = rows * text.vocabulary * (SAMPLE_BYTES if not validation else 3 * FP32)
    # the tower runs before there is a cache, then the prefill writes it; images whose embeddings
    # are kept go through it a prompt at a time
    tower = _tower_work(sizes, (1 if mode.embeddings_kept else prompts) * work.step.patches, size)
    prefill = tokens * (3 * text.width + 3 * text.inner) * size
    return max(tower, prefill + begun, held + head + max(step, drawn))


def _tower_work(sizes: Sizes, patches: int, size: int) -> int:
    """Bytes of a forward of the vision tower without gradients: pixels and one block's MLP."""
    vision = sizes.vision
    if vision is None:
        return 0
    pixels, block = vision.patch_values * size, (4 * vision.width + 3 * vision.inner) * size
    # they come in fp32
    arriving = vision.patch_values * FP32 if size != FP32 else 0
    return patches * (pixels + max(arriving, block))


def optimizer_peak(weights: list[Weight], ranks: int, mode: Mode, optimizer: str) -> int:
    """Return AdamW's temporaries: those of one tensor, none in 8 bits.

    On a GPU without shards all tensors step at once.
    """
    trained = [w for w in weights if w.trained]
    if optimizer == "adamw_8bit":
        return 0
    if mode.cuda and not mode.sharded:
        return FP32 * elements(trained)
    return 2 * FP32 * max((w.elements for w in trained), default=0) // ranks


def _trained(weights: list[Weight], part: str) -> int:
    return elements(w for w in weights if w.trained and w.part == part)


def _norm(tokens: int, width: int, size: int, trained: bool) -> int:
    """Input in fp32, its inverse root, and, for the weight's gradient, the normed in `size`."""
    return tokens * (width * (FP32 + size * trained) + FP32)


def _layer(sizes: Sizes, micro: Packed, mode: Mode, *, trained: bool) -> int:
    """Bytes that autograd saves of a decoder layer."""
    text, size, tokens = sizes.text, mode.compute, micro.tokens
    queries = text.heads * text.head_width
    wide = text.width * (1 + 1) + queries + text.inner  # what the matrices take
    saved = 2 * _norm(tokens, text.width, size, trained)
    saved += tokens * 3 * text.inner * size  # gate, its SiLU, up
    if trained or (mode.lora and not mode.dropout):
        saved += tokens * wide * size
    if mode.lora:
        # with dropout each matrix of the adapter takes an input of its own, and its mask stays
        taken = sum(columns for _, columns in sizes.adapted) // text.layers if mode.dropout else 0
        mask = 1 if mode.cuda else size
        ranks = len(sizes.adapted) * mode.lora // text.layers
        saved += tokens * (taken * (size + mask) + ranks * size)
    return saved + _attention(sizes, micro, mode)


def _attention(sizes: Sizes, micro: Packed, mode: Mode) -> int:
    """Bytes that attention saves: queries, keys, values, output, log-sum-exp of each block."""
    text, size = sizes.text, mode.compute
    queries, keys = text.heads * text.head_width, 2 * text.key_heads * text.head_width
    # FlexAttention, or plain causal rows: nothing is gathered
    if mode.sharing != "cache" and (mode.cuda or micro.members <= 1):
        return micro.tokens * ((2 * queries + keys) * size + text.heads * FP32)
    rows = micro.groups * micro.members * micro.report
    seen = micro.groups * micro.members * (micro.prompt + micro.report)
    tokens = micro.groups * micro.prompt + rows
    mask = rows * (micro.prompt + micro.report) * size
    of_keys = (micro.groups * micro.prompt + seen) * keys * size
    return tokens * (2 * queries * size + text.heads * FP32) + of_keys + mask


def _tower(sizes: Sizes, weights: list[Weight], micro: Packed, mode: Mode) -> list[Stage]:
    """List the stages of the vision tower; a frozen one keeps nothing."""
    vision = sizes.vision
    assert vision is not None
    own = [w for w in weights if w.part in TOWER and w.trained]
    if not own or not micro.patches:
        return []
    size, patches, width = mode.compute, micro.all_patches, vision.width
    stream = patches * width * size
    # norm1, norm2; the inputs of qkv, proj, gate and up; queries and keys turned, qkv, output
    block = 2 * _norm(patches, width, size, True) + 3 * stream + 6 * stream
    block += patches * (4 * vision.inner * size + vision.heads * FP32)
    work = 2 * stream + 2 * patches * vision.inner * size
    of_block = FP32 * elements(own, "block") // vision.layers
    if mode.checkpointing:
        one = Stage(stream, block - stream, work, of_block)
    else:
        one = Stage(block, 0, work, of_block)
    pixels = Stage(patches * vision.patch_values * size, 0, stream, FP32 * elements(own, "patches"))
    merger = Stage(
        _norm(patches, width, size, True) + 3 * stream, 0, stream, FP32 * elements(own, "merger")
    )
    return [pixels, *[one] * vision.layers, merger]


def _head_work(scored: int, sizes: Sizes, mode: Mode, head: int) -> int:
    """Bytes of the loss head's backward: tiles of logits, gradients of hidden states and weight."""
    text = sizes.text
    tile, columns, widest = TILE_GPU if mode.cuda else TILE_CPU
    columns = min(max(columns, min(tile // max(1, scored), widest)), text.vocabulary)
    tile = min(max(tile, columns), scored * text.vocabulary)
    work = tile * (FP32 + mode.compute) + scored * text.width * FP32
    if mode.compute != FP32:
        work += columns * text.width * FP32 * bool(head) + scored * text.width * mode.compute
        work += head * mode.compute
    return work
