"""Datasets as studies: reports, labels, context and images, read from each dataset's own files."""

from __future__ import annotations

from rrgdata.catalogue import Broken, Catalogue, ReadSettings
from rrgdata.load import load_studies
from rrgdata.sections import ReportSections, cut_sections, read_sections
from rrgdata.study import ImageRef, Study

__all__ = [
    "Broken",
    "Catalogue",
    "ImageRef",
    "ReadSettings",
    "ReportSections",
    "Study",
    "cut_sections",
    "load_studies",
    "read_sections",
]
