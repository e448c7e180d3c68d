"""The rule of the published code, where it differs from the paper's."""

from __future__ import annotations

import torch

from rrgkern import Edit, Rule, SentenceEntities, edit_plan
from tests.rrgkern.edit_plan.cases import Entity, Report, Sentence, tensors

OEDEMA, NO_OEDEMA = Entity(6, 1), Entity(6, 0)
EFFUSION = Entity(0, 1)


def kinds(z: SentenceEntities) -> SentenceEntities:
    """Kind 0 absent, 1 present, 2 neither."""
    return z._replace(kind=z.presence.remainder(3).to(torch.int8))


def released(
    x: Report, y: Report, affinity: torch.Tensor | None = None, seed: int = 0, **options: object
) -> list[Edit]:
    return edit_plan(
        kinds(tensors([x], garbage=0.7071)),
        kinds(tensors([y], garbage=0.7071)),
        seeds=torch.tensor([seed]),
        rule="released",
        affinity=affinity,
        **options,
    ).of(0)


def test_a_report_equal_to_its_reference_loses_a_correct_sentence() -> None:
    y = (Sentence(0, (NO_OEDEMA,)), Sentence(1, (EFFUSION,)))
    assert released(y, y) == []
    weak = torch.tensor([[0.0009, 0.5, 0.0], [0.5, 0.43, 0.0], [0.0, 0.0, 0.3]])
    assert released(y, y, weak) == [Edit(Rule.DELETION_OF_COPIES, 0, -1)]
    assert edit_plan(tensors([y]), tensors([y]), seeds=torch.tensor([0])).count.tolist() == [0]


def test_conflicts_are_found_and_not_used() -> None:
    x, y = (Sentence(0, (NO_OEDEMA,)), Sentence(2)), (Sentence(1, (OEDEMA,)),)
    # Spurious, since the negation costs its likeness; the plain cosine then replaces it.
    assert released(x, y) == [Edit(Rule.REPLACEMENT, 0, 0)]
    # With replacement out of reach the deletion comes, not the conflict.
    assert released(x, y, tau_replace=1.0, tau=0.5) == [Edit(Rule.REPLACEMENT, 0, 0)]
    far = (Sentence(1, (Entity(8, 1),)),)
    assert released(x, far, tau_replace=0.9) == [Edit(Rule.DELETION_OF_COPIES, 0, -1)]


def test_a_contradicted_finding_is_not_missing() -> None:
    x, y = (Sentence(0, (NO_OEDEMA,)),), (Sentence(1, (OEDEMA,)),)
    # Nothing is missing, so the deletion leaves nothing to fill the report with.
    assert released(x, y, tau_replace=1.0, neg_weight=0.0) == [Edit(Rule.REPLACEMENT, 0, 0)]
    near = (Sentence(1, (Entity(7, 1),)),)
    assert released(x, near, tau_replace=1.0) == [Edit(Rule.DELETION_OF_COPIES, 0, -1)]
    lost = (Sentence(1, (Entity(0, 1),)),)
    assert released(x, lost) == [Edit(Rule.DELETION_OF_COPIES, 0, 0)]


def test_a_replacement_may_repeat_a_sentence() -> None:
    x = (Sentence(0, (NO_OEDEMA,)), Sentence(1, (OEDEMA,)))
    assert released(x, (Sentence(1, (OEDEMA,)),)) == [Edit(Rule.REPLACEMENT, 0, 0)]


def test_additions_are_drawn_over_findings_and_dropped_where_the_text_is_there() -> None:
    x = (Sentence(0),)
    y = (Sentence(1, (OEDEMA, OEDEMA, OEDEMA)), Sentence(2, (EFFUSION,)))
    drawn = [released(x, y, seed=seed)[0].reference for seed in range(200)]
    assert 120 < drawn.count(0) < 180
    assert released((Sentence(1),), y[:1]) == []


def test_an_empty_report_stays() -> None:
    assert released((), (Sentence(0, (OEDEMA,)),)) == []


def test_anatomy_takes_part() -> None:
    anatomy = Entity(3, -1)
    x = (Sentence(0, (anatomy,)), Sentence(1))
    y = (Sentence(2, (OEDEMA,)),)
    assert released(x, y) == []  # 45 degrees apart: alike, so nothing is spurious or missing
    assert released(x, y, tau=0.8) == [Edit(Rule.DELETION_OF_COPIES, 0, -1)]
