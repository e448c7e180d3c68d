"""Report a run: the final table and one self-contained HTML file."""

from rrgtrain.report.html import write_report
from rrgtrain.report.marks import NEUTRAL, mark_reports
from rrgtrain.report.provenance import commit, versions
from rrgtrain.report.samples import EditSample, Sample, WeightSample, read_samples, write_samples
from rrgtrain.report.summary import Metric, RunSummary, System
from rrgtrain.report.table import print_summary

__all__ = [
    "NEUTRAL",
    "EditSample",
    "Metric",
    "RunSummary",
    "Sample",
    "System",
    "WeightSample",
    "commit",
    "mark_reports",
    "print_summary",
    "read_samples",
    "versions",
    "write_report",
    "write_samples",
]
