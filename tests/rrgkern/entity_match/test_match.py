"""The match against one worked out entity by entity, bit for bit; run on whoever serves the op."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rrgkern import ANY, EQUAL, OPPOSITE, EntityMatch, ReportEntities, entity_match
from tests.rrgkern.entity_match import cases
from tests.rrgkern.entity_match.cases import Entity, many, tensors

weights = st.sampled_from([0.0, 0.3612, 0.8717, 1.0])


@given(cases.batches, cases.tables, weights)
@many
def test_every_best_match_and_score(
    batch: list[tuple[list[Entity], list[Entity]]], affinity: torch.Tensor, neg_weight: float
) -> None:
    xs, ys = [x for x, _ in batch], [y for _, y in batch]
    match = entity_match(tensors(xs), tensors(ys), affinity=affinity, neg_weight=neg_weight)
    sides = (
        (match.cosine_x, match.index_x, [(e, y) for x, y in batch for e in x]),
        (match.cosine_y, match.index_y, [(e, x) for x, y in batch for e in y]),
    )
    for cosine, index, questions in sides:
        assert cosine.dtype == torch.float32 and index.dtype == torch.int32
        assert cosine.shape == index.shape == (len(questions), 3)
        for row, (entity, others) in enumerate(questions):
            for column in (ANY, EQUAL, OPPOSITE):
                wanted = cases.best(entity, others, column)
                assert (float(cosine[row, column]), int(index[row, column])) == wanted
    found = torch.stack([match.precision, match.recall, match.score], 1).tolist()
    assert found == [cases.scores(x, y, affinity.tolist(), neg_weight) for x, y in batch]


@given(st.lists(cases.pairs, min_size=1, max_size=5), st.randoms())
@many
def test_a_match_depends_on_its_own_pair_alone(batch: list, random: object) -> None:
    order = list(range(len(batch)))
    random.shuffle(order)
    together = entity_match(*(tensors([batch[k][side] for k in order]) for side in (0, 1)))
    x_row = y_row = 0
    for place, k in enumerate(order):
        x, y = batch[k]
        alone = entity_match(tensors([x]), tensors([y]))
        rows = slice(x_row, x_row + len(x)), slice(y_row, y_row + len(y))
        x_row, y_row = rows[0].stop, rows[1].stop
        for field, wanted, part in zip(
            together, alone, (rows[0], rows[0], rows[1], rows[1], *[slice(place, place + 1)] * 3),
            strict=True,
        ):  # fmt: skip
            assert torch.equal(field[part], wanted)


def single(*entities: Entity) -> ReportEntities:
    return tensors([list(entities)])


def test_no_report_is_skipped_when_one_is_empty() -> None:
    full = [Entity(0, 1, 0)]
    match = entity_match(tensors([[], full, full]), tensors([full, [], full]))
    assert match.score.tolist() == [0.5, 0.5, 1.0]
    assert match.precision.tolist() == match.recall.tolist() == [0.5, 0.5, 1.0]
    assert match.cosine_x.tolist()[0] == [-torch.inf] * 3
    assert match.index_x.tolist() == [[-1, -1, -1], [0, 0, -1]]


def test_a_negation_costs_neg_weight() -> None:
    x, y = single(Entity(3, 1, 0)), single(Entity(3, 0, 1))
    assert float(entity_match(x, y).score) == pytest.approx(0.3612)
    assert float(entity_match(x, y, neg_weight=0.8717).score) == pytest.approx(0.8717)
    neither = single(Entity(3, -1, 0))
    assert float(entity_match(neither, y).score) == 1.0


def test_affinity_weighs_the_mean_and_takes_the_own_kind_first() -> None:
    x = single(Entity(0, 1, 0), Entity(3, 1, 1))
    y = single(Entity(0, 1, 1))
    affinity = torch.tensor([[0.5, 0.75], [0.25, 1.0]])
    match = entity_match(x, y, affinity=affinity)
    # Precision: cosines 1 and 0 with weights W[0, 1] and W[1, 1]; recall: W[1, 0] cancels.
    assert float(match.precision) == pytest.approx(0.75 / 1.75)
    assert float(match.recall) == 1.0
    assert float(match.score) == pytest.approx(2 * (0.75 / 1.75) / (1 + 0.75 / 1.75))


def test_no_weight_and_opposite_means_score_zero() -> None:
    x, y = single(Entity(0, 1, 0)), single(Entity(0, 1, 0))
    assert entity_match(x, y, affinity=torch.zeros(1, 1)).score.tolist() == [0.0]
    assert entity_match(x, single(Entity(3, 1, 0)), neg_weight=0.0).score.abs().item() < 1e-7


def test_ties_go_to_the_lowest_index() -> None:
    assert cases.COSINE[0][1] == cases.COSINE[0][11]
    match = entity_match(
        single(Entity(0, 1, 0)), single(Entity(1, 0, 0), Entity(11, 1, 0), Entity(1, 1, 0))
    )
    assert match.index_x.tolist() == [[0, 1, 0]]


def test_no_reports_at_all() -> None:
    match = entity_match(tensors([]), tensors([]))
    assert isinstance(match, EntityMatch)
    assert match.score.shape == (0,) and match.cosine_x.shape == (0, 3)
