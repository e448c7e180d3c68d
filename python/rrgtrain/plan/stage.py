"""Plan a stage of a recipe on a machine: bytes by part, tokens, seconds."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from rrgtrain.plan.machine import UNMEASURED
from rrgtrain.plan.memory import (
    FP32,
    Mode,
    StateBytes,
    copies,
    optimizer_peak,
    rollout_peak,
    state_bytes,
    update_peak,
)
from rrgtrain.plan.setup import AT_MOST, ESTIMATED, Part, Setup
from rrgtrain.plan.sizes import TOWER, Weight, elements
from rrgtrain.plan.work import phase_seconds, step_seconds
from rrgtrain.plan.workload import Lengths, Workload, lengths_of, workload_of
from rrgtrain.run.room import GIB
from rrgtrain.schema import DataSettings

MIB = 1 << 20
PHASES = ("start", "update", "optimizer", "rollout", "validation")
"""Phases of a device."""
VLLM_WEIGHTS, VLLM_CACHE = "vLLM's weights", "vLLM's KV cache"
# Never measured by this project.
CONTEXT_BYTES = int(0.8 * GIB)
"""CUDA's context, NCCL's buffers and loaded kernels of a process."""
SLACK = 0.05
"""Share of tensors that the allocator holds beside them, by fragmentation."""
PROCESS_BYTES = int(2.5 * GIB)
"""Host memory of a rank: Python, torch, transformers, the data set's index."""
PROCESS_BYTES_CPU = int(0.7 * GIB)
"""The same without CUDA."""
WORKER_BYTES = int(0.6 * GIB)
"""Host memory of a process that reads images."""
READER_BYTES = {
    "chexbert": int(0.44 * GIB),
    "radgraph": int(0.44 * GIB),
    "ratescore": int(1.2 * GIB),
}
"""Weights of the models that read reports, by backend: BERT-base twice; DeBERTa-v3-base and
BioLORD. From their model cards. Those behind an endpoint are elsewhere."""
READER_WORK = int(0.5 * GIB)
"""Working set of the largest of them on a batch."""
REPORT_BYTES = 4096
"""A report with its labels and scores, as a prediction's row."""
LOG_BYTES = 4096
"""A step's row in metrics.jsonl and TensorBoard."""
RECORD_BYTES = 24
"""A token of a step's record, compressed."""
HELD_OUT = 2000
"""Studies of the split that a run ends by evaluating, where the recipe sets no limit."""


@dataclass(frozen=True)
class StagePlan:
    """Hold a stage's parts on device, host and disk, its tokens and seconds."""

    stage: str
    device: list[Part]
    host: list[Part]
    disk: list[Part]
    tokens: dict[str, int]
    seconds: dict[str, float]
    step: float
    steps: int
    work: Workload = field(repr=False)
    ranks_here: int = 1
    """Processes of a node."""

    def total(self, parts: str, phase: str) -> int:
        """Bytes of a phase, over the parts "device", "host" or "disk"."""
        return sum(part.bytes.get(phase, 0) for part in getattr(self, parts))

    @property
    def peak(self) -> tuple[str, int]:
        """The phase that needs most of a device, and its bytes."""
        phases = {name for part in self.device for name in part.bytes}
        return max(((p, self.total("device", p)) for p in phases), key=lambda each: each[1])


def plan_stage(setup: Setup, stage: str) -> StagePlan:
    """Plan one stage, "sft" or "rl"."""
    recipe, sizes, ranks = setup.recipe, setup.sizes, setup.ranks
    lengths = lengths_of(recipe.data, recipe.policy, recipe.rl.max_new_tokens, sizes)
    work = workload_of(recipe, stage, ranks, lengths)
    weights, mode, shards = setup.weights(stage), setup.mode(stage), setup.shards
    optimizer = recipe.rl.optimizer if stage == "rl" else "adamw"
    state = state_bytes(weights, compute=setup.compute, ranks=shards, optimizer=optimizer)
    # OraPO's preference compares with a reference whatever `rl.beta` is
    prefers = "orapo" in recipe.rl.algorithm.split("+") and recipe.oracle.loss == "dpo"
    reference = stage == "rl" and (recipe.rl.beta > 0 or prefers)
    seconds = phase_seconds(setup, weights, work, mode, reference=reference)
    everywhere = replace(work.step, groups=work.prompts)
    tokens = {
        "prompt": everywhere.groups * everywhere.prompt,
        "reports": everywhere.scored,
        "sampled": everywhere.groups * work.sampled * everywhere.report,
        "update": everywhere.by(mode.sharing).tokens,
        "micro-batch": work.micro.by(mode.sharing).tokens,
        "micro-batches": work.micros,
    }
    return StagePlan(
        stage,
        _device(setup, weights, state, work, mode, reference=reference),
        _host(setup, weights, state, lengths, stage),
        _disk(setup, weights, state, work, stage),
        tokens,
        seconds,
        step_seconds(seconds, ahead=recipe.data.workers > 0),
        recipe.rl.steps if stage == "rl" else recipe.sft.steps,
        work,
        setup.here,
    )


def _device(
    setup: Setup,
    weights: list[Weight],
    state: StateBytes,
    work: Workload,
    mode: Mode,
    *,
    reference: bool,
) -> list[Part]:
    """Parts of a device in the phases start, update, optimizer, rollout and validation."""
    recipe, sizes, machine = setup.recipe, setup.sizes, setup.machine
    optimizer = recipe.rl.optimizer if work.stage == "rl" else "adamw"
    held = ("update", "optimizer", "rollout", "validation")
    above = update_peak(sizes, weights, work, mode, setup.shards)
    copied = copies(weights, sizes.text.layers, mode, setup.shards).gathered
    engine = recipe.rollout.engine
    own = engine == "transformers"
    # a push to vLLM gathers a layer at a time, and the tower that embeds the images
    whole = state.gathered if own else copied
    sampled = rollout_peak(sizes, work, mode) if own and work.stage == "rl" else 0
    validated = rollout_peak(sizes, work, mode, validation=True) if own else 0
    note = "" if sizes.packed else ESTIMATED
    parts = [
        Part("weights as loaded", {"start": _loaded(setup, weights, state)}),
        Part("weights", dict.fromkeys(held, state.weights)),
        Part("moments", dict.fromkeys(held, state.moments)),
        Part("gradients", dict.fromkeys(held[:2], state.gradients)),
        Part(
            f"{recipe.policy.dtype} copies",
            {"update": copied, "rollout": whole, "validation": whole},
        ),
        Part(
            "activations",
            {"update": above - state.gradients - copied},
            note if mode.sharing == "row" else ESTIMATED,
        ),
        Part(
            "optimiser's step",
            {"optimizer": optimizer_peak(weights, setup.shards, mode, optimizer)},
        ),
        Part(
            "image embeddings",
            dict.fromkeys(held, _embeddings(setup, work, mode)),
            "" if recipe.data.source == "phantom" else AT_MOST,
        ),
    ]
    if reference:
        parts.append(_reference(setup, weights, mode))
    if engine == "vllm":
        share = int(recipe.rollout.memory * machine.memory)
        served = _served(setup, weights)
        # asleep, it holds nothing while the policy trains
        awake = held[2:] if recipe.rollout.sleep else held
        parts.append(Part(VLLM_WEIGHTS, dict.fromkeys(awake, served)))
        rest = dict.fromkeys(awake, max(0, share - served))
        parts.append(Part(VLLM_CACHE, rest))
    parts.append(Part("KV cache and logits", {"rollout": sampled, "validation": validated}, note))
    parts.append(_readers(setup, held))
    if machine.cuda:
        phases = {name for part in parts for name in part.bytes}
        slack = {p: int(SLACK * sum(part.bytes.get(p, 0) for part in parts)) for p in phases}
        extra = {p: CONTEXT_BYTES + size for p, size in slack.items()}
        parts.append(Part("context, fragments", extra, UNMEASURED))
    return [part for part in parts if any(part.bytes.values())]


def _loaded(setup: Setup, weights: list[Weight], state: StateBytes) -> int:
    """Bytes of a rank while the policy is read.

    On several ranks its shards and a whole tensor; then the root is gathered for the first time,
    into a buffer and out of it.
    """
    if not setup.by_shards:
        return setup.loaded
    largest = max(w.elements * w.itemsize for w in weights)
    root = elements(w for w in weights if w.part not in ("layer", "adapter"))
    return state.weights + max(largest, 2 * setup.compute * root)


def _served(setup: Setup, weights: list[Weight]) -> int:
    """Bytes of what vLLM is sent: all but a vision tower that embeds the images here."""
    embedded = TOWER if setup.sizes.packed else ()
    return setup.compute * elements(w for w in weights if w.part not in embedded)


def _reference(setup: Setup, weights: list[Weight], mode: Mode) -> Part:
    """The frozen policy of KL, in the dtype of computation.

    With an adapter it is the base with the adapter off, unless `rl.reference` names a checkpoint.
    A copy of the start shares what does not train, another checkpoint nothing.
    """
    copied, reference = 0, setup.recipe.rl.reference
    named = reference != "start"
    if setup.lora:
        named = reference not in ("start", "base", setup.recipe.policy.path)
    if named or not setup.lora:
        weights = [w for w in weights if w.part != "adapter"]
        own = [Weight(w.part, w.shape, trained=False, itemsize=setup.compute) for w in weights]
        if setup.ranks > 1:
            copied = state_bytes(own, compute=setup.compute, ranks=setup.shards).weights
            layers = elements(own, "layer")
            root = elements(own) - layers
            copied += setup.compute * (root + 2 * layers // setup.sizes.text.layers)
        else:
            copied = setup.compute * elements(w for w in weights if w.trained or named)
    held = ("update", "optimizer", "rollout", "validation")
    return Part("reference policy", dict.fromkeys(held, copied))


def _embeddings(setup: Setup, work: Workload, mode: Mode) -> int:
    """Embeddings of images kept beside a frozen tower: their limit, or those of all phantoms."""
    if not mode.embeddings_kept or not work.images or setup.sizes.vision is None:
        return 0
    limit = setup.recipe.policy.vision_cache_mib * MIB
    size = work.step.embedded * setup.sizes.text.width * mode.compute
    splits = [most_studies(setup.recipe.data, split) for split in ("train", "val", "test")]
    known = [studies for studies in splits if studies is not None]
    return min(limit, sum(known) * size) if len(known) == len(splits) else limit


def most_studies(data: DataSettings, split: str) -> int | None:
    """Bound the studies of a split; None where only the data set says."""
    known = getattr(data.phantom, split) if data.source == "phantom" else None
    return min((n for n in (known, data.limit) if n is not None), default=None)


def _readers(setup: Setup, held: tuple[str, ...]) -> Part:
    """Models that read reports, on the device they share with the policy."""
    reward = setup.recipe.reward
    if reward.device == "cpu":
        return Part("reward models", {})
    asked = {reward.labeller, reward.extractor}
    asked |= {"radgraph" if term.startswith("radgraph_") else term for term in reward.terms}
    if "editgrpo" in setup.recipe.rl.algorithm:
        asked.add(setup.recipe.edit.extractor or "")
    if "ditpo" in setup.recipe.rl.algorithm:
        asked.add(setup.recipe.token_weights.labeller or "")
    names = asked & READER_BYTES.keys()
    size = sum(READER_BYTES[name] for name in names) + READER_WORK * bool(names)
    label = f"reward models ({', '.join(sorted(names))})"
    return Part(label, dict.fromkeys(held, size), UNMEASURED)


def _host(
    setup: Setup, weights: list[Weight], state: StateBytes, lengths: Lengths, stage: str
) -> list[Part]:
    """Parts of a node's memory, of all its ranks."""
    data, sizes, rollout = setup.recipe.data, setup.sizes, setup.recipe.rollout
    here, phases = setup.here, ("start", "run")
    staged = here * (state.staged if setup.machine.cuda else state.gradients + state.moments)
    # asleep, vLLM keeps what does not train
    asleep = stage == "rl" and rollout.engine == "vllm" and rollout.sleep and setup.lora > 0
    served = _served(setup, weights) if asleep and setup.machine.cuda else 0
    sent = _served(setup, weights) if rollout.engine == "vllm_server" else 0
    note = UNMEASURED if setup.machine.cuda else ""
    loaded = _loaded(setup, weights, state)
    if setup.machine.cuda:  # it gets one tensor after the other; of shards rank 0 maps the file
        loaded = 0 if setup.by_shards else FP32 * max(w.elements for w in weights)
    pixels = 0
    if sizes.vision is not None:
        pixels = lengths.images * lengths.patches * sizes.vision.patch_values * FP32
    process = PROCESS_BYTES if setup.machine.cuda else PROCESS_BYTES_CPU
    ahead = data.read_ahead * pixels if data.workers else 0
    parts = [
        Part("processes", dict.fromkeys(phases, here * process), UNMEASURED),
        Part("workers", {"run": here * data.workers * WORKER_BYTES}, UNMEASURED),
        Part("images read ahead", {"run": here * ahead}),
        Part("prompt cache", {"run": here * data.cache_mib * MIB * (pixels > 0)}, AT_MOST),
        Part("weights while loaded", {"start": here * loaded}, note),
        Part("weights for vLLM", {"run": sent}),
        Part("vLLM's weights asleep", {"run": here * served}),
        Part("checkpoint's staging", {"run": staged}),
    ]
    return [part for part in parts if any(part.bytes.values())]


def _disk(
    setup: Setup, weights: list[Weight], state: StateBytes, work: Workload, stage: str
) -> list[Part]:
    """Parts of the run's directory at its fullest."""
    recipe = setup.recipe
    trained = sum(w.elements * w.itemsize for w in weights if w.trained)
    # the best one is kept by a tag, and one is written while the last ones stay; none comes more
    # than once a step; before convergence is known, the last validation's stays beside the best
    steps = recipe.rl.steps if stage == "rl" else recipe.sft.steps
    two = stage == "sft" and recipe.sft.choose == "before_convergence"
    count = min(recipe.checkpoint.keep + 2 + two, steps + 1)
    model = sum(w.elements * w.itemsize for w in weights if w.trained or not setup.lora)
    kept = recipe.log.kept(steps) if stage == "rl" else 0
    after = recipe.log.thin_after
    thinned = "" if after is None or after >= steps else f", thinned from step {after:,}"
    records = kept * replace(work.step, groups=work.prompts).scored * RECORD_BYTES
    most = (recipe.eval.limit, most_studies(recipe.data, recipe.eval.split))
    studies = min((n for n in most if n is not None), default=HELD_OUT)
    # the server's: all of them, what was trained since, and the file that is written; vLLM in
    # process gets them in memory
    server = recipe.rollout.engine == "vllm_server"
    served = 3 * _served(setup, weights) if server else 0
    parts = [
        Part(f"{count} checkpoints", {"run": count * (trained + setup.shards * state.moments)}),
        Part("weights at the end", {"run": model}),
        Part("weights for vLLM", {"run": served if stage == "rl" else 0}),
        Part(
            "predictions and logs", {"run": studies * REPORT_BYTES + steps * LOG_BYTES}, UNMEASURED
        ),
        Part(f"{kept:,} step records{thinned}", {"run": records}, UNMEASURED),
    ]
    return [part for part in parts if any(part.bytes.values())]
