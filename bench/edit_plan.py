"""Edit plans for one step of EditGRPO: 160 sampled reports of six sentences."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from bench.harness import Bench
from rrgkern import EditScript, SentenceEntities, edit_plan
from rrgkern.edit_plan.reference import edit_plan_reference

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
CONCEPTS = 30

bench = Bench("edit_plan")


@bench.provider("eager")
def eager(x: SentenceEntities, y: SentenceEntities, seeds: Tensor, max_edits: int) -> Any:
    width = max_edits or int((x.sentence_offsets.diff() + y.sentence_offsets.diff()).max())
    return edit_plan_reference(x, y, seeds, 0.6, 0.6, max_edits, width, True)


@bench.provider("rrgkern")
def ours(x: SentenceEntities, y: SentenceEntities, seeds: Tensor, max_edits: int) -> EditScript:
    return edit_plan(x, y, seeds=seeds, max_edits=max_edits or None)


def reports(count: int, sentences: int, entities: int, width: int, seed: int) -> SentenceEntities:
    """Random findings: concepts at random directions, a third of the texts shared."""
    generator = torch.Generator().manual_seed(seed)
    directions = torch.randn(CONCEPTS, width, generator=torch.Generator().manual_seed(0))
    concept = torch.randint(0, CONCEPTS, (count * entities,), generator=generator)
    presence = torch.randint(-1, 2, concept.shape, generator=generator, dtype=torch.int8)
    fields = (
        torch.arange(count + 1) * sentences,
        torch.randint(0, 3 * sentences, (count * sentences,), generator=generator),
        torch.arange(count + 1) * entities,
        torch.randint(0, sentences, concept.shape, generator=generator),
        presence,
        concept * 3 + presence,
        torch.nn.functional.normalize(directions, dim=1)[concept],
    )
    return SentenceEntities(*(field.to(DEVICE) for field in fields))


@pytest.mark.parametrize("max_edits", [1, 0], ids=["one", "fixed-point"])
def test_edit_plan(benchmark, max_edits):
    count, sentences, entities, width = 160, 6, 12, 768

    def make_inputs(seed: int) -> tuple[Any, ...]:
        x, y = (reports(count, sentences, entities, width, 2 * seed + k) for k in range(2))
        return x, y, torch.arange(count, device=DEVICE), max_edits

    pairs = count * (2 * entities) * (2 * entities + 1) // 2
    bench.compare(
        benchmark,
        make_inputs,
        shape={"reports": count, "sentences": sentences, "entities": entities, "width": width},
        dtype=torch.float32,
        case="one edit" if max_edits else "to the fixed point",
        bytes_moved=2 * count * entities * width * 4,
        flops=2 * width * pairs,
    )
