"""Compare several runs on one page: tables, curves, settings, and reports of the same studies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from rrgclinical.common.errors import UserError
from rrgclinical.common.shown import redacted
from rrgreport import numbers
from rrgreport.cases import Case, case_list, kept_cases
from rrgreport.figures import PART_COLOURS, Rows, compared_figures
from rrgreport.html import draw
from rrgreport.names import changes_labels, changes_reward
from rrgreport.page import rendered, require_page, write_out
from rrgreport.results import facts, finding_bars, headline_scores, table_rows
from rrgreport.run_files import RunFiles, read_metrics
from rrgreport.samples import Sample, read_samples
from rrgreport.series import with_changes
from rrgreport.summary import RunSummary, System
from rrgreport.table import print_summary

# Settings that say what a run is tested on, and how its text is compared.
DATA = ("data.",)
JUDGED = ("eval.tokenization", "eval.cleaning", "eval.max_seq_length", "eval.training_reports")


@dataclass(frozen=True)
class ComparedRun:
    """A finished run under the name that it has on the page."""

    name: str
    path: Path
    summary: RunSummary
    rows: Rows
    cases: list[Case]
    labeller: str
    settings: dict[str, str] | None
    """Keys of its config.yaml with their values; None without one."""

    def system(self, name: str) -> str:
        return f"{self.name}: {name}"


def draw_page(paths: Sequence[Path], out: Path | None = None) -> None:
    """Write the page of a finished run, or one of several, and print its table."""
    if len(paths) > 1:
        out = out or Path("compare.html")
        summary = write_comparison(paths, out)
    else:
        run = RunFiles.open(paths[0])
        if out is not None:
            require_page(out)
        out = out or run.report
        summary = RunSummary.load(run.summary)
        draw(run, summary, out)
    print_summary(summary)
    print(f"\nreport: {out}")


def write_comparison(paths: Sequence[Path], out: Path) -> RunSummary:
    """Write one page of several finished runs; return the systems of all.

    Raises:
        UserError: a directory that is no finished run, or is given twice, or an `out` that is
            there and no page of ours.
    """
    runs = [_read(name, path) for name, path in _names(paths).items()]
    require_page(out)
    systems = {run.system(n): s for run in runs for n, s in run.summary.systems.items()}
    merged = RunSummary(" against ".join(run.name for run in runs), systems, _notes(runs))
    results = {run.name: next(reversed(run.summary.systems.values()), System()) for run in runs}
    cases, shared = _joined(runs)
    labellers = " or ".join(dict.fromkeys(run.labeller for run in runs))
    listed = case_list(cases, list(systems), labeller=labellers)
    listed.notes.insert(0, f"{shared} of {len(cases)} studies were kept by every run.")
    if disputed := sum(case.disputed for case in cases):
        listed.notes.insert(
            1,
            f"The runs hold other true labels for {disputed} studies: errors are counted against "
            "those of the system's own run.",
        )
    page = rendered(
        "compare.html.j2",
        summary=merged,
        headline=_headline(results),
        table=table_rows(merged, _differing(runs)),
        findings=finding_bars(RunSummary("", results)),
        colours=PART_COLOURS,
        figures=compared_figures({run.name: run.rows for run in runs}),
        cases=listed,
        runs=[(run.name, str(run.path), run.summary.title, facts(run.summary)) for run in runs],
        settings=_differences(runs),
    )
    write_out(out, page)
    return merged


def _names(paths: Sequence[Path]) -> dict[str, Path]:
    """Name each run by the end of its path, as long as it takes to tell them apart."""
    whole = [path.expanduser().resolve() for path in paths]
    twice = next((p for i, p in enumerate(whole) if p in whole[:i]), None)
    if twice is not None:
        raise UserError(f"{twice} is given twice; name each run once")
    length = 1
    while len({path.parts[-length:] for path in whole}) < len(whole):
        length += 1
    return {"/".join(w.parts[-length:]): path for w, path in zip(whole, paths, strict=True)}


def _read(name: str, path: Path) -> ComparedRun:
    run = RunFiles.open(path)
    summary = RunSummary.load(run.summary)
    samples = [s for s in read_samples(run.samples) if isinstance(s, Sample)]
    logged = read_metrics(run.metrics) if run.metrics.exists() else []
    rows = with_changes(logged, summary.changes)
    settings = _settings(run.config) if run.config.exists() else None
    cases = kept_cases(run, samples, summary.systems)
    return ComparedRun(name, path, summary, rows, *cases, settings)


def _settings(path: Path) -> dict[str, str]:
    try:
        settings = OmegaConf.to_container(OmegaConf.load(path))
    except (OSError, ValueError, YAMLError, OmegaConfBaseException) as error:
        raise UserError(
            f"{path} cannot be read ({error}); put it back as the run wrote it"
        ) from error
    return dict(_leaves(settings)) if isinstance(settings, Mapping) else {}


def _leaves(settings: Mapping[Any, Any], above: str = "") -> Iterator[tuple[str, str]]:
    for key, value in settings.items():
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, f"{above}{key}.")
        else:
            yield f"{above}{key}", "null" if value is None else redacted(str(value))


def _differences(runs: Sequence[ComparedRun]) -> list[tuple[str, list[str]]]:
    """List each setting that differs between runs that have any, with its values."""
    every = [run.settings for run in runs if run.settings is not None]
    keys = dict.fromkeys(key for settings in every for key in settings)
    return [
        (key, [numbers.MISSING if r.settings is None else r.settings.get(key, "") for r in runs])
        for key in keys
        if len({settings.get(key) for settings in every}) > 1
    ]


def _differing(runs: Sequence[ComparedRun]) -> list[str]:
    return [key for key, _ in _differences(runs)]


def _notes(runs: Sequence[ComparedRun]) -> list[str]:
    """Write what the reader must know: what differs, then the notes of the runs."""
    notes = []
    keys = _differing(runs)
    data = [key for key in keys if key.startswith(DATA)]
    judged = [k for k in keys if changes_reward(k) or changes_labels(k) or k in JUDGED]
    if data:
        notes.append(f"The runs differ in their data ({', '.join(data)}): compare with care.")
    if judged:
        notes.append(f"The runs were judged differently ({', '.join(judged)}): compare with care.")
    notes += [f"{run.name} has no config.yaml." for run in runs if run.settings is None]
    notes.append(
        f"The recipes differ in {len(keys)} settings, listed below."
        if keys
        else "The recipes do not differ."
    )
    common = [n for n in runs[0].summary.notes if all(n in run.summary.notes for run in runs)]
    own = [f"{r.name}: {n}" for r in runs for n in r.summary.notes if n not in common]
    return [*notes, *common, *own]


def _headline(results: Mapping[str, System]) -> str:
    scores = headline_scores(results)
    listed = "; ".join(f"{name} {text}" for name, text in scores.texts.items())
    return f"Clinical micro-F1{scores.over} at the end: {listed}." if listed else ""


def _joined(runs: Sequence[ComparedRun]) -> tuple[list[Case], int]:
    """Join the cases of one study, id and reference alike, and count those that all runs have."""
    joined: dict[tuple[str, str], Case] = {}
    places: dict[tuple[str, str], int] = {}
    for run in runs:
        for case in run.cases:
            key = (case.sample.id, case.sample.reference)
            places[key] = places.get(key, 0) + 1
            before = joined.get(key, Case(replace(case.sample, outputs={}, facts={}, severity={})))
            pictured = before.sample if before.sample.images else case.sample
            labels = before.sample.labels
            named = {run.system(n): text for n, text in case.sample.outputs.items()}
            notes = {run.system(n): note for n, note in (case.sample.facts or {}).items()}
            weighed = {run.system(n): note for n, note in (case.sample.severity or {}).items()}
            joined[key] = Case(
                replace(
                    before.sample,
                    images=pictured.images,
                    views=pictured.views,
                    indication=before.sample.indication or case.sample.indication,
                    labels=case.sample.labels if labels is None else labels,
                    outputs={**before.sample.outputs, **named},
                    facts={**(before.sample.facts or {}), **notes},
                    severity={**(before.sample.severity or {}), **weighed},
                ),
                {**before.predicted, **{run.system(n): x for n, x in case.predicted.items()}},
                {
                    **before.truths,
                    **{run.system(n): case.sample.labels for n in case.sample.outputs},
                },
            )
    shared = sum(count == len(runs) for count in places.values())
    first = sorted(joined, key=lambda key: -places[key])
    return [joined[key] for key in first], shared
