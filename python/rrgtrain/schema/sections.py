"""Declares the settings of methods, rewards, evaluation, checkpoints, distribution and logs."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from rrgclinical.common.fields import SETTINGS


@dataclass(config=SETTINGS)
class EditSettings:
    """Edit sampled reports towards the reference after the rollout (EditGRPO)."""

    tau: float = Field(default=0.6, ge=-1.0, lt=0.97)
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
    bound: float | None = Field(default=None, ge=1.0)
    """Largest weight of a token; null, as the paper, none. `token_weight/max` is read before it."""
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


@dataclass(config=SETTINGS)
class CheckpointSettings:
    """Write what `--resume` goes on from, after `steps` or `seconds`, whichever is first."""

    steps: int = Field(default=50, ge=1)
    """Steps between checkpoints."""
    seconds: float = Field(default=900.0, ge=0.0)
    """Seconds between checkpoints."""
    keep: int = Field(default=2, ge=1)
    """Number of checkpoints that stay."""


@dataclass(config=SETTINGS)
class PlanSettings:
    """Compare a run with the machine before it starts."""

    refuse: bool = False
    """Refuse a run whose weights or checkpoints need more than there is; otherwise warn."""


@dataclass(config=SETTINGS)
class ScaleSettings:
    """Spread a run over the processes of torchrun, one a GPU."""

    mode: Literal["none", "fsdp2"] = "none"
    """Distribution: a process alone, or weights, gradients and optimiser in parts, one a
    process."""
    shard: int | None = Field(default=None, ge=1)
    """Processes that share one copy of the weights; further such groups hold copies (HSDP). null:
    the processes of a node where there are several nodes, since the network between nodes is slower
    than the links within, else all. More than a node's saves memory; it divides the number of
    processes."""
    timeout: float = Field(default=1800.0, ge=1.0)
    """Seconds until a process that does not answer counts as lost."""


@dataclass(config=SETTINGS)
class LogSettings:
    """Keep records and name trackers."""

    records: int = Field(default=1, ge=0)
    """Steps of reinforcement learning between records of all reports and their rewards; 0 keeps
    none."""
    thin_after: int | None = Field(default=1000, ge=1)
    """Steps after which records are ten times as far apart, after ten times as many a hundred
    times, and so on, so that a long run does not fill its disk; null never thins."""
    wandb: str | None = None
    """Project of Weights & Biases; null logs to metrics.jsonl and TensorBoard alone."""
    trackers: dict[str, str] = Field(default_factory=dict)
    """Projects at trackers, by name: wandb, mlflow, trackio, swanlab; an entry that a resume adds
    begins there and then."""

    def keeps(self, step: int) -> bool:
        apart, end = self.records, self.thin_after
        while end is not None and step >= end:
            apart, end = 10 * apart, 10 * end
        return apart > 0 and step % apart == 0


@dataclass(config=SETTINGS)
class JudgeSettings:
    """Say what becomes of a judge's answer that cannot be read."""

    unreadable: Literal["stop", "leave_out"] = "stop"
    """Treatment of a report whose judge (`green`, `crimson`, `facts` by an endpoint) answers twice
    in a form that cannot be read: stop, or leave it out of its group and of means, counted in the
    log as `endpoint/<judge>_unreadable`. It is never a score of 0."""
    most: float = Field(default=0.05, gt=0.0, le=1.0)
    """Largest share of the reports scored that may be left out, once there are 100; above it the
    run stops."""


@dataclass(config=SETTINGS)
class RewardSettings:
    """Score reports by a weighted sum of terms."""

    terms: dict[str, float] = Field(
        default_factory=lambda: {"entity_f1": 1.0, "label_f1": 1.0, "match": 1.0}
    )
    """Weight of each term by its name, or by `module:function` for one of your own, which takes a
    RewardBatch or the texts (report, reference) (`rewards/README.md`)."""
    labeller: str = "rules"
    """Labeller that reads the 14 labels: `rules`, `chexbert`, or `module:function`."""
    extractor: str = "rules"
    """Extractor that reads entities: `rules`, `radgraph`, `ratescore`, or `module:function`."""
    against: Literal["report", "labels"] = "report"
    """Truth: labels read in the reference report, or the labels that come with the data."""
    margin: float = Field(default=0.0, ge=-0.999, le=0.999)
    """Margin m of MCCS: similarity below it earns 0 (MRG-R1)."""
    neg_weight: float = Field(default=0.3612, ge=0.0)
    """Factor of an entity's best match where one is present and the other absent (RaTEScore 0.5.0:
    0.3612)."""
    both_blank: float = Field(default=0.0, ge=0.0, le=1.0)
    """MCCS of a report and a reference that both mention no label."""
    fact_beta: float = Field(default=2.0, ge=0.0)
    """Beta of FactS's F-score; above 1 recall weighs more (OraPO)."""
    radgraph_level: Literal["partial", "simple", "complete"] = "partial"
    """Level of RadGraph-F1."""
    radgraph_case: Literal["pypi", "master"] = "pypi"
    """Letter case in RadGraph-F1: as in the package on PyPI (0.1.18), or everything in lower case
    as in its repository."""
    rate_affinity: Literal["long", "short"] = "long"
    """RaTEScore's table of entity types: for long or for short reports."""
    blocks: Literal["none", "think_report"] = "none"
    """Part of a report that is scored: all, or what stands in <report> after <think> (MRG-R1)."""
    starts: dict[str, float] = Field(default_factory=dict)
    """Share of the steps, 0 to 1, before which a term weighs nothing (DEER's BLEU-2: 0.8)."""
    options: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """Options of each backend by its name, as in `reward.options.chexbert.weights=FILE`."""
    device: str = "auto"
    """Device of the models that read reports; `auto` is CUDA where there is a GPU."""
    cache: str | None = None
    """Directory where what models read in references is kept between runs; null is one in the
    directory of a training run."""
    cache_texts: int = Field(default=20_000, ge=1)
    """Number of texts whose reading is kept in memory."""
    judge: JudgeSettings = Field(default_factory=JudgeSettings)
    max_cost: float | None = Field(default=None, ge=0.0)
    """Largest cost of a run's endpoints, in the currency of `reward.options.NAME.input_price` and
    `output_price` (per million tokens); a run that reaches it stops with its checkpoint. null is
    no limit."""

    def counting(self, progress: float) -> tuple[str, ...]:
        """Name the terms that weigh something when this share of the steps is done."""
        return tuple(name for name in self.terms if progress >= self.starts.get(name, 0.0))


@dataclass(config=SETTINGS)
class EvalSettings:
    """Score greedy reports of held-out studies."""

    split: Literal["test", "val", "train"] = "test"
    """Split that the final evaluation reads."""
    limit: int | None = Field(default=None, ge=1)
    """Number of studies that are evaluated; null takes all of the split."""
    batch: int = Field(default=64, ge=1)
    """Studies that are generated for at a time."""
    max_new_tokens: int = Field(default=128, ge=1)
    """Largest length of a report in tokens."""
    best_by: str | list[str] = Field(default="micro_f1_13", min_length=1)
    """Metric of the validation that chooses a training's checkpoint: one of `label_report`
    (micro_f1, micro_f1_13, macro_f1, sample_f1, ...), `reward`, or `reward/TERM`. With No Finding
    among the labels a report that is normal whatever it is given has a micro-F1 of 0.62 on IU
    X-Ray; over the 13 findings it has 0. Of a list the first chooses; the best checkpoint by each
    other is written beside it."""
    bootstrap: int = Field(default=1000, ge=1)
    """Resamples of the 95 % bootstrap intervals."""
    samples: int = Field(default=6, ge=0)
    """Reports that are kept to be read in report.html."""
    tokenization: Literal["r2gen", "ptb", "ptb-java", "space"] = "r2gen"
    """Words that BLEU, ROUGE-L, CIDEr and METEOR compare: R2Gen's, stops kept, which published rows
    have; PTB's without punctuation; PTB's by pycocoevalcap's Java program; or `space`, what stands
    between white space, nothing cleaned, as RadEval's BLEU."""
    cleaning: Literal["mimic_cxr", "iu_xray"] | None = None
    """Data set by whose rules `eval.tokenization=r2gen` cleans reports; null IU X-Ray's for the
    `data.source` iu_xray and open_i, or a mix of them, else MIMIC-CXR's."""
    max_seq_length: int | None = Field(default=None, ge=2)
    """Words to which `r2gen` cuts a report (60 on IU X-Ray, 100 on MIMIC-CXR there); null none."""
    training_reports: str | None = None
    """File of training reports, as R2Gen's annotation (of its split `train`): with `r2gen`, words
    of a reference that are rarer there than in R2Gen's vocabulary (3 on IU X-Ray, 10 on MIMIC-CXR)
    become "<unk>", as in published rows; null keeps all words."""
    meteor: bool = True
    """Run METEOR 1.5 where Java is."""
    template: str | None = (
        "The heart size and mediastinal silhouette are within normal limits. The lungs are clear. "
        "There is no focal consolidation, pleural effusion, or pneumothorax. No acute bony "
        "abnormality."
    )
    """Normal report that is scored for every study beside the systems: on IU X-Ray its BLEU-4 is
    0.17, and its F1 over the 13 findings 0. `none` or null leaves the row out."""
    truth: Literal["auto", "report", "labels"] = "auto"
    """True labels: read in the references, or those that come with them; `auto` takes the second
    where a file of references has labels, a study has no report, all labels are an expert's, or
    `reward.against=labels`."""
    join: Literal["id", "row"] = "id"
    """Key by which files of predictions and references are joined; `row` is their order."""
    missing: Literal["stop", "empty"] = "stop"
    """Treatment of a reference without prediction: stop, or score an empty report."""
    extra: Literal["stop", "leave_out"] = "stop"
    """Treatment of a prediction without reference: stop, or leave it out and say so."""
    id_column: str = ""
    """Column of ids in files of reports; "" takes `id`, `study_id`, `image_id` or `uid`."""
    prediction_id_column: str = ""
    """Column of ids in the predictions, where it is another; "" takes `eval.id_column`."""
    reference_id_column: str = ""
    """Column of ids in the references, where it is another; "" takes `eval.id_column`."""
    prediction_column: str = ""
    """Column of predictions; "" takes `report`, `prediction`, `generated` and the like."""
    reference_column: str = ""
    """Column of references; "" takes `reference`, `ground_truth`, `report` and the like."""
    labels_column: str = ""
    """Column of lists of labels in the references; "" looks for CheXpert's 14 columns."""

    @property
    def chosen_by(self) -> list[str]:
        """List the metrics of `best_by`."""
        return [self.best_by] if isinstance(self.best_by, str) else self.best_by


@dataclass(config=SETTINGS)
class GenerateSettings:
    """Write reports of images without references (`rrgtrain generate`).

    Their length and the batch are `eval.max_new_tokens` and `eval.batch`.
    """

    temperature: float = Field(default=0.0, ge=0.0)
    """Sampling temperature; 0 writes the likeliest token."""
    top_p: float = Field(default=1.0, ge=1e-6, le=1.0)
    """Probability mass of nucleus sampling; 1 samples from all tokens."""
