"""Datasets as studies: reports, labels, context and images, read from each dataset's own files."""

from __future__ import annotations

from rrgtrain.data.catalogue import Broken, Catalogue, Wanted
from rrgtrain.data.load import load_studies
from rrgtrain.data.sections import ReportSections, cut_sections, read_sections
from rrgtrain.data.study import ImageRef, Study

__all__ = [
    "Broken",
    "Catalogue",
    "ImageRef",
    "ReportSections",
    "Study",
    "Wanted",
    "cut_sections",
    "load_studies",
    "read_sections",
]
