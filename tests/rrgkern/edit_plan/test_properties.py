"""What must hold for every pair of reports, drawn by hypothesis; run on whoever serves the op."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import torch
from hypothesis import given
from hypothesis import strategies as st

from rrgkern import EditScript, edit_plan
from tests.rrgkern.edit_plan import naive
from tests.rrgkern.edit_plan.cases import TAU, Report, many, pairs, seeds, tensors

thresholds = st.sampled_from([None, -0.5, 0.3, 0.6, 0.8, 1.0])


def plan(
    x: Report, y: Report, seed: int, max_edits: int | None = None, **options: object
) -> EditScript:
    return edit_plan(
        tensors([x]), tensors([y]), seeds=torch.tensor([seed]), max_edits=max_edits, **options
    )


def states(x: Report, y: Report, script: EditScript) -> list[Report]:
    """The report before the first edit and after each."""
    x, y = naive.settled(x, y)
    found = [x]
    for edit in script.of(0):
        found.append(naive.applied(found[-1], y, edit))
    return found


@given(pairs(), seeds, thresholds, st.sampled_from([1, 2, None]), st.booleans())
@many
def test_the_plan_is_what_the_rules_say(
    pair: tuple[Report, Report],
    seed: int,
    tau_replace: float | None,
    max_edits: int | None,
    spurious: bool,
) -> None:
    options = {"tau_replace": tau_replace, "conflict_requires_spurious": spurious}
    replace = TAU if tau_replace is None else tau_replace
    expected = naive.script(*pair, seed, TAU, replace, max_edits, spurious)
    assert plan(*pair, seed, max_edits, **options).of(0) == expected


@given(pairs(), seeds, st.sampled_from([1, None]))
@many
def test_editing_a_report_toward_itself_changes_nothing(
    pair: tuple[Report, Report], seed: int, max_edits: int | None
) -> None:
    _, y = pair
    assert plan(y, y, seed, max_edits).count.tolist() == [0]


@given(pairs(), seeds, thresholds)
@many
def test_at_the_fixed_point_nothing_is_spurious_and_nothing_missing(
    pair: tuple[Report, Report], seed: int, tau_replace: float | None
) -> None:
    x, y = pair
    script = plan(x, y, seed, tau_replace=tau_replace)
    assert int(script.count[0]) <= len(x) + len(y)
    final = states(x, y, script)[-1]
    _, y = naive.settled(x, y)
    if naive.findings(y):
        assert not naive.spurious(final, y, TAU)
        assert not naive.missing(final, y, TAU)
        assert plan(final, y, seed).count.tolist() == [0]
    else:
        assert script.count.tolist() == [0]


@given(pairs(), seeds, st.sampled_from([1, None]), st.booleans())
@many
def test_no_sentence_is_duplicated_and_none_without_findings_is_touched(
    pair: tuple[Report, Report], seed: int, max_edits: int | None, spurious: bool
) -> None:
    x, y = pair
    script = plan(x, y, seed, max_edits, conflict_requires_spurious=spurious)
    found = states(x, y, script)
    for before, after in pairwise(found):
        held = Counter(sentence.text for sentence in before)
        for text, count in Counter(sentence.text for sentence in after).items():
            assert count <= max(1, held[text])
    plain = [sentence for sentence in found[0] if not naive.findings((sentence,))]
    assert [sentence for sentence in found[-1] if not naive.findings((sentence,))] == plain


@given(pairs(), seeds, st.booleans())
@many
def test_beyond_one_edit_a_sentence_of_the_reference_stays_and_is_used_once(
    pair: tuple[Report, Report], seed: int, spurious: bool
) -> None:
    x, y = pair
    script = plan(x, y, seed, conflict_requires_spurious=spurious)
    found = states(x, y, script)
    texts = {sentence.text for sentence in y}
    for before, edit in zip(found, script.of(0), strict=False):
        if 0 <= edit.sentence < len(before):
            assert before[edit.sentence].text not in texts
    used = [y[edit.reference].text for edit in script.of(0) if edit.reference >= 0]
    assert len(used) == len(set(used))
    assert int(script.count[0]) <= len(x) + len(y)


@given(st.lists(st.tuples(pairs(), seeds), min_size=1, max_size=5), st.randoms())
@many
def test_a_plan_depends_on_its_own_pair_and_seed_alone(cases: list, random: object) -> None:
    alone = [plan(x, y, seed, 2) for (x, y), seed in cases]
    order = list(range(len(cases)))
    random.shuffle(order)
    xs, ys = ([cases[k][0][side] for k in order] for side in (0, 1))
    keys = torch.tensor([cases[k][1] for k in order])
    # Findings that take no part may hold anything at all.
    together = edit_plan(tensors(xs, 3, torch.nan), tensors(ys, 3), seeds=keys, max_edits=2)
    again = edit_plan(tensors(xs, 3, 7.0), tensors(ys, 3), seeds=keys, max_edits=2)
    for field, repeated in zip(together, again, strict=True):
        assert torch.equal(field, repeated)
    for place, k in enumerate(order):
        for field, expected in zip(together, alone[k], strict=True):
            assert torch.equal(field[place], expected[0])
