"""Say how much a step computes on one rank: prompts, patches, tokens.

Studies differ, and a plan is made before any is read: lengths that the recipe does not fix are
assumptions with a name here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from rrgdata.sources import every_source
from rrgtrain.plan.images import image_lengths
from rrgtrain.plan.sizes import Sizes
from rrgtrain.schema import DataSettings, EditSettings, PolicySettings, Recipe, RlSettings

# Assumed lengths, of MIMIC-CXR where nothing else is said; none was measured by this project.
PROMPT_TEXT = {"short": 40, "editgrpo": 150, "think": 200}
"""Tokens of a prompt beside its images; a file of one's own counts as `editgrpo`."""
REPORT_TOKENS = 150
"""Tokens of a report, where the recipe allows as many."""
IMAGES = 2
"""Images of a study with all views; an earlier one adds one more."""
RADIOGRAPH = (2544, 3056)
"""Width and height of a radiograph of MIMIC-CXR-JPG, in pixels."""


@dataclass(frozen=True)
class Lengths:
    """Assumed sizes of a study: images, patches and tokens of each, of text and report."""

    images: int
    patches: int
    tokens: int
    text: int
    report: int


@dataclass(frozen=True)
class Packed:
    """Describe groups in one forward: prompts of P tokens, G members of T each.

    patches, embedded: those of a prompt's images, and the tokens that stand for them.
    """

    groups: int
    prompt: int
    members: int
    report: int
    patches: int
    embedded: int

    @property
    def tokens(self) -> int:
        """Tokens through the decoder, each prompt once."""
        return self.groups * (self.prompt + self.members * self.report)

    def by(self, sharing: str) -> Packed:
        """Count as forwards take it: where no prompt is shared, each report has its own."""
        if sharing != "none":
            return self
        return replace(self, groups=self.groups * self.members, members=1)

    @property
    def scored(self) -> int:
        """Tokens through the head."""
        return self.groups * self.members * self.report

    @property
    def scores(self) -> int:
        """Attention scores a head computes, a causal block counted whole."""
        shared = self.members > 1
        own = self.report if shared else 0
        whole = self.prompt if shared else self.prompt + self.report
        return self.groups * (whole**2 + self.members * own * (self.prompt + own))

    @property
    def all_patches(self) -> int:
        """Patches of all its images."""
        return self.groups * self.patches

    @property
    def all_embedded(self) -> int:
        """Tokens of all its images."""
        return self.groups * self.embedded


@dataclass(frozen=True)
class Workload:
    """Describe the work of one rank in a step of a stage ("sft" or "rl")."""

    stage: str
    step: Packed
    """All groups of the rank, as if in one forward."""
    micro: Packed
    """The largest micro-batch, its reports of the largest length."""
    micros: int
    """Micro-batches of a step of usual reports."""
    sampled: int
    """Members of a group that the policy draws."""
    longest: int
    """Largest length of a report, for which a cache has room."""
    images: int
    """Images of a prompt."""
    validated: int
    """Prompts that a validation generates for at a time."""
    prompts: int
    """Groups of a step, of all ranks."""
    image_share: float = 1.0
    """Area of an image as it lies on disk, over a full-size radiograph's."""

    @property
    def one_micro(self) -> bool:
        """One micro-batch is the whole step: no gradients are there when its backward begins."""
        return self.micro.groups == self.step.groups


def lengths_of(data: DataSettings, policy: PolicySettings, longest: int, sizes: Sizes) -> Lengths:
    """Choose a study's lengths, by settings and assumptions; a report has at most `longest`."""
    images = 0 if data.images == "none" or sizes.vision is None else images_of(data)
    patches = tokens = 0
    if images and sizes.vision is not None:
        size = (data.phantom.size,) * 2 if data.source == "phantom" else RADIOGRAPH
        patches, tokens = image_lengths(policy, sizes.vision, size)
    text = PROMPT_TEXT.get(policy.prompt, PROMPT_TEXT["editgrpo"])
    return Lengths(images, patches, tokens, text, min(REPORT_TOKENS, longest))


def images_of(data: DataSettings) -> int:
    """Assume the images that the settings leave a study.

    A phantom's are known on average, which is what a run measures.
    """
    if data.each_image:
        return 1
    frontal, phantom = data.images == "frontal", data.phantom
    layout = every_source().get(data.source)
    own: float = 1 if frontal or data.source == "nih" else IMAGES
    earlier: float = 1
    if data.source == "phantom":
        own, earlier = 1 + phantom.lateral * (not frontal), phantom.prior
    elif data.prior != "last" or (layout is not None and not layout.has_priors):
        earlier = 0
    images = math.ceil(own + earlier)
    return images if data.max_images is None else min(images, data.max_images)


def workload_of(recipe: Recipe, stage: str, ranks: int, at: Lengths) -> Workload:
    """Return the work of the rank with most groups."""
    embedded = at.images * at.tokens
    rl = recipe.rl
    sampled, members = members_of(rl, recipe.edit) if stage == "rl" else (0, 1)
    batch = rl.prompts if stage == "rl" else recipe.sft.batch
    groups = -(-batch // ranks)
    budget = rl.token_budget if stage == "rl" else recipe.sft.token_budget
    step = Packed(groups, at.text + embedded, members, at.report, at.images * at.patches, embedded)
    if stage == "rl" and rl.minibatch is not None:
        groups = min(groups, -(-rl.minibatch // ranks))
    longest = rl.max_new_tokens if stage == "rl" else recipe.eval.max_new_tokens
    # memory must hold the longest reports, time is that of usual ones
    full = replace(step, report=max(longest, at.report))
    fitting = _fitting(full, groups, budget)
    return Workload(
        stage,
        step,
        replace(full, groups=fitting),
        -(-step.groups // _fitting(step, groups, budget)),
        sampled,
        longest,
        at.images,
        recipe.eval.batch,
        batch,
        recipe.data.phantom.size**2 / math.prod(RADIOGRAPH)
        if recipe.data.source == "phantom"
        else 1.0,
    )


def _fitting(packed: Packed, groups: int, budget: int | None) -> int:
    """Groups that a micro-batch of `budget` tokens takes; one that is larger stands alone."""
    size = packed.tokens // packed.groups
    return groups if budget is None else min(groups, max(1, budget // size))


def members_of(rl: RlSettings, edit: EditSettings) -> tuple[int, int]:
    """Return the reports of a group that are sampled, and all that the update computes."""
    algorithms = rl.algorithm.split("+")
    sampled = members = rl.group
    if "editgrpo" in algorithms:
        paragraph = edit.level == "paragraph"
        sampled = rl.group - 1 if paragraph else rl.group // 2
    if "orapo" in algorithms:
        members += 1
    return sampled, members
