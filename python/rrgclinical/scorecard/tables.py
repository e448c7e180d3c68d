"""Write a scorecard as text, CSV, JSON and LaTeX; clinical metrics come first in all."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import NormalDist

import numpy as np

from rrgclinical.common import json_reader
from rrgclinical.common.errors import UserError
from rrgclinical.common.files import atomic_write
from rrgclinical.common.shown import one_line, printable
from rrgclinical.common.table import aligned
from rrgclinical.metrics import PairedDifference
from rrgclinical.metrics.registry import FIRST, HEADLINE, MetricName, labels_by, metric_of
from rrgclinical.scorecard import card as cards
from rrgclinical.scorecard.pairs import Pairs

FILES = ("metrics.json", "table.csv", "table.tex", "predictions.jsonl")
"""Names of a scorecard's files, as `write_card` writes them."""
DOMAINS = ("in domain", "out of domain")
"""Sub-groups that have columns of their own at the head of a page."""
MISSING = "-"
SEEN = 0.05
"""Difference whose chance to be seen stands in the table of differences."""
_SPECIAL = {
    **{c: f"\\{c}" for c in "&%$#_{}"},
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "\\": r"\textbackslash{}",
}


def write_card(
    out: Path,
    card: cards.Scorecard,
    pairs: Pairs,
    truth: np.ndarray,
    readings: Mapping[str, cards.SystemReading],
    completions: Mapping[str, Sequence[str]] | None = None,
) -> None:
    """Write the files of a scorecard, `FILES`, to the directory `out`; see `report_rows`."""
    rows = report_rows(pairs, truth, readings, completions)
    texts = (as_json(card), as_csv(card), as_latex(card), "".join(rows))
    # all are made before the first is written: half an evaluation would stand in the way
    for name, content in zip(FILES, [text.encode() for text in texts], strict=True):
        atomic_write(out / name, content)


def as_json(card: cards.Scorecard) -> str:
    """Write every number of the card, with names, rules, settings and notes."""
    return json.dumps(dataclasses.asdict(card), indent=1, ensure_ascii=False) + "\n"


def read_card(path: Path) -> cards.Scorecard:
    """Read a card that `as_json` wrote; UserError for a file that is none."""
    from pydantic import TypeAdapter, ValidationError

    try:
        return TypeAdapter(cards.Scorecard).validate_python(json_reader.read(path, dict))
    except (ValueError, ValidationError) as error:
        line = str(error).splitlines()[0]
        raise UserError(f"{path} is no scorecard ({line}); score the reports again") from error


def as_csv(card: cards.Scorecard) -> str:
    """Write one row for each value, with its group, system, metric and interval.

    The groups are the sub-groups, and `finding: NAME` with the number of its positives.
    """
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["group", "n", "system", "metric", "name", "value", "low", "high"])
    for group in card.groups:
        for system, values in group.systems.items():
            for metric in card.metrics:
                value = values.get(metric.key)
                cells = ["", "", ""] if value is None else [value.value, value.low, value.high]
                writer.writerow([group.name, group.n, system, metric.key, metric.label, *cells])
    for finding in card.findings:
        for system, rates in finding.systems.items():
            for rate, value in rates.items():
                row = [f"finding: {finding.name}", finding.positives, system, rate, rate]
                writer.writerow([*row, value.value, value.low, value.high])
    return out.getvalue()


def as_text(card: cards.Scorecard, whole: Path | None = None) -> str:
    """Write the tables for a terminal, each reason and note beneath them.

    whole: file that holds all of them; a page's first rows are enough here then.
    """
    tests = f"{cards.tests_shown(card.comparisons)} tests of differences"
    head = [f"{card.studies} studies", interval_kind(card), tests]
    lines = ["; ".join([*head, labels_by(card.settings.labeller)])]
    lines += [*filter(None, [headline(card)]), ""]
    for rows in [first_rows(card)] if whole else [rows for _, rows in tables(card)]:
        lines += [*aligned(rows), ""]
    lines += [f"All metrics, findings, sub-groups and differences: {whole}"] if whole else []
    return "\n".join([*lines, *foot(card)]) + "\n"


def interval_kind(card: cards.Scorecard) -> str:
    """Say the level of the card's intervals, and what they draw."""
    over = "studies" if card.patients is None else f"{card.patients} patients"
    return f"{100 * card.settings.level:g} % bootstrap intervals over {over}"


def as_latex(card: cards.Scorecard) -> str:
    """Write the tables with booktabs, one a group of rows."""
    parts = ["% \\usepackage{booktabs}"]
    for title, rows in tables(card):
        columns = "l" + "r" * (len(rows[0]) - 1)
        body = [" & ".join(map(_escaped, row)) + r" \\" for row in rows]
        parts += [
            r"\begin{table}",
            f"\\caption{{{_escaped(title)}}}",
            f"\\begin{{tabular}}{{{columns}}}",
            r"\toprule",
            body[0],
            r"\midrule",
            *body[1:],
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table}",
            "",
        ]
    return "\n".join([*parts, *(f"% {one_line(line)}" for line in foot(card))]) + "\n"


def foot(card: cards.Scorecard) -> list[str]:
    """Say why metrics are absent, and give the rules of groups and the notes."""
    labels = {metric.key: metric.label for metric in card.metrics}
    absent: dict[str, list[str]] = {}
    for key, reason in card.absent.items():
        absent.setdefault(reason, []).append(labels.get(key, key))
    lines = [f"{', '.join(named)}: {MISSING}, {reason}" for reason, named in absent.items()]
    lines += [f"{group.name}: {group.rule}, n = {group.n}." for group in card.groups[1:]]
    return [one_line(line) for line in [*lines, *card.notes]]


def headline(card: cards.Scorecard) -> str:
    """Say the systems' micro-F1 over 13 findings, "" where the truth has none.

    Behind it stands what each has over the first, and who read the labels.
    """
    key = HEADLINE[0]
    values = {name: of_system.get(key) for name, of_system in card.groups[0].systems.items()}
    said = [f"{_cell(value)} with {one_line(name)}" for name, value in values.items() if value]
    if not said:
        return ""
    said += [
        f"{_pair(one)} {_difference(one.differences[key])}".removesuffix(f" p {MISSING}")
        for one in card.comparisons
        if one.first == card.systems[0] and key in one.differences
    ]
    said.append(labels_by(card.settings.labeller))
    return f"Clinical micro-F1 over 13 findings, {card.studies} studies: {'; '.join(said)}."


def first_rows(card: cards.Scorecard) -> list[list[str]]:
    """Give the table at a page's head, a row for each of FIRST."""
    group = card.groups[0]
    if domains := [g for g in card.groups if g.name in DOMAINS]:
        systems = {f"{s}, {g.name}": g.systems[s] for s in group.systems for g in domains}
        group = dataclasses.replace(group, systems=systems, ceilings={})
    measured = {key for values in group.systems.values() for key in values}
    metrics = {metric.key: metric for metric in card.metrics if metric.key in measured}
    keys = (next((key for key in choice if key in metrics), None) for choice in FIRST)
    return _rows("metric", [metrics[key] for key in keys if key is not None], group)


def tables(card: cards.Scorecard) -> Iterator[tuple[str, list[list[str]]]]:
    """Give each table as a title and rows of cells, the first row its header."""
    first = card.groups[0]
    yield f"All metrics, {card.studies} studies", _rows("metric", card.metrics, first)
    shown = [metric for metric in card.metrics if metric_of(metric.key).main]
    for group in card.groups[1:]:
        title = f"{group.name}: {group.rule}"
        there = [m for m in shown if any(m.key in values for values in group.systems.values())]
        yield title, _rows(f"{group.name}, n = {group.n}", there, group)
    yield "F1 of each finding", _findings(card)
    if card.comparisons:
        tests = cards.tests_shown(card.comparisons)
        yield f"Paired differences, {tests} tests", _differences(card, shown)


def _rows(corner: str, metrics: Sequence[MetricName], group: cards.Group) -> list[list[str]]:
    rows = [[corner, *(one_line(name) for name in group.systems)]]
    for metric in metrics:
        cells = [_cell(values.get(metric.key)) for values in group.systems.values()]
        most = group.ceilings.get(metric.key)
        most_said = "" if most is None else f" (at most {most:.3f})"
        rows.append([f"{metric.label}{most_said}", *cells])
    return rows


def _findings(card: cards.Scorecard) -> list[list[str]]:
    rows = [["F1 of a finding", "positives", *(one_line(name) for name in card.systems)]]
    for finding in card.findings:
        cells = [_cell(finding.systems[name]["f1"]) for name in card.systems]
        share = f"{finding.positives} ({finding.positives / card.studies:.1%})"
        rows.append(
            [finding.name, share, *(cells if finding.positives else [MISSING] * len(cells))]
        )
    return rows


def _differences(card: cards.Scorecard, metrics: Sequence[MetricName]) -> list[list[str]]:
    of_each = [comparison.differences for comparison in card.comparisons]
    rows = [["difference", *map(_pair, card.comparisons)]]
    compared = [m for m in metrics if any(m.key in differences for differences in of_each)]
    for metric in compared:
        cells = [_difference(differences.get(metric.key)) for differences in of_each]
        rows.append([metric.label, *cells])
        if metric.key == HEADLINE[0]:
            label = f"{card.studies} studies see {100 * SEEN:g} points of it in"
            level = card.settings.level
            cells = [_power(differences.get(metric.key), level) for differences in of_each]
            rows.append([label, *cells])
    return rows


def _pair(comparison: cards.Comparison) -> str:
    return f"{one_line(comparison.second)} - {one_line(comparison.first)}"


def _difference(of_metric: PairedDifference | None) -> str:
    if of_metric is None:
        return MISSING
    p = MISSING if of_metric.p_value is None else f"{of_metric.p_value:.3f}"
    return f"{of_metric.difference:+.3f} [{of_metric.low:+.3f}, {of_metric.high:+.3f}] p {p}"


def _power(of_metric: PairedDifference | None, level: float) -> str:
    """Say in how many tests at 0.05 a true difference of SEEN is seen, by the interval's width."""
    if of_metric is None or of_metric.low == of_metric.high:
        return MISSING
    normal = NormalDist()
    error = (of_metric.high - of_metric.low) / (2 * normal.inv_cdf((1 + level) / 2))
    critical = normal.inv_cdf(0.975)
    power = normal.cdf(SEEN / error - critical) + normal.cdf(-SEEN / error - critical)
    often = f", 1 of {1 / power:.0f}" if power < 0.5 else ""
    return f"{power:.0%} of tests{often}"


def _cell(value: cards.Value | None) -> str:
    return MISSING if value is None else f"{value.value:.3f} [{value.low:.3f}, {value.high:.3f}]"


def _escaped(text: str) -> str:
    return "".join(_SPECIAL.get(char, char) for char in printable(text))


def report_rows(
    pairs: Pairs,
    truth: np.ndarray,
    readings: Mapping[str, cards.SystemReading],
    completions: Mapping[str, Sequence[str]] | None = None,
) -> Iterator[str]:
    """Write all reports as lines of JSON, one a study and system, for `read_predictions`.

    truth: int8 `[R, 14]` class ids, as `labels_true` and `labels_predicted` hold. `scores` has the
    values of the one report, `severity` what its value was made of. completions: what a system
    wrote, where its report is a part of that. `patient` numbers the patients that are known.
    """
    numbers = {patient: i for i, patient in enumerate(dict.fromkeys(pairs.patients))}
    for name, reports in pairs.systems.items():
        reading, whole = readings[name], (completions or {}).get(name)
        labels_true = truth if reading.truth is None else reading.truth
        for i, (key, report) in enumerate(zip(pairs.ids, reports, strict=True)):
            texts = list(pairs.references[i])
            row = {
                "system": name,
                "id": key,
                "report": report,
                "reference": texts[0] if len(texts) == 1 else texts or None,
                "labels_predicted": reading.labels[i].tolist(),
                "labels_true": labels_true[i].tolist(),
                "scores": {
                    metric: float(column[i])
                    for metric, column in reading.scores.items()
                    if not np.isnan(column[i])
                },
            }
            if pairs.patients and pairs.patients[i]:
                row["patient"] = numbers[pairs.patients[i]]
            if reading.reasons:
                row["severity"] = reading.reasons[i]
            if whole is not None and whole[i] != report:
                row["completion"] = whole[i]
            yield json.dumps(row, ensure_ascii=False) + "\n"
