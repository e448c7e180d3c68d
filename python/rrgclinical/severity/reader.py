"""Score reports by severity, each distinct text read once."""

from __future__ import annotations

from collections.abc import Sequence

from rrgclinical.cached import CAPACITY, Cached
from rrgclinical.common.arguments import check_pairs, check_reports
from rrgclinical.severity.judge import SeverityJudgement, judge
from rrgclinical.severity.reading import ReportReading, read
from rrgclinical.severity.table import load_table


class Severity:
    """The reward `severity` with one table; see `judge` for the formula.

    table: YAML file of tiers and costs, None the packaged one. capacity: texts kept in memory
    beside the references. Raises UserError as `load_table`.
    """

    def __init__(self, table: str | None = None, *, capacity: int = CAPACITY) -> None:
        self.table = load_table(table)
        self.results: Cached[ReportReading] = Cached(
            lambda texts: [read(text) for text in texts], capacity=capacity
        )

    def read(self, texts: Sequence[str], *, keep: bool = False) -> list[ReportReading]:
        """The reading of each text; those with `keep`, references, stay in memory."""
        return self.results(check_reports(texts, "texts"), keep=keep)

    def judge(
        self,
        reports: Sequence[str],
        references: Sequence[str],
        readings: Sequence[ReportReading] | None = None,
    ) -> list[SeverityJudgement]:
        """Judge each report against its reference; `readings` are the references', if read.

        Raises TypeError for what is no list of str, ValueError where they differ in number.
        """
        reports, references = check_pairs(reports, references)
        truth = readings or self.read(references, keep=True)
        judgements = []
        for got, want, report, reference in zip(
            self.read(reports), truth, reports, references, strict=True
        ):
            # texts are compared only where nothing is read in the reference
            empty = not want.present and not want.denied
            same = empty and report.split() == reference.split()
            judgements.append(judge(got, want, self.table, same=same))
        return judgements
