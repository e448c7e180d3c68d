"""Choose the text that supervised fine-tuning teaches the policy to write."""

from __future__ import annotations

import string
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from rrgclinical import Labeller
from rrgclinical.labels import NO_FINDING, OBSERVATIONS, to_binary
from rrgdata.study import Study
from rrgtrain.errors import UserError

PLAIN = "{report}"
FIELDS = {"report", "findings"}


def target_text(study: Study, template: str = PLAIN) -> str:
    """The study's report in the template; `{findings}` names its positive or uncertain labels.

    Raises UserError where the template asks for labels and the study has none.
    """
    report = study.report or ""
    if template == PLAIN:
        return report
    findings = ""
    if "findings" in fields(template):
        if study.labels is None:
            raise UserError(
                f"sft.template asks for findings, but study {study.id} has no labels; "
                "leave {findings} out of it"
            )
        positive = to_binary(np.asarray([study.labels]))[0, :NO_FINDING].nonzero()[0]
        findings = ", ".join(OBSERVATIONS[c] for c in positive) or OBSERVATIONS[NO_FINDING]
    return template.format(report=report, findings=findings)


def with_findings(studies: Sequence[Study], template: str, labeller: Labeller) -> list[Study]:
    """The studies with the labels that the template asks for.

    They keep their own; one that has none gets what `labeller` reads in its report.
    """
    bare = [study for study in studies if study.labels is None and study.report]
    if "findings" not in fields(template) or not bare:
        return list(studies)
    read = labeller.label([study.report or "" for study in bare])
    found = dict(zip((study.id for study in bare), read.tolist(), strict=True))
    return [
        replace(study, labels=tuple(found[study.id])) if study.id in found else study
        for study in studies
    ]


def check_template(template: str) -> None:
    """UserError for a template that is broken, leaves the report out or names another field."""
    named = fields(template)
    if "report" not in named or not named <= FIELDS:
        raise UserError(
            f"sft.template={template!r} names {', '.join(sorted(named)) or 'nothing'}; "
            "write {report} once, and {findings} if you like"
        )


def fields(template: str) -> set[str]:
    """The names in braces."""
    try:
        return {name for _, name, _, _ in string.Formatter().parse(template) if name is not None}
    except ValueError as error:
        raise UserError(f"sft.template={template!r} is broken ({error}); double a brace") from error
