"""The match against one worked out entity by entity, bit for bit; run on whoever serves the op."""

from __future__ import annotations

import random

import pytest
import torch
from hypothesis import strategies as st

from rrgkern import ANY, EQUAL, OPPOSITE, EntityMatch, ReportEntities, entity_match
from rrgkern.entity_match import reference as reference_module
from rrgkern.entity_match.inputs import MatchTables
from tests.mutants import survivors
from tests.rrgkern.entity_match import cases
from tests.rrgkern.entity_match.cases import Entity, tensors
from tests.rrgkern.many_cases import for_all

weights = st.sampled_from([0.0, 0.3612, 0.8717, 1.0])
# Python's own generator: hypothesis would follow each of its draws.
orders = st.integers(0, 2**32).map(random.Random)
Pair = tuple[cases.Report, cases.Report]


@for_all(cases.pairs, affinity=cases.tables, neg_weight=weights)
def test_every_best_match_and_score(
    batch: list[Pair], affinity: torch.Tensor, neg_weight: float
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
        found = zip(cosine.flatten().tolist(), index.flatten().tolist(), strict=True)
        columns = (ANY, EQUAL, OPPOSITE)
        assert list(found) == [cases.best(*question, c) for question in questions for c in columns]
    found = torch.stack([match.precision, match.recall, match.score], 1).tolist()
    wanted = [cases.scores(x, y, affinity.tolist(), neg_weight) for x, y in batch]
    assert cases.same_scores(found, wanted)


@for_all(cases.pairs, affinity=cases.tables, order=orders)
def test_a_match_depends_on_its_own_pair_alone(
    batch: list[Pair], affinity: torch.Tensor, order: random.Random
) -> None:
    def columns(rows: list[int]) -> list[list]:
        """The result of these pairs, taken apart pair by pair."""
        x, y = (tensors([batch[k][side] for k in rows]) for side in (0, 1))
        match = entity_match(x, y, affinity=affinity)
        sizes = [[len(batch[k][side]) for k in rows] for side in (0, 1)]
        fields = [*zip(match[:4], (0, 0, 1, 1), strict=True)]
        parts = [field.split(sizes[side]) for field, side in fields]
        return [*zip(*parts, *(field.tolist() for field in match[4:]), strict=True)]

    together = columns(list(range(len(batch))))
    shuffled = order.sample(range(len(batch)), len(batch))
    for size in (1, 4, len(batch)):
        for start in range(0, len(batch), size):
            rows = shuffled[start : start + size]
            for row, part in zip(rows, columns(rows), strict=True):
                for got, wanted in zip(part, together[row], strict=True):
                    same = torch.equal if isinstance(got, torch.Tensor) else float.__eq__
                    assert same(got, wanted)


@pytest.mark.parametrize("entities", [2, 20, 500])
def test_the_order_of_any_embeddings_never_changes_a_score(entities: int) -> None:
    """A sum of floats in another order would differ in the last bits now and then."""
    generator = torch.Generator().manual_seed(entities)
    count = 200 if entities < 500 else 3
    total = count * entities

    def side() -> ReportEntities:
        return ReportEntities(
            torch.arange(count + 1) * entities,
            torch.randint(-1, 2, (total,), generator=generator, dtype=torch.int8),
            torch.nn.functional.normalize(torch.randn(total, 9, generator=generator), dim=1),
            torch.randint(0, 5, (total,), generator=generator, dtype=torch.int8),
        )

    def shuffled(z: ReportEntities) -> ReportEntities:
        places = torch.rand(count, entities, generator=generator).argsort(1)
        rows = (places + torch.arange(count)[:, None] * entities).flatten()
        return ReportEntities(z.offsets, z.presence[rows], z.embedding[rows], z.kinds()[rows])

    x, y = side(), side()
    affinity = torch.rand(5, 5, generator=generator)
    wanted = entity_match(x, y, affinity=affinity)[4:]
    for got, first in zip(entity_match(shuffled(x), shuffled(y), affinity=affinity)[4:], wanted,
                          strict=True):  # fmt: skip
        assert torch.equal(got, first)


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
    assert float(entity_match(single(Entity(3, -1, 0)), y).score) == 1.0


def test_affinity_weighs_the_mean_and_takes_the_own_kind_first() -> None:
    x = single(Entity(0, 1, 0), Entity(3, 1, 1))
    y = single(Entity(0, 1, 1))
    affinity = torch.tensor([[0.5, 0.75], [0.25, 1.0]])
    match = entity_match(x, y, affinity=affinity)
    # Precision: cosines 1 and 0 with weights W[0, 1] and W[1, 1]; recall: W[1, 0] cancels.
    assert float(match.precision) == pytest.approx(0.75 / 1.75)
    assert float(match.recall) == 1.0
    assert float(match.score) == pytest.approx(2 * (0.75 / 1.75) / (1 + 0.75 / 1.75))


def test_of_equal_cosines_and_weights_the_larger_crossed_weight_counts() -> None:
    """With the tables of `entity_match` equal weights are equal when crossed; the op takes any."""
    x, (one, other) = single(Entity(0, 1, 0)), (Entity(0, 0, 0), Entity(0, 0, 1))
    weight, crossed = torch.ones(2, 2), torch.tensor([[0.25, 0.75], [0.5, 0.5]])
    for order in ((one, other), (other, one)):
        *_, scores = torch.ops.rrgkern.entity_match(*x, *single(*order), weight, crossed)
        assert scores[0, 0] == 0.75


def test_no_reports_at_all() -> None:
    match = entity_match(tensors([]), tensors([]))
    assert isinstance(match, EntityMatch)
    assert match.score.shape == (0,) and match.cosine_x.shape == (0, 3)


# The op at its boundary: dispatcher checks, compilation, odd inputs, errors, planted faults.
RNG = random.Random(5)
BATCH = [
    tuple(
        [
            Entity(RNG.randrange(12), RNG.choice([-1, 0, 1]), RNG.randrange(cases.KINDS))
            for _ in range(RNG.choice([0, 1, 4, 9]))
        ]
        for _ in range(2)
    )
    for _ in range(40)
]
X, Y = (tensors([pair[side] for pair in BATCH]) for side in (0, 1))
AFFINITY = torch.tensor([[0.43, 0.62, 0.003], [0.75, 0.29, 0.46], [0.84, 0.99, 0.85]])
CROSSED = (AFFINITY.double() * 0.3612).float()


def test_opcheck() -> None:
    torch.library.opcheck(torch.ops.rrgkern.entity_match.default, (*X, *Y, AFFINITY, CROSSED))


def test_compiles_without_a_graph_break() -> None:
    compiled = torch.compile(entity_match, fullgraph=True, backend="aot_eager")
    for field, wanted in zip(
        compiled(X, Y, affinity=AFFINITY), entity_match(X, Y, affinity=AFFINITY), strict=True
    ):
        assert torch.equal(field, wanted)


def test_strides_and_repeats_change_no_bit() -> None:
    expected = entity_match(X, Y, affinity=AFFINITY)
    strided = [
        z._replace(
            embedding=z.embedding.T.contiguous().T,
            presence=torch.stack([z.presence, z.presence], 1)[:, 0],
        )
        for z in (X, Y)
    ]
    assert not strided[0].embedding.is_contiguous() and not strided[0].presence.is_contiguous()
    table = AFFINITY.T.contiguous().T
    for field, wanted in zip(entity_match(*strided, affinity=table), expected, strict=True):
        assert torch.equal(field, wanted)


ONE = tensors([[Entity(0, 1, 0), Entity(1, 0, 2)]])


def row(values: list[float]) -> torch.Tensor:
    return torch.stack([ONE.embedding[0], torch.tensor(values)])


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"embedding": row([torch.nan, 0])}, ValueError, "x.embedding row 1 is NaN or infinite"),
        ({"embedding": torch.ones(2, 3)}, ValueError, "has width 3 and y.embedding 2"),
        ({"presence": ONE.presence + 1}, ValueError, "x.presence is 2 at row 0, wanted -1 to 1"),
        ({"kind": ONE.kind + 1}, ValueError, "x.kind is 3 at row 1, wanted 0 to 2"),
        ({"kind": None}, ValueError, "x.kind or y.kind is None"),
        ({"offsets": torch.tensor([0, 1])}, ValueError, "x.offsets runs from 0 to 1"),
        ({"offsets": torch.tensor([0, 1, 2])}, ValueError, r"y.offsets is int64 \[2\]"),
    ],
)
def test_wrong_tensors_are_named_in_one_line(changes, error, message) -> None:
    with pytest.raises(error, match=message) as raised:
        entity_match(ONE._replace(**changes), ONE, affinity=AFFINITY)
    assert "\n" not in str(raised.value)


def right(reference: object) -> bool:
    """Tell whether a reference matches as the definitions say."""
    results = reference.entity_match_reference(X, Y, MatchTables(AFFINITY, CROSSED))
    wanted = [cases.scores(x, y, AFFINITY.tolist(), 0.3612) for x, y in BATCH]
    best = [cases.best(entity, y, column) for x, y in BATCH for entity in x for column in range(3)]
    found = zip(results[0].flatten().tolist(), results[1].flatten().tolist(), strict=True)
    return cases.same_scores(results[4].tolist(), wanted) and list(found) == best


def test_planted_faults_die() -> None:
    assert not survivors(reference_module, "entity_match", right)


def test_gradients_stop_here() -> None:
    x = ReportEntities(ONE.offsets, ONE.presence, ONE.embedding.clone().requires_grad_())
    assert not entity_match(x, ONE).score.requires_grad
