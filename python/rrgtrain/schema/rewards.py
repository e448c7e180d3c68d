"""Declares the settings of the reward and of the evaluation."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from rrgclinical.common.fields import SETTINGS


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
    best_by: str = "micro_f1_13"
    """Metric of the validation that chooses a training's checkpoint: one of `label_report`
    (micro_f1, micro_f1_13, macro_f1, sample_f1, ...), `reward`, or `reward/TERM`. With No Finding
    among the labels a report that is normal whatever it is given has a micro-F1 of 0.62 on IU
    X-Ray; over the 13 findings it has 0."""
    bootstrap: int = Field(default=1000, ge=1)
    """Resamples of the 95 % bootstrap intervals."""
    samples: int = Field(default=6, ge=0)
    """Reports that are kept to be read in report.html."""
    tokenization: Literal["r2gen", "ptb", "ptb-java", "space"] = "r2gen"
    """Words that BLEU, ROUGE-L, CIDEr and METEOR compare: R2Gen's, stops kept, which published rows
    have; PTB's without punctuation; PTB's by pycocoevalcap's Java program; or `space`, what stands
    between white space, nothing cleaned, as RadEval's BLEU."""
    cleaning: Literal["mimic_cxr", "iu_xray"] = "mimic_cxr"
    """Data set by whose rules `eval.tokenization=r2gen` cleans reports."""
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


@dataclass(config=SETTINGS)
class GenerateSettings:
    """Write reports of images without references (`rrgtrain generate`).

    Their length and the batch are `eval.max_new_tokens` and `eval.batch`.
    """

    temperature: float = Field(default=0.0, ge=0.0)
    """Sampling temperature; 0 writes the likeliest token."""
    top_p: float = Field(default=1.0, ge=1e-6, le=1.0)
    """Probability mass of nucleus sampling; 1 samples from all tokens."""
