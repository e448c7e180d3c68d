"""Evaluate greedy reports: labels against the references', rewards, and axes beside them."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rrgclinical.common.progress import Bar, progress
from rrgclinical.labels import OBSERVATIONS
from rrgclinical.metrics import label_report, per_label_f1
from rrgclinical.metrics.registry import LABELS, of_source
from rrgclinical.severity import AxesMonitor, Severity, Validated
from rrgdata.study import Study
from rrgpolicy.model.policy import Policy
from rrgpolicy.model.prompt import EncodedPrompt
from rrgpolicy.ranks import ranks
from rrgpolicy.rollout import SamplingRequest
from rrgpolicy.rollout.policy_sampler import PolicySampler
from rrgtrain.errors import UserError
from rrgtrain.rewards import RewardService
from rrgtrain.rewards.batch import truth_of
from rrgtrain.schema import EvalSettings, GenerateSettings, RewardSettings
from rrgtrain.train.loader import PromptLoader
from rrgtrain.train.written import in_batches, write_batch, write_rows


@dataclass(frozen=True)
class Evaluation:
    """Hold a policy's reports of R studies, and their scores.

    `predicted` and `truth` are [R, 14] class ids; `rewards` maps terms to [R] arrays, `notes` to
    what a term kept of each report (FactS: facts and verdicts). `cut` tells which reports ended at
    `eval.max_new_tokens`; it is empty where that is not known.
    """

    studies: list[Study]
    reports: list[str]
    predicted: np.ndarray
    truth: np.ndarray
    rewards: dict[str, np.ndarray]
    notes: dict[str, list[Any]] = field(default_factory=dict)
    cut: list[bool] = field(default_factory=list)

    def state_dict(self) -> dict[str, Any]:
        """For a checkpoint; the studies stay with the data."""
        return {
            "ids": [study.id for study in self.studies],
            "reports": list(self.reports),
            "predicted": torch.as_tensor(self.predicted),
            "truth": torch.as_tensor(self.truth),
            "rewards": {name: torch.as_tensor(value) for name, value in self.rewards.items()},
            "notes": {name: list(notes) for name, notes in self.notes.items()},
            "cut": list(self.cut),
        }

    @classmethod
    def from_state(cls, studies: Sequence[Study], state: dict[str, Any]) -> Evaluation:
        """Restore the output of `state_dict`, for those of its studies that are in `studies`."""
        by_id = {study.id: study for study in studies}
        ids = state["ids"]
        rows = [row for row, name in enumerate(ids) if name in by_id]
        return cls(
            [by_id[ids[row]] for row in rows],
            [state["reports"][row] for row in rows],
            state["predicted"].numpy()[rows],
            state["truth"].numpy()[rows],
            {name: value.numpy()[rows] for name, value in state["rewards"].items()},
            {name: [notes[row] for row in rows] for name, notes in state["notes"].items()},
            [state["cut"][row] for row in rows] if state["cut"] else [],
        )

    def metrics(self) -> dict[str, float]:
        """Every metric by name, `f1/Pneumonia` and so on for each observation."""
        values = dict(label_report(self.predicted, self.truth))
        each = per_label_f1(self.predicted, self.truth)
        values |= {f"f1/{name}": float(f1) for name, f1 in zip(OBSERVATIONS, each, strict=True)}
        for name, scored in self.rewards.items():
            key = "reward" if name == "total" else f"reward/{name}"
            # what a judge could not score counts in no mean
            values[key] = float(scored[~np.isnan(scored)].mean())
        values["words"] = float(np.mean([len(r.split()) for r in self.reports]))
        if self.cut:
            values["unfinished"] = float(np.mean(self.cut))
        return values


def metric_names(terms: Iterable[str]) -> list[str]:
    """List the metrics by which `eval.best_by` can choose, given the reward's terms."""
    of_findings = (f"f1/{name}" for name in OBSERVATIONS)
    return [*of_source(LABELS), *of_findings, "reward", *(f"reward/{term}" for term in terms)]


def require_metric(by: str, names: Iterable[str]) -> None:
    """UserError, naming the nearest, where `by` is none of the metrics `names`."""
    known = list(names)
    if by not in known:
        nearest = difflib.get_close_matches(by, known, n=1, cutoff=0.0)[0]
        raise UserError(
            f"eval.best_by={by} is no metric of an evaluation; did you mean {nearest}? There are "
            f"{', '.join(known)}"
        )


def chosen_value(values: Mapping[str, float], by: str) -> float:
    """The metric that a checkpoint is chosen by; UserError where the validation has none such."""
    require_metric(by, values)
    return values[by]


def beside(directory: Path, metric: str) -> Path:
    """Name the directory of the best checkpoint by another metric than the first."""
    return directory.with_name(f"{directory.name}-{metric.replace('/', '-')}")


def write_reports(  # noqa: PLR0913
    policy: Policy,
    prompts: PromptLoader,
    studies: Sequence[Study],
    settings: EvalSettings,
    *,
    sampler: PolicySampler | None = None,
    description: str | None = None,
    draw: GenerateSettings | None = None,
    seeds: Callable[[Study], list[int]] = lambda _: [0],
) -> tuple[list[str], list[bool]]:
    """Write one greedy report per study, and whether each came to its end.

    They are in the order of the studies; of several ranks, each writes batches. `settings` gives
    the batch and the length; `description` names a bar of progress. `draw` samples instead, a
    report for each of a study's `seeds`.
    """
    batches = in_batches(studies, settings.batch)
    reports: list[tuple[str, bool]] = []
    bar: Bar[int] = progress(len(batches), description or "", quiet=description is None)
    with (sampler or PolicySampler()).weights(policy) as sample, bar:

        def write(
            batch: Sequence[Study], encoded: Sequence[EncodedPrompt]
        ) -> list[tuple[str, bool]]:
            own = [seeds(study) for study in batch]
            request = SamplingRequest(
                encoded,
                group=len(own[0]),
                max_new_tokens=settings.max_new_tokens,
                seeds=own,
                temperature=draw.temperature if draw else 1.0,
                top_p=draw.top_p if draw else 1.0,
                greedy=draw is None,
            )
            return write_batch(policy, batch, request, sample)

        def keep(written: list[tuple[str, bool]]) -> None:
            reports.extend(written)
            bar.advance(min(ranks.size(), len(batches) - bar.done))

        write_rows(batches, prompts.ahead(ranks.shard(batches)), write, keep)
    return [text for text, _ in reports], [finished for _, finished in reports]


def evaluate(
    reports: Sequence[str], studies: Sequence[Study], rewards: RewardService, settings: EvalSettings
) -> Evaluation:
    """Score the report of each study; each of several ranks its share of them."""
    own, written = ranks.shard(studies), ranks.shard(reports)
    read = truth_is_read(studies, rewards.settings, settings.truth)
    if ranks.size() == 1:
        return score(written, own, rewards, references=read)
    part = score(written, own, rewards, references=read) if own else None
    return _whole(list(studies), [p.state_dict() for p in ranks.gather(part) if p is not None])


def _whole(studies: list[Study], parts: list[dict[str, Any]]) -> Evaluation:
    """Of all studies, from the parts of the ranks that had any."""

    def merged(tensors: list[torch.Tensor]) -> torch.Tensor:
        return torch.stack(ranks.unshard([list(t) for t in tensors]))

    names, noted = parts[0]["rewards"], parts[0]["notes"]
    state = {
        "ids": [study.id for study in studies],
        "cut": [],
        "reports": ranks.unshard([part["reports"] for part in parts]),
        "predicted": merged([part["predicted"] for part in parts]),
        "truth": merged([part["truth"] for part in parts]),
        "rewards": {name: merged([part["rewards"][name] for part in parts]) for name in names},
        "notes": {name: ranks.unshard([part["notes"][name] for part in parts]) for name in noted},
    }
    return Evaluation.from_state(studies, state)


def truth_is_read(studies: Sequence[Study], settings: RewardSettings, truth: str = "auto") -> bool:
    """Tell if the truth is what the labeller reads in the references.

    Where `truth` (`eval.truth`) says so it is the labels that came with the data, and by "auto"
    with `reward.against=labels`, where a study has no reference, and where all labels are an
    expert's: that reading is the truth although there is a report (OraPO, table 5).
    UserError where a study lacks what `truth` names.
    """
    if truth == "auto":
        expert = all(study.expert and study.labels is not None for study in studies)
        reports = all(study.report is not None for study in studies)
        return settings.against == "report" and reports and not expert
    name = "report" if truth == "report" else "labels"
    lacking = next((study.id for study in studies if getattr(study, name) is None), None)
    if lacking is not None:
        raise UserError(f"study {lacking} has no {name}, which eval.truth={truth} wants; use auto")
    return truth == "report"


def score(
    reports: list[str],
    studies: list[Study],
    rewards: RewardService,
    *,
    references: bool | None = None,
) -> Evaluation:
    """Labels and rewards of given reports.

    The truth is what the labeller reads in the references, or the studies' own labels; see
    `truth_is_read`. `references` says which, where these studies are a part of the data.
    """
    if references is None:
        references = truth_is_read(studies, rewards.settings)
    values = rewards(reports, studies)
    predicted = rewards.labeller.label(rewards.scored_text(reports))
    truth = truth_of(studies, rewards.labeller, "report" if references else "labels")
    return Evaluation(studies, reports, predicted, truth, values, dict(values.notes))


class AxesWatch:
    """Add axes to the metrics of each evaluation, and an alarm.

    Rows get `axis/NAME`, and beside a rising reward `alarm/NAME`, by how much the axis changed;
    `alarm/reward` is the reward's gain. Studies without a reference have no axes.
    """

    def __init__(self, scored_text: Callable[[Sequence[str]], list[str]], reader: Severity) -> None:
        """scored_text: cuts the report from a completion. reader: has the table."""
        self._scored_text, self.axes = scored_text, AxesMonitor(reader)

    def __call__(self, evaluation: Evaluation) -> dict[str, float]:
        rows = evaluation.metrics()
        truth = [study.report for study in evaluation.studies if study.report is not None]
        if len(truth) < len(evaluation.studies):
            return rows
        ids, reports = [s.id for s in evaluation.studies], self._scored_text(evaluation.reports)
        return rows | self.axes(ids, reports, truth, evaluation.rewards["total"])

    def state_dict(self) -> dict[str, Any]:
        return {
            "past": [
                {
                    "studies": list(one.studies),
                    "reward": torch.as_tensor(one.reward),
                    "counts": {n: torch.as_tensor(np.stack(of)) for n, of in one.counts.items()},
                }
                for one in self.axes.past
            ]
        }

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Put it back in the order of ids, in which older checkpoints are not."""
        self.axes.past = []
        for one in saved["past"]:
            ids, order = one["studies"], np.argsort(one["studies"], kind="stable")
            counts = {name: tuple(of.numpy()[:, order]) for name, of in one["counts"].items()}
            studies = tuple(ids[i] for i in order)
            self.axes.past.append(Validated(studies, one["reward"].numpy()[order], counts))
