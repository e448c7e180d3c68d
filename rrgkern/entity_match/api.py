"""Match the entities of reports with those of their references: the public function."""

from __future__ import annotations

import torch
from torch import Tensor

from rrgkern.checks import check_device, check_layout, check_number, check_record, check_tensors
from rrgkern.entity_match.inputs import EntityMatch, ReportEntities
from rrgkern.entity_match.op import entity_match_op


def entity_match(
    x: ReportEntities,
    y: ReportEntities,
    *,
    affinity: Tensor | None = None,
    neg_weight: float = 0.3612,
) -> EntityMatch:
    """Match every entity with the other report: best cosine, precision, recall and score.

    The score is RaTEScore's (Zhao et al., EMNLP 2024): each entity takes its best match among all
    entities of the other report; precision = Σ cos·W·p / Σ W over the entities of x, with W the
    affinity of the two kinds, the entity's own first, and p = `neg_weight` where one is present
    and the other absent, else 1; recall likewise over y; score = their harmonic mean. (The
    package calls the side of the reference "precision"; the score is the same.) Among matches
    with equal cosine the score takes one that does not cross presence, and then the heaviest, so
    that no order of the entities changes it; the index reported is the lowest. Where a report has
    no entity all three are 0.5, in place: no report is skipped. Nothing is differentiable.

    Cosines are dot products of the rows as given, in fp64 in a fixed order, rounded once to fp32:
    the same bits on every device.

    Args:
        x: R reports.
        y: R references, pair by pair.
        affinity: [K, K] finite weights >= 0 over kinds, any floating dtype; without it every weight
            is 1 and no kind is read.
        neg_weight: 0.3612 in RaTEScore 0.4 and 0.5 (EditGRPO) and for short reports in 0.6,
            0.8717 for long reports in 0.6.

    Raises:
        TypeError: x or y is no ReportEntities, a field or option has the wrong type or dtype.
        ValueError: shapes or devices disagree, kinds or affinity are missing or out of range, an
            embedding is no unit vector (NaN and zero rows are named). Values on a GPU are checked
            under RRGKERN_CHECK=1 only.
    """
    check_record("x", x, ReportEntities)
    check_record("y", y, ReportEntities)
    check_tensors(optional={"affinity": affinity})
    check_number("neg_weight", neg_weight)
    if not 0 <= neg_weight < float("inf"):
        raise ValueError(f"neg_weight is {neg_weight}, wanted a finite number, at least 0")
    if affinity is None:
        affinity = torch.ones(1, 1, device=x.embedding.device)
        x, y = x._replace(kind=None), y._replace(kind=None)
    elif x.kind is None or y.kind is None:
        raise ValueError("x.kind or y.kind is None, wanted int8 [E] both: affinity weighs kinds")
    elif affinity.ndim != 2 or affinity.shape[0] != affinity.shape[1] or not len(affinity):
        raise ValueError(f"affinity is {list(affinity.shape)}, wanted square [K, K]")
    x, y = checked("x", x, x.offsets.numel()), checked("y", y, x.offsets.numel())
    if x.embedding.shape[1] != y.embedding.shape[1]:
        raise ValueError(
            f"x.embedding has width {x.embedding.shape[1]} and y.embedding {y.embedding.shape[1]}, "
            "wanted one width: embed both with one model"
        )
    for name, tensor in (("y", y.embedding), ("affinity", affinity)):
        check_device(name, tensor, "x", x.embedding)
    crossed = (affinity.double() * neg_weight).float()
    cosine_x, index_x, cosine_y, index_y, scores = entity_match_op(
        *x, *y, affinity.float(), crossed
    )
    return EntityMatch(cosine_x, index_x, cosine_y, index_y, *scores.unbind(1))


def checked(name: str, z: ReportEntities, offsets: int) -> ReportEntities:
    """Make embeddings fp32 and kinds a tensor, or raise what is wrong."""
    entities = z.presence.shape[:1]
    wanted = (
        ("offsets", (torch.int64,), (offsets,)),
        ("presence", (torch.int8,), entities),
        ("embedding", (torch.float32, torch.float16, torch.bfloat16), (*entities, -1)),
        ("kind", (torch.int8,), entities),
    )
    z = z._replace(kind=z.kinds())
    for field, dtypes, shape in wanted:
        tensor = getattr(z, field)
        anchor = (f"{name}.presence", z.presence)
        check_layout(f"{name}.{field}", tensor, dtypes, shape, *anchor)
    return z._replace(embedding=z.embedding.detach().float())
