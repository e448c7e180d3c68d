"""List the claims of the four papers, with rows, measures and conditions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from rrgtrain.errors import UserError


@dataclass(frozen=True)
class Row:
    """Hold one line of a claim's table: a job, or one `part` of it."""

    label: str
    job: str
    part: str = ""

    def measure(self, name: str) -> str:
        """The name under which the job's result keeps a measure of this row."""
        return f"{name}/{self.part}" if self.part else name


@dataclass(frozen=True)
class Check:
    """`first` minus `factor` times `second`, rows by label; `kind` as in `verdicts.judge`."""

    first: str
    kind: str
    second: str
    measure: str
    factor: float = 1.0

    @property
    def text(self) -> str:
        """As a sentence, without its outcome."""
        words = {
            "more": "above",
            "less": "below",
            "about": "within two points of",
            "kept": "at most two points below",
        }
        times = "" if self.factor == 1 else f"{self.factor:g} times "
        return f"{self.first} is {words[self.kind]} {times}{self.second}"


@dataclass(frozen=True)
class Claim:
    """`group` is the paper's letter, `measures` the columns of the table, `figure` the one drawn.

    `curve` draws `figure` step by step. `differs` says where this is not the paper's experiment.
    """

    name: str
    group: str
    paper: str
    says: str
    rows: tuple[Row, ...]
    checks: tuple[Check, ...]
    measures: tuple[str, ...]
    figure: str
    curve: bool = False
    differs: tuple[str, ...] = field(default=())

    @property
    def jobs(self) -> tuple[str, ...]:
        """The jobs whose results the table shows."""
        return tuple(dict.fromkeys(row.job for row in self.rows))

    def row(self, label: str) -> Row:
        """The row of a label."""
        return next(row for row in self.rows if row.label == label)


CLINICAL = ("micro_f1", "macro_f1", "reward")
RULES = "Labels and entities are those of the offline rules, not CheXbert, RadGraph or RaTEScore."
STARTED = (
    "The tiny policy starts from a short fine-tuning, where the paper starts from a base model."
)

MASKED = (
    Row("random", "masking", "random"),
    Row("TF-IDF", "masking", "tfidf"),
    Row("gradient", "masking", "gradient"),
)

CLAIMS: tuple[Claim, ...] = (
    Claim(
        "edits",
        "a",
        "EditGRPO, table 1",
        "Post-rollout edits beat Dr. GRPO, which beats GRPO.",
        (
            Row("SFT", "sft"),
            Row("GRPO", "grpo"),
            Row("Dr. GRPO", "dr_grpo"),
            Row("EditGRPO", "editgrpo"),
        ),
        (
            Check("EditGRPO", "more", "Dr. GRPO", "micro_f1"),
            Check("Dr. GRPO", "more", "GRPO", "micro_f1"),
        ),
        CLINICAL,
        "micro_f1",
        differs=(
            RULES,
            "All start from the best validation of one SFT and are judged at their own.",
        ),
    ),
    Claim(
        "sentences",
        "a",
        "EditGRPO, table 1 and figure 4",
        "Edits of sentences beat the whole reference as a member of the group.",
        (
            Row("SFT", "sft"),
            Row("paragraph", "editgrpo_para"),
            Row("sentences", "editgrpo"),
        ),
        (Check("sentences", "more", "paragraph", "micro_f1"),),
        CLINICAL,
        "micro_f1",
        differs=(RULES,),
    ),
    Claim(
        "matching",
        "a",
        "EditGRPO, table 4",
        "Edits by entities matched by cosine beat edits by entities of equal text.",
        (Row("SFT", "sft"), Row("equal text", "editgrpo_exact"), Row("cosine", "editgrpo")),
        (Check("cosine", "more", "equal text", "micro_f1"),),
        CLINICAL,
        "micro_f1",
        differs=(RULES, "Both ways match the entities of one extractor; the paper changes it too."),
    ),
    Claim(
        "mccs",
        "b",
        "MRG-R1, table II",
        "MCCS with the format reward beats CE-F1, the format reward alone, and text overlap.",
        (
            Row("start, plain", "base"),
            Row("start, blocks", "base_blocks"),
            Row("NLG", "mrg_r1_nlg"),
            Row("format", "mrg_r1_format"),
            Row("CE-F1", "mrg_r1_ce_f1"),
            Row("CE-F1 + format", "mrg_r1_ce_f1_format"),
            Row("MCCS", "mrg_r1_mccs"),
            Row("MCCS + format", "mrg_r1"),
        ),
        (
            Check("MCCS + format", "more", "CE-F1", "micro_f1"),
            Check("MCCS + format", "more", "format", "micro_f1"),
            Check("MCCS + format", "more", "NLG", "micro_f1"),
        ),
        ("micro_f1", "micro_precision", "micro_recall", "macro_f1"),
        "micro_f1",
        differs=(
            RULES,
            STARTED,
            "Those with blocks were shown blocks, with the findings by name in <think>: they start "
            "elsewhere, so look at CE-F1 + format and MCCS beside the pairs that are judged.",
        ),
    ),
    Claim(
        "masking",
        "c",
        "DEER, table 6",
        "Masking the tenth of the tokens that weigh most changes the labels more under gradient "
        "weights than under TF-IDF, and under TF-IDF more than at random.",
        MASKED,
        (
            Check("gradient", "less", "TF-IDF", "post_f1_own"),
            Check("TF-IDF", "less", "random", "post_f1_own"),
        ),
        ("post_f1_own", "modified_own"),
        "post_f1_own",
        differs=(
            "As in the paper the labeller whose gradient weighs the tokens judges; here it is a "
            "small one, distilled from the rules.",
        ),
    ),
    Claim(
        "masking_rules",
        "c",
        "DEER, table 6, another judge",
        "The same, judged by a labeller that the weights know nothing of.",
        MASKED,
        (
            Check("gradient", "less", "TF-IDF", "post_f1"),
            Check("TF-IDF", "less", "random", "post_f1"),
        ),
        ("post_f1", "modified"),
        "post_f1",
        differs=("The judge is the rules that also give the reward; the paper has no such judge.",),
    ),
    Claim(
        "ddsampling",
        "c",
        "DEER, table 7",
        "DDSampling halves the groups whose rewards are all the same.",
        (
            Row("all", "select", "all"),
            Row("random fifth", "select", "random"),
            Row("selected fifth", "select", "selected"),
        ),
        (Check("selected fifth", "less", "all", "zero_variance", 0.5),),
        ("zero_variance", "unique_rewards", "reward_std"),
        "zero_variance",
        differs=(RULES, "Rewards are those of the ten reports by which the draw was made."),
    ),
    Claim(
        "fifth",
        "c",
        "DEER, figure 1a and table 1",
        "RL on the selected fifth of the studies ends where RL on all of them ends.",
        (Row("SFT", "sft"), Row("all", "ditpo"), Row("selected fifth", "deer")),
        (Check("selected fifth", "about", "all", "sample_f1"),),
        ("sample_f1", "micro_f1", "macro_f1"),
        "sample_f1",
        differs=(
            RULES,
            "All are 1,600 studies, seen once; the fifth is seen five times, in as many steps.",
            "Each is judged as it ends.",
        ),
    ),
    Claim(
        "phases",
        "c",
        "DEER, table 5",
        "BLEU-2 added in the last fifth of the steps keeps F1 and lifts BLEU-4.",
        (
            Row("SFT", "sft"),
            Row("F1 alone", "ditpo_f1"),
            Row("mixed", "ditpo_mixed"),
            Row("in phases", "ditpo"),
        ),
        (
            Check("in phases", "kept", "F1 alone", "sample_f1"),
            Check("in phases", "more", "F1 alone", "bleu4"),
        ),
        ("sample_f1", "bleu4", "micro_f1", "words"),
        "bleu4",
        differs=(RULES, "On all studies; BLEU-4 is the mean over reports."),
    ),
    Claim(
        "oracle",
        "d",
        "OraPO, figure 2",
        "The oracle lowers the rate of zero rewards faster and lifts rare findings.",
        (Row("without", "orapo_grpo"), Row("with oracle", "orapo")),
        (
            Check("with oracle", "less", "without", "zero_rate"),
            Check("with oracle", "more", "without", "rare_f1"),
        ),
        ("zero_rate", "zero_groups", "rare_f1", "macro_f1"),
        "zero_rate",
        curve=True,
        differs=(
            RULES,
            STARTED,
            "The rate is its mean over all steps, resampled by step. Rare are the rarer third of "
            "the findings of the training cases.",
        ),
    ),
    Claim(
        "four_hundred",
        "d",
        "OraPO, table 4",
        "400 studies with the oracle beat 1,000 without.",
        (
            Row("start", "base"),
            Row("1,000 without", "orapo_grpo"),
            Row("400 with oracle", "orapo_400"),
            Row("1,000 with oracle", "orapo"),
        ),
        (Check("400 with oracle", "more", "1,000 without", "macro_f1"),),
        # no reward: that of the start is another one
        ("macro_f1", "micro_f1", "rare_f1"),
        "macro_f1",
        differs=(RULES, STARTED, "All take as many steps."),
    ),
)

MEASURES = {
    "micro_f1": "micro-F1",
    "macro_f1": "macro-F1",
    "sample_f1": "sample-wise F1",
    "micro_precision": "precision",
    "micro_recall": "recall",
    "rare_f1": "F1, rare",
    "bleu4": "BLEU-4",
    "reward": "reward",
    "words": "words",
    "zero_rate": "zero rewards",
    "zero_groups": "all-zero groups",
    "post_f1": "F1 after, rules",
    "modified": "reports changed, rules",
    "post_f1_own": "F1 after, distilled",
    "modified_own": "reports changed, distilled",
    "zero_variance": "zero variance",
    "unique_rewards": "unique rewards",
    "reward_std": "reward std",
}
"""What the measures are called in tables and figures."""


def chosen_claims(words: Sequence[str] | None) -> list[Claim]:
    """The claims of the given names or letters, in their order; all without any.

    UserError for a word that is neither.
    """
    if not words:
        return list(CLAIMS)
    names, letters = [c.name for c in CLAIMS], sorted({c.group for c in CLAIMS})
    unknown = next((w for w in words if w not in names and w not in letters), None)
    if unknown is not None:
        raise UserError(
            f"--claims {unknown} is unknown; choose letters of papers ({', '.join(letters)}) or "
            f"names ({', '.join(names)})"
        )
    return [claim for claim in CLAIMS if claim.name in words or claim.group in words]
