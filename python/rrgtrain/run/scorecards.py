"""Score reports of files, or of a checkpoint, beside a constant template."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path

from rrgclinical.common.unfinished import mark, require_free, unmark
from rrgclinical.metrics.registry import METRICS, measurable
from rrgclinical.scorecard import (
    FILES,
    CardSettings,
    Columns,
    Pairs,
    Scorecard,
    as_text,
    pair_reports,
    read_references,
    read_systems,
    write_card,
)
from rrgclinical.scorecard.implementations import compare_implementations
from rrgclinical.scorecard.judge import GIVEN_TRUTH, Judge
from rrgclinical.text import build_tokenization, r2gen_vocabulary
from rrgdata.mix import groups_of
from rrgreport.html import draw
from rrgreport.run_files import RunFiles
from rrgreport.summary import RunSummary, System
from rrgtrain.errors import UserError
from rrgtrain.rewards import RewardService
from rrgtrain.rewards.batch import report_of
from rrgtrain.rewards.term_models import missing_files
from rrgtrain.schema import DataSettings, EvalSettings, Recipe
from rrgtrain.state.identity import digest_of
from rrgtrain.train.evaluate import Evaluation, truth_is_read

MADE = (*FILES, "summary.json", "report.html")
"""All that an evaluation of files leaves."""


def evaluate_files(
    recipe: Recipe,
    predictions: Sequence[str],
    references: Path,
    out: Path | None,
    *,
    compare: bool = False,
) -> Scorecard:
    """Score files of predictions against a file of references; print the tables.

    predictions: FILE, or NAME=FILE. compare: print `compare_implementations` too. The tables, the
    page and all reports go to the directory `out`. Raises UserError for a file, column or id that
    does not fit, a model file that is missing, and an `out` that holds an evaluation.
    """
    asked = [dataclasses.asdict(recipe), list(predictions), str(references)]
    command = digest_of(asked)
    if out is not None:
        require_free(out, MADE, command)
    settings = recipe.eval
    kinds = [field.name for field in dataclasses.fields(Columns)]
    columns = Columns(**{kind: getattr(settings, f"{kind}_column") for kind in kinds})
    systems = read_systems(predictions, columns)
    want = {"auto": recipe.reward.against == "labels" or None, "report": False, "labels": True}
    truth_file = read_references(
        references, columns, split=settings.split, want_labels=want[settings.truth]
    )
    pairs = pair_reports(
        systems, truth_file, by=settings.join, missing=settings.missing, extra=settings.extra
    )
    # a file holds reports, not completions
    reward = dataclasses.replace(recipe.reward, blocks="none")
    judge = judge_of(settings, RewardService(reward), recipe.data)
    truth, note = judge.truth(pairs)
    card, readings = judge.card(pairs, truth, [note])
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        mark(out, command)
        write_card(out, card, pairs, truth, readings)
        run = RunFiles(out)
        summary = RunSummary(
            f"Scorecard of {', '.join(pairs.systems)}",
            {name: System.of_card(card, name) for name in pairs.systems},
        )
        summary.save(run.summary)
        draw(run, summary)
        unmark(out)
    print(as_text(card, out and out / FILES[1]), end="")
    if compare:
        more = {"cleaning": _cleaning(settings, recipe.data), "meteor": settings.meteor}
        print("\n" + compare_implementations(pairs, truth, readings, **more), end="")
    return card


def score_run(
    settings: EvalSettings,
    rewards: RewardService,
    data: DataSettings,
    evaluations: Mapping[str, Evaluation],
    out: Path,
) -> Scorecard:
    """Write the scorecard of what policies wrote: tables and all reports, to `out`."""
    judge, first = judge_of(settings, rewards, data), next(iter(evaluations.values()))
    truth, ids = first.truth, [study.id for study in first.studies]
    pairs = Pairs(
        ids,
        [[] if study.report is None else [study.report] for study in first.studies],
        {
            name: [report_of(text, rewards.settings.blocks) for text in one.reports]
            for name, one in evaluations.items()
        },
        patients=[study.patient for study in first.studies],
        groups=groups_of(data.mix, ids),
    )
    read = truth_is_read(first.studies, rewards.settings, settings.truth)
    own = {name: one.truth for name, one in evaluations.items()}
    card, readings = judge.card(pairs, truth, [judge.read_truth if read else GIVEN_TRUTH], own)
    kept = {
        name: dataclasses.replace(readings[name], scores={**one.rewards, **readings[name].scores})
        for name, one in evaluations.items()
    }
    completions = {name: one.reports for name, one in evaluations.items()}
    write_card(out, card, pairs, truth, kept, completions)
    return card


def judge_of(settings: EvalSettings, rewards: RewardService, data: DataSettings) -> Judge:
    """Build the judge that reads reports with the models of a reward, by `eval`'s settings.

    data: has the data sets' names, which choose the cleaning where none is set.

    UserError where a model that is named lacks its file, or words cannot be made.
    """
    cleaning = _cleaning(settings, data)
    tokenization = build_tokenization(
        settings.tokenization,
        dataset=cleaning,
        max_seq_length=settings.max_seq_length,
        vocabulary=_vocabulary(settings, cleaning),
    )
    named = rewards.settings
    able = {*named.options, *named.terms, named.extractor}
    for name, options in named.options.items():
        able |= {f"{name}.{option}" for option, value in options.items() if value}
    terms, absent = measurable(able, named.extractor)
    models = [model for term in terms for model in METRICS[term].models]
    if lacking := missing_files(named, models):
        raise UserError(f"model files are missing: {'; '.join(lacking)}; give their paths")
    card = CardSettings(
        resamples=settings.bootstrap,
        labeller=named.labeller,
        extractor=named.extractor,
        tokenization=tokenization.name,
    )
    return Judge(
        rewards,
        card,
        tokenization,
        terms,
        absent,
        template=settings.template or "",
        meteor=settings.meteor,
        costs=rewards.spending.notes,
    )


def _cleaning(settings: EvalSettings, data: DataSettings) -> str:
    sources = {part.source for part in data.mix.values()} or {data.source}
    return settings.cleaning or ("iu_xray" if sources <= {"iu_xray", "open_i"} else "mimic_cxr")


def _vocabulary(settings: EvalSettings, cleaning: str) -> frozenset[str] | None:
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
    return r2gen_vocabulary((t for texts in reports.texts for t in texts), cleaning)
