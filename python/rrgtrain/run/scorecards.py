"""Score reports of files, or of a checkpoint, beside a constant template."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rrgclinical.common.errors import cause_line
from rrgclinical.common.files import atomic_write
from rrgclinical.scorecard import (
    CardSettings,
    Columns,
    Pairs,
    Reports,
    Scorecard,
    SystemReading,
    as_csv,
    as_json,
    as_latex,
    as_text,
    joined_truth,
    pair_reports,
    read_predictions,
    read_references,
    report_rows,
    scorecard,
)
from rrgclinical.severity import CAVEAT, Severity, SeverityJudgement
from rrgclinical.text import (
    TextScores,
    Tokenization,
    build_tokenization,
    r2gen_vocabulary,
    text_scores,
)
from rrgreport.scorecard_page import scorecard_page
from rrgtrain.errors import Stopped, UserError
from rrgtrain.rewards import RewardService
from rrgtrain.rewards.blocks import report_of
from rrgtrain.rewards.model_files import missing_files
from rrgtrain.schema import EvalSettings, Recipe, RewardSettings
from rrgtrain.state.experiment import digest_of
from rrgtrain.state.unfinished import mark, require_free, unmark
from rrgtrain.train.evaluate import Evaluation, truth_is_read

TEMPLATE, NO_TEMPLATE = "constant template", "none"
FILES = ("metrics.json", "table.csv", "table.tex", "predictions.jsonl")
PAGE, RUN_PAGE = "report.html", "scorecard.html"
GIVEN_TRUTH = "The truth is the labels that come with the references."
_OFFICIAL = ("radgraph-official", "ratescore-official")


def evaluate_files(
    recipe: Recipe, predictions: Sequence[str], references: Path, out: Path | None
) -> Scorecard:
    """Score files of predictions against a file of references; print the tables.

    predictions: FILE, or NAME=FILE. The tables, the page and all reports go to the directory `out`.
    Raises UserError for a file, column or id that does not fit, a model file that is missing, and
    an `out` that holds an evaluation.
    """
    asked = [dataclasses.asdict(recipe), list(predictions), str(references)]
    command = digest_of(asked)
    if out is not None:
        require_free(out, (*FILES, PAGE), command)
    settings = recipe.eval
    kinds = [field.name for field in dataclasses.fields(Columns)]
    columns = Columns(**{kind: getattr(settings, f"{kind}_column") for kind in kinds})
    systems = _systems(predictions, columns)
    want = {"auto": recipe.reward.against == "labels" or None, "report": False, "labels": True}
    truth_file = read_references(
        references, columns, split=settings.split, want_labels=want[settings.truth]
    )
    pairs = pair_reports(
        systems, truth_file, by=settings.join, missing=settings.missing, extra=settings.extra
    )
    # a file holds reports, not completions
    reward = dataclasses.replace(recipe.reward, blocks="none")
    judge = Judge(settings, RewardService(reward))
    truth, note = judge.truth(pairs)
    card, readings = judge.card(pairs, truth, [note])
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        mark(out, command)
        write_card(out / PAGE, card, pairs, truth, readings)
        unmark(out)
    print(as_text(card), end="")
    return card


def score_run(judge: Judge, evaluations: Mapping[str, Evaluation], out: Path) -> Scorecard:
    """Write the scorecard of what checkpoints wrote: tables, page and all reports, to `out`."""
    first = next(iter(evaluations.values()))
    truth, pairs = first.truth, run_pairs(judge.rewards.settings.blocks, evaluations)
    read = truth_is_read(first.studies, judge.rewards.settings, judge.settings.truth)
    card, readings = judge.card(pairs, truth, [judge.read_truth if read else GIVEN_TRUTH])
    kept = {
        name: dataclasses.replace(readings[name], scores={**one.rewards, **readings[name].scores})
        for name, one in evaluations.items()
    }
    completions = {name: one.reports for name, one in evaluations.items()}
    write_card(out / RUN_PAGE, card, pairs, truth, kept, completions)
    return card


def run_pairs(blocks: str, evaluations: Mapping[str, Evaluation]) -> Pairs:
    """Put what policies wrote beside the studies' reports: the scored part of each completion."""
    studies = next(iter(evaluations.values())).studies
    return Pairs(
        [study.id for study in studies],
        [[] if study.report is None else [study.report] for study in studies],
        {
            name: [report_of(text, blocks) for text in one.reports]
            for name, one in evaluations.items()
        },
    )


class Judge:
    """Read reports with the models of a reward, and score them with `eval`'s settings."""

    def __init__(self, settings: EvalSettings, rewards: RewardService) -> None:
        """Raise UserError where a model that is named lacks its file, or words cannot be made."""
        self.settings, self.rewards = settings, rewards
        self.tokenization: Tokenization = build_tokenization(
            settings.tokenization,
            dataset=settings.cleaning,
            max_seq_length=settings.max_seq_length,
            vocabulary=_vocabulary(settings),
        )
        self.terms, self.absent = clinical_terms(rewards.settings)
        models = {"radgraph_simple": "radgraph", "ratescore": "ratescore"}
        named = [models[term] for term in self.terms if term in models]
        whole = "bertscore" in rewards.settings.options
        named += ["radgraph", "chexbert", "bertscore"] if whole else []
        if lacking := missing_files(rewards.settings, named):
            raise UserError(f"model files are missing: {'; '.join(lacking)}; give their paths")
        self.radcliq = rewards.model("radcliq") if whole else None

    @property
    def read_truth(self) -> str:
        """Say that the true labels are read in the references."""
        name = self.rewards.settings.labeller
        return f"The truth is what the labeller {name} reads in the references."

    def truth(self, pairs: Pairs) -> tuple[np.ndarray, str]:
        """Choose the true labels of pairs, int8 `[R, 14]`; say where they are from.

        UserError where there are none with the references, and a study has no reference report.
        """
        if pairs.labels is not None:
            return pairs.labels, GIVEN_TRUTH
        lacking = [i for i, texts in zip(pairs.ids, pairs.references, strict=True) if not texts]
        if lacking:
            raise UserError(
                f"{len(lacking)} references have neither report nor labels (the first is "
                f"{lacking[0]!r}); add one"
            )
        texts, owner = _flat(pairs.references)
        labels = self.rewards.labeller.label(texts, keep=True)
        line = self.read_truth
        if len(texts) > len(pairs.ids):
            line += (
                " Of several references of a study, half decide. Clinical scores and METEOR take "
                "the best one, RadCliQ the lowest value, ROUGE-L the best precision and recall, "
                "BLEU the closest length, CIDEr the mean."
            )
        return joined_truth(labels, owner), line

    def card(
        self, pairs: Pairs, truth: np.ndarray, notes: Iterable[str]
    ) -> tuple[Scorecard, dict[str, SystemReading]]:
        """Score the systems of pairs and the constant template; give what was read of each."""
        systems, said = dict(pairs.systems), list(notes)
        template = self.settings.template or ""
        if template.strip().lower() not in ("", NO_TEMPLATE):
            if TEMPLATE in systems:
                raise UserError(
                    f"a system is called {TEMPLATE!r}, as the baseline is; name it NAME=FILE, or "
                    f"set eval.template={NO_TEMPLATE}"
                )
            systems[TEMPLATE] = [template] * len(pairs.ids)
            said.append(f"{TEMPLATE}: {template!r} for every study.")
        absent = dict(self.absent)
        whole = all(pairs.references)
        if not whole:
            reason = "not every study has a reference report"
            words = ["bleu_4", "rouge_l", "cider", "meteor"]
            absent = dict.fromkeys([*self.terms, "radcliq", *words], reason) | absent
        readings = {
            name: self._reading(reports, pairs.references if whole else None, absent)
            for name, reports in systems.items()
        }
        # a metric is of all systems or of none
        readings = {name: _without(one, absent) for name, one in readings.items()}
        named = self.rewards.settings
        settings = CardSettings(
            resamples=self.settings.bootstrap,
            labeller=named.labeller,
            extractor=named.extractor,
            tokenization=self.tokenization.name,
        )
        if named.labeller == "rules":
            said.append("Labels and entities are by rules; they are not CheXbert's or RadGraph's.")
        if whole:
            said.append(f"{CAVEAT[0].upper()}{CAVEAT[1:]}")
        said += self.rewards.spending.notes()
        return scorecard(pairs, truth, readings, settings, absent=absent, notes=said), readings

    def _reading(
        self,
        reports: Sequence[str],
        references: Sequence[Sequence[str]] | None,
        absent: dict[str, str],
    ) -> SystemReading:
        labels = self.rewards.labeller.label(reports)
        if references is None:
            return SystemReading(labels)
        texts, owner = _flat(references)
        scores = {}
        terms = [term for term in self.terms if term not in absent]
        for name, values in self.rewards.measure(terms, [reports[i] for i in owner], texts):
            if isinstance(values, UserError):
                absent[name] = str(values)
                continue
            best = np.full(len(reports), -np.inf)
            np.maximum.at(best, owner, values)
            scores[name] = best
        reasons = self._reasons(reports, texts, owner) if "severity" in scores else ()
        if self.radcliq is not None and "radcliq" not in absent:
            try:
                values = self.radcliq.score([reports[i] for i in owner], texts)
                # errors are estimated: the reference with the fewest counts
                least = np.full(len(reports), np.inf)
                np.minimum.at(least, owner, values)
                scores["radcliq"] = least
            except Stopped:
                raise
            except Exception as error:
                absent["radcliq"] = f"RadCliQ-v1 failed: {cause_line(error)}"
        words = text_scores(
            reports, references, tokenization=self.tokenization, meteor=self.settings.meteor
        )
        absent |= words.missing
        return SystemReading(labels, scores, words, reasons)

    def _reasons(
        self, reports: Sequence[str], texts: Sequence[str], owner: np.ndarray
    ) -> list[Mapping[str, Any]]:
        """What severity's value of each report was made of, against its best reference."""
        reader: Severity = self.rewards.model("severity")
        best: dict[int, SeverityJudgement] = {}
        judged = reader.judge([reports[i] for i in owner], texts)
        for i, one in zip(owner.tolist(), judged, strict=True):
            if i not in best or one.score > best[i].score:
                best[i] = one
        return [best[i].explain(reader.table) for i in range(len(reports))]


def _without(reading: SystemReading, absent: Mapping[str, str]) -> SystemReading:
    scores = {name: column for name, column in reading.scores.items() if name not in absent}
    text = reading.text
    if isinstance(text, TextScores) and "meteor" in absent:
        text = dataclasses.replace(text, meteor=None)
    return dataclasses.replace(reading, scores=scores, text=text)


def _vocabulary(settings: EvalSettings) -> frozenset[str] | None:
    """Collect R2Gen's words of the training reports that a recipe names."""
    if settings.training_reports is None:
        return None
    if settings.tokenization != "r2gen":
        raise UserError(
            "eval.training_reports gives the words of R2Gen's vocabulary; use "
            f"eval.tokenization=r2gen with it, not {settings.tokenization}"
        )
    ids = settings.reference_id_column or settings.id_column
    columns = Columns(ids, reference=settings.reference_column)
    path = Path(settings.training_reports).expanduser()
    reports = read_references(path, columns, split="train", split_column=True, want_labels=False)
    return r2gen_vocabulary((t for texts in reports.texts for t in texts), settings.cleaning)


def clinical_terms(settings: RewardSettings) -> tuple[list[str], dict[str, str]]:
    """Choose the terms that a recipe's models can measure; note what others lack.

    RadGraph, RaTEScore and GREEN are measured where `reward.options`, the extractor or a term
    names them.
    """
    named = {*settings.options, *settings.terms, settings.extractor}
    terms: list[str] = []
    absent: dict[str, str] = {}
    if settings.extractor not in ("radgraph", "ratescore"):
        terms += ["entity_f1", "match"]
    terms.append("severity")
    levels = [f"radgraph_{level}" for level in ("simple", "partial", "complete")]
    if named & {"radgraph", *levels}:
        terms += levels
    else:
        reason = "no weights; set reward.options.radgraph.weights"
        absent |= dict.fromkeys(levels, reason)
    if "ratescore" in named:
        terms.append("ratescore")
    else:
        absent["ratescore"] = "no weights; set reward.options.ratescore.ner and .embedder"
    terms += [name for name in _OFFICIAL if name in named]
    if settings.options.get("green", {}).get("endpoint"):
        terms.append("green")
    else:
        absent["green"] = "no model; set reward.options.green.endpoint and .model"
    if "bertscore" not in named:
        reason = "no weights; set reward.options.bertscore.weights beside radgraph's and chexbert's"
        absent["radcliq"] = reason
    return terms, absent


def write_card(
    page: Path,
    card: Scorecard,
    pairs: Pairs,
    truth: np.ndarray,
    readings: Mapping[str, SystemReading],
    completions: Mapping[str, Sequence[str]] | None = None,
) -> None:
    """Write the files of a scorecard: `FILES` beside the page."""
    rows = report_rows(pairs, truth, readings, completions)
    texts = (as_json(card), as_csv(card), as_latex(card), "".join(rows))
    files = {page.with_name(name): text for name, text in zip(FILES, texts, strict=True)}
    files[page] = scorecard_page(card, pairs, readings)
    # all are made before the first is written: half an evaluation would stand in the way
    for path, content in {path: text.encode() for path, text in files.items()}.items():
        atomic_write(path, content)


def _systems(words: Sequence[str], columns: Columns) -> dict[str, Reports]:
    systems: dict[str, Reports] = {}
    for word in words:
        name, equals, path = ("", "", word) if Path(word).exists() else word.partition("=")
        if not equals:
            name, path = "", word
        found = read_predictions(path, columns)
        if name in found:
            found = {name: found[name]}
        elif name:
            alone = len(found) == 1
            found = {name if alone else f"{name}: {one}": of for one, of in found.items()}
        for one, reports in found.items():
            if one in systems:
                raise UserError(f"two systems are called {one!r}; name one NAME={path}")
            systems[one] = reports
    return systems


def _flat(references: Sequence[Sequence[str]]) -> tuple[list[str], np.ndarray]:
    """All references in a row, and the study of each, int64."""
    owner = np.repeat(np.arange(len(references)), [len(texts) for texts in references])
    return [text for texts in references for text in texts], owner
