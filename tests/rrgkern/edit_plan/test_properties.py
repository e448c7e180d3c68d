"""Test properties of every pair of reports, drawn by hypothesis, on whoever serves the op.

Each property sees 200 cases (RRGKERN_CASES), and 200 more whose reference contradicts itself.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
import torch
from hypothesis import strategies as st

from rrgkern import Edit, EditScript, edit_plan
from tests.rrgkern.edit_plan import naive
from tests.rrgkern.edit_plan.cases import (
    TAU,
    Case,
    Report,
    Sentence,
    any_cases,
    contradicting_cases,
    tensors,
)
from tests.rrgkern.many_cases import for_all

thresholds = st.sampled_from([None, -0.5, 0.3, 0.6, 0.8, 1.0])
one_or_all = st.sampled_from([1, None])
# Python's own generator: hypothesis would follow each of its draws.
orders = st.integers(0, 2**32).map(random.Random)


def for_both_kinds(**options: st.SearchStrategy) -> Callable:
    """The property on any cases, and on those whose reference contradicts itself."""

    def decorate(test: Callable) -> Callable:
        runs = {
            "any": for_all(any_cases, **options)(test),
            "contradicting": for_all(contradicting_cases, **options)(test),
        }

        @pytest.mark.parametrize("kind", runs)
        def run(kind: str) -> None:
            runs[kind]()

        run.__doc__ = test.__doc__
        return run

    return decorate


def plan(cases: list[Case], max_edits: int | None = 1, **options: object) -> EditScript:
    x, y = tensors([case.x for case in cases]), tensors([case.y for case in cases])
    seeds = torch.tensor([case.seed for case in cases])
    return edit_plan(x, y, seeds=seeds, max_edits=max_edits, **options)


def states(case: Case, edits: list[Edit]) -> list[Report]:
    """The report before the first edit and after each."""
    x, y = naive.settled(case.x, case.y)
    found = [x]
    for edit in edits:
        found.append(naive.applied(found[-1], y, edit))
    return found


def clean(x: Report, case: Case) -> bool:
    """Nothing spurious, nothing missing."""
    x, y = naive.settled(x, case.y)
    return not naive.spurious(x, y, TAU) and not naive.missing(x, y, TAU)


@for_both_kinds(
    tau_replace=thresholds, max_edits=st.sampled_from([1, 2, None]), strict=st.booleans()
)
def test_the_plan_is_what_the_rules_say(
    cases: list[Case], tau_replace: float | None, max_edits: int | None, strict: bool
) -> None:
    script = plan(cases, max_edits, tau_replace=tau_replace, conflict_requires_spurious=strict)
    replace = TAU if tau_replace is None else tau_replace
    for r, case in enumerate(cases):
        expected = naive.script(case.x, case.y, case.seed, TAU, replace, max_edits, strict)
        assert script.of(r) == expected, case


@for_both_kinds(tau_replace=thresholds, strict=st.booleans())
def test_the_fixed_point_is_reached_and_clean(
    cases: list[Case], tau_replace: float | None, strict: bool
) -> None:
    options = {"tau_replace": tau_replace, "conflict_requires_spurious": strict}
    script = plan(cases, None, **options)
    final = []
    for r, case in enumerate(cases):
        edits = script.of(r)
        assert len(edits) <= len(case.x) + len(case.y), case
        final.append(Case(states(case, edits)[-1], case.y, case.seed))
        # of the reference, once equal text means equal findings
        findings = naive.findings(naive.settled(case.x, case.y)[1])
        assert clean(final[-1].x, case) or not findings, case
    if strict:  # by the letter of the paper even a correct report may conflict
        assert not plan(final, None, **options).count.any()


@for_both_kinds(max_edits=st.sampled_from([1, 2]), order=orders)
def test_a_plan_depends_on_its_own_pair_and_seed_alone(
    cases: list[Case], max_edits: int, order: random.Random
) -> None:
    together = plan(cases, max_edits)
    shuffled = order.sample(range(len(cases)), len(cases))
    # Some alone, all by threes, all in another order.
    for size, end in ((1, 4), (3, len(cases)), (len(cases), len(cases))):
        for start in range(0, min(end, len(cases)), size):
            rows = shuffled[start : start + size]
            part = plan([cases[k] for k in rows], max_edits)
            for field, whole in zip(part, together, strict=True):
                assert torch.equal(field, whole[rows])


@for_both_kinds(max_edits=one_or_all, order=orders)
def test_the_order_of_findings_in_a_sentence_does_not_matter(
    cases: list[Case], max_edits: int | None, order: random.Random
) -> None:
    def shuffled(report: Report) -> Report:
        return tuple(
            Sentence(s.text, tuple(order.sample(s.entities, len(s.entities)))) for s in report
        )

    other = [Case(shuffled(case.x), shuffled(case.y), case.seed) for case in cases]
    for field, wanted in zip(plan(other, max_edits), plan(cases, max_edits), strict=True):
        assert torch.equal(field, wanted)


@for_both_kinds(garbage=st.sampled_from([float("nan"), float("inf"), 7.0, -3e38]))
def test_what_takes_no_part_is_never_read(cases: list[Case], garbage: float) -> None:
    seeds = torch.tensor([case.seed for case in cases])
    plans = [
        edit_plan(
            tensors([case.x for case in cases], 3, value),
            tensors([case.y for case in cases], 3, value),
            seeds=seeds,
        )
        for value in (0.0, garbage)
    ]
    for field, wanted in zip(*plans, strict=True):
        assert torch.equal(field, wanted)
