"""Report a run: the final table and one self-contained HTML file."""

from rrgreport.html import write_report
from rrgreport.marks import NEUTRAL, mark_reports
from rrgreport.samples import EditSample, Sample, WeightSample, read_samples, write_samples
from rrgreport.summary import Metric, RunSummary, System
from rrgreport.table import print_summary

__all__ = [
    "NEUTRAL",
    "EditSample",
    "Metric",
    "RunSummary",
    "Sample",
    "System",
    "WeightSample",
    "mark_reports",
    "print_summary",
    "read_samples",
    "write_report",
    "write_samples",
]
