"""Tell before a run what it does with a model; measure one update: `rrgtrain check`."""

from __future__ import annotations

import json
import math
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from PIL import Image

from rrgdata.settings import DataSettings
from rrgdata.study import ImageRef, Study
from rrgpolicy import preflight
from rrgpolicy.model.forward import head_logps, hidden_states
from rrgpolicy.model.load import end_of_turn
from rrgpolicy.model.policy import Policy, add_lora
from rrgpolicy.model.probe import NoWay, probe
from rrgpolicy.model.prompt import encode_prompt, template_held
from rrgpolicy.ranks import sharding
from rrgpolicy.rollout import SamplingRequest
from rrgpolicy.rollout.engines import build_engine, require_engine
from rrgtrain.algorithms import Group, Member, build_algorithm
from rrgtrain.config import replaced
from rrgtrain.errors import Stopped, UserError
from rrgtrain.run.checked import SERVED, check_start
from rrgtrain.run.room import gib
from rrgtrain.run.session import example_prompts, load_for
from rrgtrain.run.stages import Stages
from rrgtrain.schema import LogSettings, PolicySettings, Recipe, RlSettings, SftSettings
from rrgtrain.train import Batch, SamplerWatch
from rrgtrain.train.optim import adamw, clip_gradients
from rrgtrain.train.step_log import peak_memory
from rrgtrain.train.written import own_sampler

REFUSED = "REFUSED: "
# Of a radiograph as it comes from a detector, in pixels.
WIDTH, HEIGHT = 2500, 2048
TOKENS = 16
PATIENCE = 10.0  # seconds for a server that does not answer


def check_model(recipe: Recipe) -> Iterator[str]:
    """Open the policy of a recipe, and yield a line for each of its parts.

    A line with REFUSED tells what would stop a run. Nothing is trained, and nothing is left.
    """
    settings = recipe.policy
    try:
        engine = recipe.rollout.engine
        check_start(settings, engine, one_image=recipe.data.one_image)
        policy = load_for(settings, settings.path, engine, masters=False)
    except Stopped:
        raise
    except UserError as error:
        yield f"model: {REFUSED}{error}"
        return
    lines: dict[str, Callable[[], str]] = {
        "model": lambda: _model(policy),
        "codec": lambda: _codec(policy),
        "end of turn": lambda: _end_of_turn(policy),
        "template": lambda: template_held(policy, settings.prompt),
        "adapter": lambda: _adapter(policy, settings),
        "frozen": lambda: _frozen(policy),
        "images": lambda: _images(policy, recipe.data.images),
        "sharing": lambda: _sharing(policy, settings.sharing),
        "engine": lambda: _engine(policy, recipe),
    }
    for name, line in lines.items():
        try:
            yield f"{name}: {line()}"
        except Stopped:
            raise
        except UserError as error:
            yield f"{name}: {REFUSED}{error}"


def _model(policy: Policy) -> str:
    total = sum(p.numel() for p in policy.model.parameters())
    name = type(policy.backbone).__name__
    return f"{name}, {_count(total)} parameters, {policy.dtype} on {policy.device}".replace(
        "torch.", ""
    )


def _codec(policy: Policy) -> str:
    return f"{policy.embedding_shape[0]} ids; decode() agrees"


def _end_of_turn(policy: Policy) -> str:
    tokens = policy.tokenizer.convert_ids_to_tokens
    by = (
        "the chat template"
        if end_of_turn(policy.tokenizer) is not None
        else "generation_config.json"
    )
    others = [tokens(i) or f"token {i}" for i in policy.eos_ids if i != policy.end_of_turn]
    also = f"; {', '.join(others)} ends one too when sampled" if others else ""
    return f"{tokens(policy.end_of_turn)}, by {by}{also}"


def _adapter(policy: Policy, settings: PolicySettings) -> str:
    add_lora(policy, settings.lora, settings.seed)
    targets = policy.family.lora_targets(policy.backbone)
    if not hasattr(policy.model, "peft_config"):
        kind = "a pattern" if isinstance(targets, str) else f"{len(targets)} modules"
        return f"none, the whole model trains (policy.lora.rank would adapt {kind})"
    adapted = [n for n, m in policy.model.named_modules() if hasattr(m, "lora_A")]
    kinds = Counter(name.rsplit(".", 1)[-1] for name in adapted)
    (config, *_) = policy.model.peft_config.values()  # type: ignore[operator]
    listed = ", ".join(f"{name} x {n}" for name, n in kinds.items())
    return f"rank {config.r} on {len(adapted)} modules: {listed}"


def _frozen(policy: Policy) -> str:
    frozen = sum(p.numel() for p in policy.model.parameters() if not p.requires_grad)
    eyes = sum(p.numel() for _, p in policy.eyes() if not p.requires_grad)
    if not frozen:
        return "nothing"
    total = sum(p.numel() for p in policy.model.parameters())
    parts = [f"tower and projector ({_count(eyes)})"] if eyes else []
    if frozen > eyes:
        parts.append(f"the language model but the adapter ({_count(frozen - eyes)})")
    return f"{' and '.join(parts)}, of {_count(total)} parameters"


def _images(policy: Policy, images: str) -> str:
    if not policy.sees_images:
        if images == "none":
            return "none, it reads text alone"
        return "none, it reads text alone: a run refuses studies with images (data.images=none)"
    view = (ImageRef(Path("a.png"), "frontal"),)
    picture = Image.new("RGB", (WIDTH, HEIGHT))
    prompt = encode_prompt(policy, Study("a", "train", None, None, view), [picture])
    tokens = prompt.input_ids.tolist().count(policy.image_token_id)
    return f"{tokens} tokens for a radiograph of {WIDTH:,} x {HEIGHT:,} pixels"


def _sharing(policy: Policy, sharing: str) -> str:
    examples = [prompt for _, prompt in example_prompts(policy)]
    try:
        probed = probe(policy, examples, sharing)
    except NoWay as error:
        raise UserError(str(error)) from error
    probed.applied(policy)
    return probed.line("").removeprefix(": ")


def _engine(policy: Policy, recipe: Recipe) -> str:
    """Sample from the recipe's engine, and compare as the first step would."""
    name = recipe.rollout.engine
    most = recipe.data.most_images
    studies, prompts = zip(*example_prompts(policy, recipe.policy.prompt, most), strict=True)
    request = SamplingRequest(
        prompts,
        group=2,
        max_new_tokens=min(TOKENS, recipe.rl.max_new_tokens),
        seeds=[[0, 1], [2, 3]],
        temperature=recipe.rl.temperature,
        top_p=recipe.rl.top_p,
    )
    with TemporaryDirectory() as folder:
        served = Path(folder) / SERVED
        rollout = replace(recipe.rollout, wait=min(recipe.rollout.wait, PATIENCE), compile="off")
        require_engine(rollout, served)
        quick = replaced(recipe, rollout=rollout)
        with own_sampler(partial(build_engine, quick), served) as sampler:
            with sampler.weights(policy) as sample:
                rollouts = sample(request)
            sampler.release(policy)
    groups = [
        Group(b, studies[b], prompts[b], tuple(Member(r.ids, "", sampler_logps=r.logps) for r in g))
        for b, g in enumerate(rollouts)
    ]
    plain = build_algorithm(replaced(recipe, rl=replace(recipe.rl, algorithm="grpo")))
    watch = SamplerWatch(policy, plain, recipe.rl, recipe.rollout.max_gap)
    count = sum(len(group.members) for group in groups)
    row = watch(Batch.of(groups, torch.ones(count), recipe.rl), [])
    if not row:
        return f"{name} gives no log-probs to compare with"
    kind = "with images" if policy.sees_images else "of text"
    gap, tail = row["sampler/gap_mean"], row["sampler/gap_p99"]
    return (
        f"{name} and the trainer differ by {gap:.1g} nats a token ({tail:.1g} at the 99th "
        f"percentile) over {count} reports of {len(groups)} prompts {kind}"
    )


def _count(number: int) -> str:
    power = min(int(math.log10(max(number, 1))) // 3, 3)
    return f"{number / 1000**power:.3g}{('', ' k', ' M', ' G')[power]}"


SENTENCE = "Small left pleural effusion with adjacent atelectasis. No pneumothorax."
INDICATION = "Shortness of breath, fever and cough for three days."
SCORE = f"{__name__}:drawn_score"
NO_TOKEN = -1
USUAL_IMAGES = 2
"""Of a study, where the recipe sets no limit: frontal and lateral."""


def drawn_score(report: str, reference: str) -> float:
    """Score a report by its text alone: members that differ all have a gradient."""
    return zlib.crc32(report.encode()) / 2**32


def measure_step(recipe: Recipe, stage: str) -> Iterator[str]:
    """Train one step, of "sft" or "rl", on made-up studies; yield its peak.

    The studies have as many full-size radiographs as the recipe allows, and no report ends before
    its largest length. Scores are drawn from the text, so that nearly every member trains, and no
    model that reads reports is counted. In one process, whatever ranks the recipe is for.
    Nothing is left. Raises UserError as a run does.
    """
    if recipe.rollout.engine != "transformers":
        raise UserError(
            f"--step measures rollout.engine=transformers, and the recipe has "
            f"{recipe.rollout.engine}, which holds memory of its own; add "
            "rollout.engine=transformers"
        )
    with TemporaryDirectory() as name:
        home = Path(name)
        count = recipe.sft.batch if stage == "sft" else recipe.rl.prompts
        images = USUAL_IMAGES if (most := recipe.data.most_images) is None else most
        _write_studies(home, count, images, recipe.eval.max_new_tokens)
        data = DataSettings(source="table", root=str(home / "studies.jsonl"))
        read: dict[str, Any] = {"labeller": "rules", "extractor": "rules", "options": {}}
        small = replaced(
            recipe,
            data=replace(data, images="all" if images else "none", cache_mib=recipe.data.cache_mib),
            reward=replace(recipe.reward, terms={SCORE: 1.0}, starts={}, against="report", **read),
            edit=replace(recipe.edit, extractor=None),
            rl=replace(recipe.rl, steps=1, warmup=0, resample=0, ahead=0, truncated="score"),
            sft=replace(recipe.sft, steps=1, warmup=0, eval_every=1, drops=0),
            eval=replace(recipe.eval, limit=1, best_by="micro_f1_13", meteor=False, samples=0),
            log=LogSettings(records=0),
        )
        with Stages.open(small, home / "run", sft=stage == "sft", rl=stage == "rl") as stages:
            policy = stages.session.policy
            # a token that is never drawn: every report has its largest length
            policy.eos_ids = (NO_TOKEN,)
            sharding.setup(small.scale.mode, policy, shard=small.scale.shard)
            settings = small.sft if stage == "sft" else small.rl
            yield from _loop_faults(policy, settings)
            result = stages.sft() if stage == "sft" else stages.rl()
            peak, device = peak_memory(policy.device), policy.device.type
    what = "the GPU's allocator" if device == "cuda" else "this process, PyTorch included"
    rl = stage == "rl"
    tokens = recipe.rl.max_new_tokens if rl else recipe.eval.max_new_tokens
    spent = sum(time for phase, time in result.phases.items() if phase != "validate")
    steps = recipe.rl.steps if rl else recipe.sft.steps
    yield (
        f"step: one {stage} update of {count} prompts, {images} images each, "
        f"reports of {tokens} tokens: "
        f"peak {gib(peak)} of {what}, {spent:.1f} s; {steps:,} as long are "
        f"{steps * spent / 60:,.1f} minutes at most: no report ends early, and images of {WIDTH:,} "
        f"x {HEIGHT:,} pixels are read; validations, and models that read reports, not counted"
    )


def _loop_faults(policy: Policy, settings: SftSettings | RlSettings) -> Iterator[str]:
    """Name in a line each what a dry step of a stage finds; see `preflight`."""
    # an optimiser in 8 bits holds parts of the same parameters
    optimizer = adamw(policy.model, settings.lr, 0.0, (settings.beta1, settings.beta2))
    prompts = [prompt for _, prompt in example_prompts(policy)]
    members = [[policy.codec.encode(SENTENCE)] for _ in prompts]

    def step() -> None:
        policy.model.train()
        hidden, batch = hidden_states(policy, prompts, members)
        sharding.backward(policy, -head_logps(policy, hidden, batch.targets).mean())

    clip = partial(clip_gradients, [*policy.model.parameters()], 1.0)
    for fault in preflight(policy.model, optimizer, step, clip=clip):
        yield f"step: {fault.name}: {fault.line}; {fault.mend}"


def _write_studies(home: Path, count: int, images: int, words: int) -> None:
    """Write a table of `count` training studies, one to validate and one to test, and images."""
    picture = Image.linear_gradient("L").resize((WIDTH, HEIGHT))
    report = " ".join([SENTENCE] * (1 + words // len(SENTENCE.split())))
    rows = []
    for number, split in enumerate([*["train"] * count, "val", "test"]):
        names = [f"{number}-{k}.png" for k in range(images)]
        for name in names:
            picture.save(home / name)
        row = {"id": f"study{number}", "split": split, "report": report, "images": names}
        rows.append(json.dumps(row | {"indication": INDICATION, "view": "frontal"}))
    (home / "studies.jsonl").write_text("\n".join(rows) + "\n")
