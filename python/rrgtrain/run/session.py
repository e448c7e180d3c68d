"""Open the policy and what samples from it, a run's third step."""

from __future__ import annotations

import dataclasses
import json
import random
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from rrgclinical.common import json_reader
from rrgclinical.common.files import atomic_directory, atomic_write
from rrgclinical.common.progress import progress
from rrgclinical.labels import OBSERVATIONS, to_binary
from rrgclinical.text import common_words
from rrgdata.study import ImageRef, Study
from rrgpolicy.model.attention import use_rows
from rrgpolicy.model.backbone import Backbone
from rrgpolicy.model.forward import refuse_longer, vision_embeddings
from rrgpolicy.model.load import checkpoint_layers, load_policy
from rrgpolicy.model.own_forward import VisionCache
from rrgpolicy.model.policy import Policy, add_lora
from rrgpolicy.model.probe import NAMES, NoWay, Probed, probe
from rrgpolicy.model.prompt import EncodedPrompt, encode_prompt, prompt_text
from rrgpolicy.model.tiny import build_tiny
from rrgpolicy.ranks import nodes, ranks, sharding
from rrgpolicy.rollout.engines import READERS, build_engine
from rrgpolicy.rollout.policy_sampler import PolicySampler
from rrgtrain.errors import UserError
from rrgtrain.rewards import RewardService
from rrgtrain.run.checked import DTYPES, SERVED
from rrgtrain.run.choose import Chooser, seeds_of
from rrgtrain.run.data import Data, split_of, validation_split
from rrgtrain.run.room import check_room
from rrgtrain.schema import PolicySettings, Recipe
from rrgtrain.state.remembered import INIT
from rrgtrain.train.evaluate import AxesWatch, Evaluation, evaluate, write_reports
from rrgtrain.train.loader import PromptLoader, batch_indices

# Studies whose prompts are held against what was probed.
FEW = 8
# Studies that hold a word before a tokenizer learns it: it leaves with an export, as a name would.
FEWEST_STUDIES = 5


@dataclass
class Session:
    """The open parts of one experiment; `studies` maps splits to studies, `chosen` are those
    training studies that reinforcement learning sees."""

    recipe: Recipe
    studies: dict[str, list[Study]]
    policy: Policy
    prompts: PromptLoader
    rewards: RewardService
    chosen: list[Study] = field(default_factory=list)
    sampler: PolicySampler = field(default_factory=PolicySampler)

    def evaluate(self, studies: list[Study], *, description: str | None = None) -> Evaluation:
        return self._scored(studies, *self._written(studies, description=description))

    def _written(self, studies: list[Study], **draw: Any) -> tuple[list[str], list[bool]]:
        to, by = self.recipe.eval, self.sampler
        return write_reports(self.policy, self.prompts, studies, to, sampler=by, **draw)

    def _scored(
        self, studies: list[Study], reports: Sequence[str], finished: Sequence[bool]
    ) -> Evaluation:
        evaluation = evaluate(reports, studies, self.rewards, self.recipe.eval)
        return replace(evaluation, cut=[not whole for whole in finished])

    def candidates(self, studies: list[Study], choose: Chooser) -> dict[str, Evaluation]:
        """Evaluate, of N reports drawn of each study, the first and the chosen one."""
        recipe, n = self.recipe, choose.candidates
        own: dict[str, Any] = {"draw": recipe.generate, "description": f"{n} candidates"}
        own["seeds"] = lambda study: seeds_of(recipe.seed, study.id, n)
        reports, finished = self._written(studies, **own)
        texts, firsts = self.rewards.scored_text(reports), range(0, len(reports), n)
        places = choose([texts[k : k + n] for k in firsts])
        rows = {"one sample": firsts, f"{choose.rule} of {n}": np.add(firsts, places)}
        return {
            name: self._scored(studies, [reports[i] for i in at], [finished[i] for i in at])
            for name, at in rows.items()
        }

    def split(self, name: str) -> list[Study]:
        return split_of(self.studies, name)

    def validator(self, watch: AxesWatch | None = None) -> Callable[[], dict[str, float]]:
        """Greedy evaluation of the validation split, for the loops; `watch` adds axes."""
        studies = self.split(validation_split(self.studies))[: self.recipe.eval.limit]
        measure = watch or (lambda evaluation: evaluation.metrics())
        return lambda: measure(self.evaluate(studies))


def start_policy(
    recipe: Recipe,
    studies: dict[str, list[Study]],
    work: Path,
    *,
    resume: bool,
    masters: bool = False,
) -> tuple[Policy, PromptLoader]:
    """The policy a run starts from, and its prompts; `masters` as in `load_policy`.

    That of `tiny` is built, warmed up and then kept as `work`/init, which is there when it is
    whole; a resumed run finds it there.
    """
    kept = work / INIT
    settings, engine = recipe.policy, recipe.rollout.engine
    style = settings.prompt
    if settings.path != "tiny" or (resume and kept.is_dir()):
        path = str(kept) if settings.path == "tiny" else settings.path
        policy = load_for(settings, path, engine, masters=masters)
        return policy, PromptLoader(policy, style, recipe.data)
    with atomic_directory(kept) as partial:
        # The warm-up stands in for a tower's pretraining: it comes before any freezing and any
        # choice of dtype.
        plain = replace(settings, dtype="float32", vision_attn="packed")
        train = studies.get("train") or []
        each = [[study.report or "", prompt_text(study, style=style)] for study in train]
        if recipe.data.source != "phantom":  # whose words name nobody
            each = common_words(each, min(FEWEST_STUDIES, len(each)))
        texts = [text for part in zip(*each, strict=True) for text in part if text]
        made = build_tiny(settings, texts, partial)
        policy = load_for(plain, made, engine, masters=False)
        for _, parameter in policy.eyes():
            parameter.requires_grad_(True)
        prompts = PromptLoader(policy, style, recipe.data)
        warm_up_vision(policy, prompts, train, settings, batch=recipe.sft.batch)
        policy.save(partial)
    # Read back from where it stays: as a resume will, and a policy knows where it came from.
    prompts.policy = load_for(settings, str(kept), engine, masters=masters)
    return prompts.policy, prompts


def load_for(
    settings: PolicySettings, path: str | Path, engine: str = "", *, masters: bool
) -> Policy:
    """The policy at `path`, prompts for `engine`; `masters`: to be trained, see `load_policy`."""
    policy = load_policy(
        path,
        dtype=DTYPES[settings.dtype],
        device=nodes.own_device(settings.device),
        freeze_vision=settings.freeze_vision,
        gradient_checkpointing=settings.gradient_checkpointing,
        attn=settings.attn,
        vision_attn=settings.vision_attn,
        # an adapter that is yet to come freezes all that is loaded
        masters=masters and settings.lora.rank == 0,
        unread=masters and settings.lora.rank == 0 and ranks.size() > 1,
    )
    policy.chat_template_kwargs = settings.chat_template_kwargs
    bounds = settings.min_pixels, settings.max_pixels
    if policy.images is not None and bounds != (None, None):
        policy.images.bound(*bounds)
    policy.keeps_pictures = engine in READERS and not policy.family.embedded
    return policy


def open_session(data: Data, work: Path, *, resume: bool = False) -> Session:
    """Open the policy; what has to be written for that goes below `work`.

    `resume` uses the starting policy that the run has kept.
    """
    checked = data.checked
    recipe = checked.recipe
    with ranks.main_first() if checked.config is None else nullcontext():
        # the others read what rank 0 has built
        there = resume or not ranks.is_main()
        policy, prompts = start_policy(
            recipe, data.studies, work, resume=there, masters=bool(checked.stages)
        )
    add_lora(policy, recipe.policy.lora, recipe.policy.seed)
    if checked.stages:
        decide_sharing(policy, recipe.policy, work)
        if policy.probed_tokens is not None:  # before a step is trained
            few = prompts.batch((data.chosen or data.studies.get("train") or [])[:FEW])
            refuse_longer(policy, few, [[torch.zeros(1)]] * len(few))
    check_room(recipe, policy, checked.stages, work, resume=resume)
    sharding.read(policy, recipe.scale.shard)
    if policy.vision_frozen and recipe.policy.vision_cache_mib:
        policy.vision_cache = VisionCache(recipe.policy.vision_cache_mib << 20)
    # dropout draws anew on every rank; the trainer's own draws use no global generators
    seed = recipe.seed + ranks.rank()
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)
    sampler = PolicySampler(lambda own: build_engine(recipe, own, work / SERVED, trains=True))
    return Session(recipe, data.studies, policy, prompts, data.rewards, data.chosen, sampler)


def warm_up_vision(
    policy: Policy,
    prompts: PromptLoader,
    studies: Sequence[Study],
    settings: PolicySettings,
    *,
    batch: int,
) -> float:
    """Train the tiny policy's vision tower on labels for `warmup_steps`; return the last loss.

    The tower starts from noise, and the words of a report are a faint signal: a classification of
    the 14 labels from the mean image token stands in for a pretraining. Studies without images or
    labels are left out; with none left, nothing is done and the loss is NaN.
    """
    usable = [study for study in studies if study.images and study.labels is not None]
    if not usable or settings.warmup_steps == 0:
        return float("nan")
    labels = np.asarray([study.labels for study in usable], dtype=np.int8)
    truth = torch.as_tensor(to_binary(labels)).float().to(policy.device)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed)
        head = torch.nn.Linear(policy.embedding_shape[1], len(OBSERVATIONS))
    head.to(policy.device)
    parameters = [*(p for _, p in policy.eyes()), *head.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=settings.warmup_lr)
    loss = torch.tensor(float("nan"))
    policy.model.train()
    bar = progress(range(settings.warmup_steps), "vision warm-up")
    order = [
        batch_indices(len(usable), batch, step, settings.seed)
        for step in range(settings.warmup_steps)
    ]
    ahead = prompts.ahead([usable[i] for i in chosen] for chosen in order)
    for step, encoded in zip(bar, ahead, strict=True):
        chosen = order[step]
        tokens = vision_embeddings(policy, encoded)
        assert tokens is not None
        counts = [int(prompt.mm_token_type_ids.sum()) for prompt in encoded]
        pooled = torch.stack([part.mean(0) for part in tokens.split(counts)])
        loss = torch.nn.functional.binary_cross_entropy_with_logits(head(pooled), truth[chosen])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        bar.show(loss=loss.item())
    policy.model.eval()
    return loss.item()


FILE = "sharing.json"
# Layers of the copy that is probed while weights are still in their files, two periods at least.
LAYERS = 8


def decide_sharing(policy: Policy, settings: PolicySettings, work: Path) -> None:
    """Probe the policy before it is sharded, and set the way of its forwards.

    A resumed run goes the way it went before, kept in `work`, or says why not. The tiny policy is
    of one model, whose way the tests hold. Raises UserError where `policy.sharing` names a way that
    is not exact, or none is.
    """
    if settings.path == "tiny" and settings.sharing in ("auto", "row"):
        return
    with ranks.propagate_errors():
        probed = ranks.from_main(lambda: _found(policy, settings, work / FILE))
    probed.applied(policy)


def _found(policy: Policy, settings: PolicySettings, file: Path) -> Probed:
    name = type(policy.backbone).__name__
    before = _kept(file)
    sharing = settings.sharing
    try:
        subject = _stand_in(policy) if policy.layout.unread else policy
        examples = [prompt for _, prompt in example_prompts(policy)]
        probed = None
        if sharing == "auto" and before is not None:
            try:
                probed = probe(subject, examples, before.way)
            except NoWay as error:
                print(f"rrgtrain: not as before the resume: {error}", file=sys.stderr)
        probed = probed or probe(subject, examples, sharing)
    except NoWay as error:
        raise UserError(str(error)) from error
    print(f"rrgtrain: {probed.line(name)}", file=sys.stderr)
    if before is not None and probed.way != before.way:
        kind = f"policy.sharing={sharing}" if sharing != "auto" else "what is installed has changed"
        print(
            f"rrgtrain: the run shared prompts by {NAMES[before.way]} so far ({kind})",
            file=sys.stderr,
        )
    atomic_write(file, json.dumps(dataclasses.asdict(probed), indent=1) + "\n")
    return probed


def _kept(file: Path) -> Probed | None:
    if not file.is_file():
        return None
    values: dict[str, Any] = json_reader.read(file, dict)
    fields = {field.name for field in dataclasses.fields(Probed)}
    if values.keys() != fields or values["way"] not in NAMES:
        raise UserError(f"{file} is not what a run has written; delete it")
    return Probed(**{**values, "refused": tuple(values["refused"])})


def example_prompts(
    policy: Policy, style: str = "editgrpo", most: int | None = None
) -> list[tuple[Study, EncodedPrompt]]:
    """Encode prompts of two images, or `most`, and one; of text without a tower."""
    most = (2 if most is None else min(2, most)) if policy.sees_images else 0
    counts = (most, min(1, most))
    draw = np.random.default_rng(0)
    prompts = []
    for number, count in enumerate(counts):
        views = tuple(ImageRef(Path(f"{k}.png"), "frontal") for k in range(count))
        indication = "Cough and fever for two days." if number else "Chest pain."
        study = Study(f"probe-{number}", "train", None, None, views, indication=indication)
        pixels = draw.integers(0, 255, (count, 84, 112, 3), dtype=np.uint8)
        images = [Image.fromarray(p) for p in pixels]
        prompts.append((study, encode_prompt(policy, study, images, style=style)))
    return prompts


def _stand_in(policy: Policy) -> Backbone:
    """A policy of the same configuration with few layers and random weights, its own being unread.

    What trains and what is frozen is as in the policy.
    """
    own = policy.backbone
    # without the attention that it runs with, which no model may be built with
    config = type(own.config).from_dict(own.config.to_dict())
    text = config.get_text_config()
    kinds = list(getattr(text, "layer_types", None) or ())
    period = next((p for p in range(1, len(kinds)) if kinds[p:] == kinds[:-p]), 1)
    text.num_hidden_layers = min(text.num_hidden_layers, max(LAYERS, 2 * period))
    if kinds:
        text.layer_types = kinds[: text.num_hidden_layers]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = type(own)(config).to(policy.device)
    use_rows(model)
    trained = {name for name, p in own.named_parameters() if p.requires_grad}
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name in trained)
    if getattr(policy.language_model.layers[0], "gradient_checkpointing", False):
        checkpoint_layers(model)
    return Backbone(model=model, device=policy.device, pad_id=policy.pad_id, attn=policy.attn)
