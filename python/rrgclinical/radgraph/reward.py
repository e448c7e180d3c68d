"""RadGraph-F1 of two graphs (Jain et al., 2021; Delbrouck et al., 2022).

"RadGraph-F1" without a level is `partial`, also called RG_ER: EditGRPO's reward.
"""

from __future__ import annotations

from typing import NamedTuple

from rrgclinical.radgraph.graph import Graph

CASES = ("pypi", "master")


class RadGraphF1(NamedTuple):
    """F1 over the distinct items of a report, at three levels.

    simple: (text, label) of each entity; partial: and whether it has a relation; complete: and
    what each relation says.
    """

    simple: float
    partial: float
    complete: float


def radgraph_f1(candidate: Graph, reference: Graph, *, case: str = "pypi") -> RadGraphF1:
    """0 at every level where either graph has no entity.

    Args:
        candidate: of the report that is scored.
        reference: of the report that it is held against.
        case: "pypi" as the package that pip installs (0.1.18), which lower-cases nothing but
            entities with relations at level complete; "master" as its repository since July 2026,
            which lower-cases everything. Both call themselves 0.1.18.

    Raises:
        ValueError: another case.
    """
    if case not in CASES:
        raise ValueError(f"case is {case!r}, wanted {' or '.join(map(repr, CASES))}")
    pairs = zip(_items(candidate, case), _items(reference, case), strict=True)
    return RadGraphF1(*(_f1(one, other) for one, other in pairs))


def _items(graph: Graph, case: str) -> tuple[set[tuple], set[tuple], set[tuple]]:
    simple: set[tuple] = set()
    partial: set[tuple] = set()
    complete: set[tuple] = set()
    for entity in graph.entities:
        text = entity.tokens.lower() if case == "master" else entity.tokens
        simple.add((text, entity.label))
        if not entity.relations:
            partial.add((text, entity.label))
            complete.add((text, entity.label))
            continue
        partial.add((text, entity.label, True))
        for relation, other in entity.relations:
            target = graph.entities[other].tokens.lower()
            complete.add((entity.tokens.lower(), entity.label, relation, target))
    return simple, partial, complete


def _f1(candidate: set[tuple], reference: set[tuple]) -> float:
    common = len(candidate & reference)
    if not common:
        return 0.0
    precision, recall = common / len(candidate), common / len(reference)
    return 2 * precision * recall / (precision + recall)
