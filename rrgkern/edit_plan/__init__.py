"""Edits that move a report toward its reference (EditGRPO, rules a-e)."""

from __future__ import annotations

from rrgkern.edit_plan.api import edit_plan
from rrgkern.edit_plan.splicing import SplicedEdit, Step, list_marker, sentence_body, splice
from rrgkern.edit_plan.types import Edit, EditScript, Rule, SentenceEntities

__all__ = [
    "Edit",
    "EditScript",
    "Rule",
    "SentenceEntities",
    "SplicedEdit",
    "Step",
    "edit_plan",
    "list_marker",
    "sentence_body",
    "splice",
]
