"""Declares the settings of the papers' methods: edits, token weights, oracle, selection."""

from __future__ import annotations

from typing import Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from rrgclinical.common.fields import SETTINGS


@dataclass(config=SETTINGS)
class EditSettings:
    """Edit sampled reports towards the reference after the rollout (EditGRPO)."""

    tau: float = Field(default=0.6, ge=-1.0, le=1.0)
    """Cosine above which two entities are the same; below 0.97 (EditGRPO: 0.6)."""
    tau_replace: float | None = Field(default=None, ge=-1.0, le=1.0)
    """Mean best cosine from which rule (b) replaces a sentence, -1 to 1; null is `edit.tau`. It
    belongs to the extractor's space: 0.6 to RaTEScore's entities by BioLORD, near 0 to `rules`."""
    keep: Literal["all", "not_worse"] = "all"
    """Keep all edits as members of their group (the paper), or those alone whose reward is no lower
    than that of the report they change."""
    max_edits: int | None = Field(default=1, ge=1)
    """Edits of a report; null edits until no rule fits."""
    rule: Literal["paper", "released"] = "paper"
    """Rules of the paper's section 2, or the one edit of the authors' released code."""
    conflict_requires_spurious: bool = True
    """Let rule (a) replace only where an entity is in no reference sentence; false takes it by the
    letter, and edits even some correct reports (`rrgkern/edit_plan/README.md`)."""
    level: Literal["sentence", "paragraph"] = "sentence"
    """Edit sentences, or put the whole reference into each group and edit nothing (table 1,
    para)."""
    match: Literal["cosine", "exact"] = "cosine"
    """Match entities by cosine, or by equal text alone (table 4)."""
    extractor: str | None = None
    """Extractor of the entities; null is `reward.extractor`."""


@dataclass(config=SETTINGS)
class TokenWeightSettings:
    """Weigh each token's advantage (DiTPO, DEER)."""

    kind: Literal["saliency", "tfidf", "both"] = "saliency"
    """Weights by the labeller's gradient, by TF-IDF over the group, or by both."""
    alpha: float = Field(default=4.0, ge=0.0)
    """Scale of TF-IDF (eqs. 7 and 8)."""
    beta: float = Field(default=1.0, ge=0.0)
    """Scale of the saliency (eqs. 9 to 12)."""
    uncertain: bool = True
    """Count uncertain beside positive logits; false takes the gradient of the positive ones alone,
    as eq. 9 is printed."""
    labeller: str | None = None
    """Labeller of the saliency; `distilled` learns a small CheXbert from the training reports, null
    is `reward.labeller`."""
    distil_steps: int = Field(default=400, ge=1)
    """Steps in which the distilled labeller learns."""


@dataclass(config=SETTINGS)
class OracleSettings:
    """Prefer the reference report where sampled ones earn nothing (OraPO).

    Its weight is w = clip(low + (high - low) * zero_rate**sharpness, low, high).
    """

    loss: Literal["dpo", "sft"] = "dpo"
    """Loss of the reference report: preference (DPO), or its cross-entropy (table 4, row 5)."""
    low: float = Field(default=0.05, ge=0.0, le=1.0)
    """Smallest weight w of that loss (eq. 10)."""
    high: float = Field(default=0.15, ge=0.0, le=1.0)
    """Largest weight w of that loss (eq. 10)."""
    sharpness: float = Field(default=2.0, ge=0.0)
    """Exponent of the zero-reward rate in w (eq. 10)."""
    momentum: float = Field(default=0.5, ge=0.0, le=1.0)
    """Smoothing of the zero-reward rate from step to step (eq. 9)."""
    smooth: Literal["prompt", "batch"] = "prompt"
    """Unit of that smoothing: each prompt, or the whole batch; a prompt that is seen once is never
    smoothed."""
    tau: float = Field(default=1.0, ge=1e-6)
    """Temperature of DPO, which the paper does not print: with log-probabilities per token, the 0.1
    that is usual for sums leaves the oracle nearly without effect."""
    length_normalized: bool = True
    """Divide log-probabilities by the report's length in the preference (LN-DPO, appendix A)."""
    log_ratio: bool = True
    """Log the norm of the oracle's gradient over that of the rest of the loss, w and 1 - w
    included, both with respect to the log-probabilities of the tokens."""


@dataclass(config=SETTINGS)
class SelectSettings:
    """Draw a share of the training studies with `rrgtrain select`."""

    method: Literal["diversity", "random"] = "diversity"
    """DDSampling (DEER), which ranks studies by how much the labels of their sampled reports
    differ, or a draw at random."""
    weight: Literal["log_rank", "rank", "top"] = "log_rank"
    """Weight of a rank in the draw: 1 / ln(rank + 1) as eq. 5 has it, 1 / rank, or the top share.
    Eq. 5 is nearly flat: of 270,790 studies with 35.5 % zero-variance groups a fifth drawn by a
    perfect ranking has 33.2 %."""
    share: float = Field(default=0.2, ge=1e-6, le=1.0)
    """Share of the training studies that is drawn."""
    samples: int = Field(default=10, ge=2)
    """Sampled reports of each study."""
    top_p: float = Field(default=0.95, ge=1e-6, le=1.0)
    """Probability mass of nucleus sampling."""
    temperature: float = Field(default=1.0, ge=1e-3)
    """Sampling temperature."""
    batch: int = Field(default=32, ge=1)
    """Studies that are sampled at a time."""
