"""The op at its boundary: dispatcher checks, compilation, odd inputs, errors, planted faults."""

from __future__ import annotations

import random

import pytest
import torch

from rrgkern import ReportEntities, entity_match
from rrgkern import cosines as cosines_module
from rrgkern.entity_match import reference as reference_module
from rrgkern.entity_match.inputs import MatchTables
from tests.mutants import mutate
from tests.rrgkern.entity_match import cases
from tests.rrgkern.entity_match.cases import Entity, tensors

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


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_embeddings_are_read_as_they_are(dtype: torch.dtype) -> None:
    x, y = (z._replace(embedding=z.embedding.to(dtype)) for z in (X, Y))
    wide = [z._replace(embedding=z.embedding.float()) for z in (x, y)]
    for field, wanted in zip(entity_match(x, y), entity_match(*wide), strict=True):
        assert torch.equal(field, wanted)


ONE = tensors([[Entity(0, 1, 0), Entity(1, 0, 2)]])


def row(values: list[float]) -> torch.Tensor:
    return torch.stack([ONE.embedding[0], torch.tensor(values)])


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"embedding": row([torch.nan, 0])}, ValueError, "x.embedding row 1 is NaN or infinite"),
        ({"embedding": row([torch.inf, 0])}, ValueError, "x.embedding row 1 is NaN or infinite"),
        ({"embedding": row([0, 0])}, ValueError, "x.embedding row 1 is of length 0, wanted a unit"),
        ({"embedding": row([1, 1])}, ValueError, "x.embedding row 1 is of length 1.414"),
        ({"embedding": torch.ones(2, 3)}, ValueError, "has width 3 and y.embedding 2"),
        ({"embedding": torch.ones(2)}, ValueError, r"x.embedding is float32 \[2\]"),
        ({"embedding": ONE.embedding.double()}, TypeError, "x.embedding is float64"),
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


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"neg_weight": -0.1}, "neg_weight is -0.1"),
        ({"neg_weight": float("inf")}, "neg_weight is inf, wanted a finite number"),
        ({"affinity": torch.ones(2, 3)}, r"affinity is \[2, 3\], wanted square"),
        ({"affinity": torch.ones(0, 0)}, r"affinity is \[0, 0\], wanted square"),
        ({"affinity": torch.full((3, 3), -1.0)}, r"affinity is -1.0 at \[0, 0\], wanted a finite"),
        ({"affinity": torch.full((3, 3), torch.nan)}, r"affinity is nan at \[0, 0\]"),
        ({"affinity": torch.full((3, 3), 1e38), "neg_weight": 10.0}, r"neg_weight is inf at"),
    ],
)
def test_wrong_options_are_named(options, message) -> None:
    with pytest.raises(ValueError, match=message):
        entity_match(ONE, ONE, **options)


def right(reference: object) -> bool:
    """Tell whether a reference matches as the definitions say."""
    results = reference.entity_match_reference(X, Y, MatchTables(AFFINITY, CROSSED))
    wanted = [cases.scores(x, y, AFFINITY.tolist(), 0.3612) for x, y in BATCH]
    best = [cases.best(entity, y, column) for x, y in BATCH for entity in x for column in range(3)]
    found = zip(results[0].flatten().tolist(), results[1].flatten().tolist(), strict=True)
    return cases.same_scores(results[4].tolist(), wanted) and list(found) == best


def test_the_reference_itself_is_right() -> None:
    assert right(reference_module)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("NO_ENTITIES = 0.5", "NO_ENTITIES = 0.0"),
        ("(best_y, columns, cosine.T, side_y, side_x)", "(best_y, rows, cosine, side_x, side_y)"),
        ("& (mine[:, None] >= 0)", ""),
        ("(mine >= 0) & (theirs >= 0) & (mine != theirs)", "mine != theirs"),
        ("tables.crossed[kinds], shares)", "shares, shares)"),
        ("shares = tables.weight[kinds]", "shares = tables.weight[kinds[::-1]]"),
        ("round(value * gain * scale)", "round(value * scale)"),
        ("float(total) / float(mass)", "float(total) / scale / len(cosine)"),
        ("(-crosses.float(), shares, gains)", "(shares, gains)"),
        ("(-crosses.float(), shares, gains)", "(-crosses.float(),)"),
        ("2 * precision * recall / both", "both / 2"),
        ("masked_fill(~eligible, -torch.inf)", "masked_fill(~eligible, 0.0)"),
    ],
)
def test_planted_faults_die(old: str, new: str) -> None:
    assert not right(mutate(reference_module, old, new))


@pytest.mark.parametrize(
    ("old", "new"),
    [("total[..., :width] + total[..., width:]", "total[..., :width]"), ("rows.double()", "rows")],
)
def test_faults_in_the_sum_die(old: str, new: str) -> None:
    mutant = mutate(cosines_module, old, new)
    rows = torch.nn.functional.normalize(
        torch.randn(6, 768, generator=torch.Generator().manual_seed(1)), dim=1
    )
    truth = (rows.double() @ rows.double().T).float()
    assert torch.equal(cosines_module.cosines(*[cosines_module.lanes_of(rows)] * 2), truth)
    assert not torch.equal(mutant.cosines(*[mutant.lanes_of(rows)] * 2), truth)


def test_gradients_stop_here() -> None:
    x = ReportEntities(ONE.offsets, ONE.presence, ONE.embedding.clone().requires_grad_())
    assert not entity_match(x, ONE).score.requires_grad
