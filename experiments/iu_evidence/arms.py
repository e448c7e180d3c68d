"""List the jobs of a fold and the claims in their order."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from experiments.iu_evidence.data import DEVELOPMENT, FOLDS, Evidence
from experiments.jobs import job
from experiments.jobs.job import Job
from rrgtrain.errors import UserError

DATA, SFT, RL, SELECT, FIXED = "data", "sft", "rl", "select", "fixed"
FIRST = "data"
"""The job whose reports and prompts the tokenizer of a fold learns from."""
JUDGED_FOLDS = tuple(fold for fold in range(FOLDS) if fold != DEVELOPMENT)


@dataclass(frozen=True)
class Arm(Job):
    """Describe a job of a fold.

    `data` names the job whose studies it reads, `settings` go upon its recipe. One of kind "data"
    draws `evidence`; FIRST builds the policy too that "sft" without a start begins from. One of
    kind "fixed" writes one report for all studies.
    """

    data: str = "data"
    evidence: Evidence = field(default_factory=Evidence)

    @property
    def needs(self) -> tuple[str, ...]:
        """The jobs of the same fold that come before it."""
        before = () if self.kind == DATA else (self.data, self.start or FIRST)
        return tuple(dict.fromkeys(name for name in before if name))


# Four prompts a step, as the papers with small batches: more steps, a smaller rate.
FEW = ("rl.prompts=4", "rl.steps=120", "rl.lr=5.0e-5", "rl.eval_every=20")
# Reports beside evidence that does not err, then beside the noisy one: from noisy evidence alone
# the findings are too few among the words of a report to be learned.
READS = ("sft.steps=200",)
SEES = ("sft.steps=100", "sft.lr=5.0e-4", "sft.warmup=5", "sft.eval_every=10")
# As long as reinforcement learning takes: 125 steps of 32 reports.
CONTINUED = ("sft.steps=125", "sft.lr=5.0e-4", "sft.warmup=0", "sft.eval_every=25")
BLIND = ("sft.steps=300", "eval.best_by=reward")
TWICE = ("rl.epochs=2",)
# The follow-up: the checkpoint that the recipes themselves would keep.
BY_REWARD = ("eval.best_by=reward",)

_LISTED = (
    Arm("data", DATA),
    Arm("data_shuffled", DATA, evidence=Evidence(shuffled=True)),
    Arm("data_once", DATA, evidence=Evidence(draws=1)),
    Arm("data_65", DATA, evidence=Evidence(auc=0.65)),
    Arm("data_100", DATA, evidence=Evidence(auc=1.0)),
    Arm("reader", SFT, "sft", data="data_100", settings=READS),
    Arm("start", SFT, "sft", "reader", settings=SEES),
    Arm("sft_continued", SFT, "sft", "start", settings=CONTINUED),
    Arm("grpo", RL, "grpo", "start"),
    Arm("dr_grpo", RL, "dr_grpo", "start"),
    Arm("editgrpo", RL, "editgrpo", "start"),
    Arm("editgrpo_para", RL, "editgrpo_para", "start"),
    # Writes, but sees nothing: fine-tuned on reports beside the evidence of other studies.
    Arm("blind", SFT, "sft", data="data_shuffled", settings=BLIND),
    *(
        Arm(name, RL, recipe, "blind", data="data_once", settings=(*FEW, *own))
        for name, recipe, own in (
            ("facts_400", "orapo_grpo", ("data.balanced=400",)),
            ("facts_1000", "orapo_grpo", ("data.balanced=1000",)),
            ("oracle_01", "orapo", ("data.balanced=400", "oracle.tau=0.1")),
            ("oracle_1", "orapo", ("data.balanced=400", "oracle.tau=1.0")),
            ("oracle_2", "orapo", ("data.balanced=400", "oracle.tau=2.0")),
        )
    ),
    *(Arm(name, RL, name, "start") for name in ("deer_grpo", "deer", "deer_tfidf", "deer_f1")),
    *(Arm(name, RL, name, "start") for name in ("mrg_r1_mccs", "mrg_r1_ce_f1", "mrg_r1_nlg")),
    Arm("select", SELECT, "deer_f1", "start", data="data_once"),
    *(
        Arm(name, RL, recipe, "start", data="data_once", settings=(*FEW, "data.balanced=1000"))
        for name, recipe in (("facts", "orapo_grpo"), ("accuracy", "orapo_grpo_accuracy"))
    ),
    Arm("dr_grpo_severity", RL, "dr_grpo_severity", "start"),
    Arm("editgrpo_severity", RL, "editgrpo_severity", "start"),
    *(
        Arm(f"{name}_by_reward", RL, name, "start", settings=BY_REWARD)
        for name in ("editgrpo", "dr_grpo", "editgrpo_para", "grpo")
    ),
    # What edits do.
    Arm("edits_2", RL, "editgrpo", "start", settings=("edit.max_edits=2",)),
    Arm("edits_all", RL, "editgrpo", "start", settings=("edit.max_edits=null",)),
    Arm("ratio_of_rollout", RL, "editgrpo", "start", settings=TWICE),
    Arm("ratio_1", RL, "editgrpo", "start", settings=(*TWICE, "rl.surrogate=reinforce")),
    *(
        arm
        for auc in ("65", "100")
        for arm in (
            Arm(f"start_{auc}", SFT, "sft", "reader", data=f"data_{auc}", settings=SEES),
            Arm(f"dr_grpo_{auc}", RL, "dr_grpo", f"start_{auc}", data=f"data_{auc}"),
            Arm(f"editgrpo_{auc}", RL, "editgrpo", f"start_{auc}", data=f"data_{auc}"),
        )
    ),
    # The second run, beside evidence that can decide.
    Arm("data_95", DATA, evidence=Evidence(auc=0.95, normal_draws=6)),
    Arm("fixed_95", FIXED, "editgrpo", data="data_95"),
    *(
        Arm(f"{name}_95", kind, recipe, start, data="data_95", settings=(*BY_REWARD, *own))
        for name, kind, recipe, start, own in (
            ("start", SFT, "sft", "reader", ("sft.steps=200", *SEES[1:])),
            ("editgrpo", RL, "editgrpo", "start_95", ()),
            ("dr_grpo", RL, "dr_grpo", "start_95", ()),
            ("not_worse", RL, "editgrpo", "start_95", ("edit.keep=not_worse",)),
            ("para", RL, "editgrpo_para", "start_95", ()),
            ("continued", SFT, "sft", "start_95", CONTINUED),
        )
    ),
)
ARMS: dict[str, Arm] = {arm.name: arm for arm in _LISTED}


@dataclass(frozen=True)
class Comparison:
    """`first` minus `second` in `measure` on `population`, judged by `kind`.

    "more" and "less" want a difference of at least `least` in that direction; "kept" wants
    `first` to be less than `least` below `second`.
    """

    first: str
    kind: str
    second: str
    measure: str
    population: str
    least: float

    @property
    def text(self) -> str:
        """The check as a sentence."""
        verb = {"more": "is above", "less": "is below", "kept": "is not below"}[self.kind]
        return (
            f"{self.first} {verb} {self.second} by {100 * self.least:g} points, "
            f"{self.measure}, {self.population}"
        )


@dataclass(frozen=True)
class Hypothesis:
    """A hypothesis with its checks; `beside` are arms that are shown and not judged.

    A claim without checks is measured only. Where there is a `floor`, none is judged above which
    it does not hold.
    """

    name: str
    paper: str
    says: str
    checks: tuple[Comparison, ...] = ()
    beside: tuple[str, ...] = ()
    folds: tuple[int, ...] = JUDGED_FOLDS
    floor: Comparison | None = None

    @property
    def arms(self) -> tuple[str, ...]:
        """The arms that it compares or shows."""
        checks = (*((self.floor,) if self.floor else ()), *self.checks)
        judged = [arm_of(name) for c in checks for name in (c.second, c.first)]
        return tuple(dict.fromkeys([*judged, *self.beside]))

    def jobs(self) -> list[str]:
        """Its arms and all that they need, in the order of the table."""
        return with_needs(self.arms)


def arm_of(row: str) -> str:
    """Return the arm of a row: `select` of `select:rank`, which is a part of one."""
    return row.partition(":")[0]


F1, MACRO, AVERAGE = "f1_13", "macro_14", "avg"
_POINTS = {F1: 0.02, MACRO: 0.01, "sample_f1": 0.02, "recall_13": 0.02, "bleu4": 0.005}
_POINTS |= {"zero_groups": 0.02, "zero_variance": 0.01, AVERAGE: 0.01, "reward": 0.0}
"""Smallest effects of interest."""


def _check(first: str, kind: str, second: str, measure: str, population: str = "all") -> Comparison:
    return Comparison(first, kind, second, measure, population, _POINTS[measure])


def _above_the_floor(name: str, says: str, first: str, *others: str) -> Hypothesis:
    """A claim of the second run: `first` above each of `others`, by both of its judges."""
    checks = [_check(first, "more", other, by) for other in others for by in (F1, AVERAGE)]
    floor = _check("start_95", "more", "fixed_95", "reward")
    return Hypothesis(name, "EditGRPO, tables 1 and 4", says, tuple(checks), floor=floor)


_LISTED_CLAIMS: tuple[Hypothesis, ...] = (
    Hypothesis(
        "rl",
        "EditGRPO, table 1; DEER, table 1",
        "Reinforcement learning (the best arm beforehand: EditGRPO) is above SFT and above SFT "
        "continued for as long.",
        (
            _check("editgrpo", "more", "start", F1),
            _check("editgrpo", "more", "sft_continued", F1),
            _check("editgrpo", "more", "sft_continued", MACRO, "abnormal"),
        ),
    ),
    Hypothesis(
        "edits",
        "EditGRPO, tables 1 and 4",
        "Edits are above Dr. GRPO, and edits of sentences above the whole reference as a member.",
        (
            _check("editgrpo", "more", "dr_grpo", F1),
            _check("editgrpo", "more", "dr_grpo", MACRO, "abnormal"),
            _check("editgrpo", "more", "editgrpo_para", F1),
        ),
        ("grpo",),
    ),
    Hypothesis(
        "oracle",
        "OraPO, figure 2 and table 4",
        "From a start that sees nothing the oracle leaves fewer groups that earn nothing, and 400 "
        "studies with it are above 1,000 without.",
        (
            _check("oracle_1", "less", "facts_400", "zero_groups"),
            _check("oracle_1", "more", "facts_400", MACRO),
            _check("oracle_1", "more", "facts_1000", MACRO),
        ),
        ("oracle_01", "oracle_2"),
    ),
    Hypothesis(
        "ditpo",
        "DEER, tables 1, 4 and 5",
        "DiTPO is above GRPO, gradient weights above TF-IDF; BLEU-2 in the last phase raises "
        "BLEU-4 and keeps F1.",
        (
            _check("deer", "more", "deer_grpo", "sample_f1", "abnormal"),
            _check("deer", "more", "deer_tfidf", "sample_f1", "abnormal"),
            _check("deer", "more", "deer_f1", "bleu4"),
            _check("deer", "kept", "deer_f1", "sample_f1", "abnormal"),
        ),
    ),
    Hypothesis(
        "mccs",
        "MRG-R1, table II",
        "From one start MCCS is above text overlap, and above CE-F1.",
        (
            _check("mrg_r1_mccs", "more", "mrg_r1_nlg", F1),
            _check("mrg_r1_mccs", "more", "mrg_r1_ce_f1", F1),
        ),
    ),
    Hypothesis(
        "ddsampling",
        "DEER, table 7",
        "A fifth drawn by eq. 5 has fewer zero-variance groups than one drawn at random; `rank`, "
        "`top` and the bound of eq. 5 stand beside it.",
        (_check("select:log_rank", "less", "select:random", "zero_variance"),),
    ),
    Hypothesis(
        "facts",
        "OraPO, table 4",
        "FactS is above the share of labels predicted right, as reward.",
        (
            _check("facts", "more", "accuracy", "recall_13"),
            _check("facts", "more", "accuracy", MACRO),
        ),
    ),
    Hypothesis(
        "severity",
        "none: a reward of ours",
        "From one start the severity reward is above the papers' reward.",
        (
            _check("dr_grpo_severity", "more", "dr_grpo", F1, "abnormal"),
            _check("editgrpo_severity", "more", "editgrpo", F1, "abnormal"),
        ),
    ),
    Hypothesis(
        "mechanism",
        "EditGRPO, section 2",
        "What edits do: gradient by place, entropy, length, gains by rule. Not judged.",
        beside=(
            *("start", "dr_grpo", "editgrpo", "edits_2", "edits_all", "ratio_of_rollout"),
            *("ratio_1", "start_65", "dr_grpo_65", "editgrpo_65"),
            *("start_100", "dr_grpo_100", "editgrpo_100"),
        ),
        folds=JUDGED_FOLDS[:1],
    ),
)


def _by_reward(claim: Hypothesis) -> Hypothesis:
    """The same claim of the arms whose checkpoint is chosen by the reward."""

    def named(arm: str) -> str:
        return f"{arm}_by_reward" if f"{arm}_by_reward" in ARMS else arm

    checks = tuple(replace(c, first=named(c.first), second=named(c.second)) for c in claim.checks)
    beside = tuple(map(named, claim.beside))
    says = f"{claim.says} Checkpoints chosen by the reward (the follow-up)."
    return replace(claim, name=f"{claim.name}_by_reward", says=says, checks=checks, beside=beside)


CLAIMS: tuple[Hypothesis, ...] = (
    *_LISTED_CLAIMS[:2],
    *map(_by_reward, _LISTED_CLAIMS[:2]),
    *_LISTED_CLAIMS[2:],
    _above_the_floor(
        "rl_95",
        "Beside evidence of AUC .95 EditGRPO is above SFT and above SFT continued for as long.",
        *("editgrpo_95", "start_95", "continued_95"),
    ),
    _above_the_floor(
        "edits_95",
        "There edits are above Dr. GRPO, and above the whole reference as a member.",
        *("editgrpo_95", "dr_grpo_95", "para_95"),
    ),
    _above_the_floor(
        "not_worse_95",
        "There edits that lower no reward are above all edits.",
        *("not_worse_95", "editgrpo_95"),
    ),
)


def with_needs(names: Iterable[str]) -> list[str]:
    """List the jobs and their needs in the table's order; UserError for an unknown one."""
    return job.with_needs(names, ARMS)


def claims_of(names: Iterable[str] | None) -> list[Hypothesis]:
    """List the claims of these names, or all; UserError for an unknown one."""
    asked_for = list(names or [claim.name for claim in CLAIMS])
    for name in asked_for:
        if name not in {claim.name for claim in CLAIMS}:
            known_names = ", ".join(claim.name for claim in CLAIMS)
            raise UserError(f"claim {name} is unknown; claims are: {known_names}")
    return [claim for claim in CLAIMS if claim.name in asked_for]
