"""Planning the edits of a batch of report pairs: the compiled plan against the reference."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from bench.harness import Bench
from rrgkern import EditScript, SentenceEntities, edit_plan
from rrgkern.edit_plan.reference import edit_plan_reference

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
SENTENCES, PER_SENTENCE, WIDTH, CONCEPTS = 6, 3, 64, 40
TAU = 0.6

bench = Bench("edit_plan", baseline="reference")


def reports(pairs: int, generator: torch.Generator) -> SentenceEntities:
    """Reports whose entities are drawn from shared concepts, so that every rule finds work."""
    count = pairs * SENTENCES * PER_SENTENCE
    concepts = torch.nn.functional.normalize(
        torch.randn(CONCEPTS, WIDTH, generator=torch.Generator().manual_seed(0)), dim=1
    )
    concept = torch.randint(0, CONCEPTS, (count,), generator=generator)
    presence = torch.randint(0, 2, (count,), generator=generator, dtype=torch.int8)
    # A sentence is named by what it says, so equal sentences have equal keys.
    says = (2 * concept + presence).view(-1, PER_SENTENCE)
    key = (says * torch.tensor([10_000, 100, 1])).sum(1)
    place = torch.arange(SENTENCES).repeat_interleave(PER_SENTENCE).repeat(pairs)
    made = SentenceEntities(
        sentence_offsets=torch.arange(pairs + 1) * SENTENCES,
        sentence_key=key,
        entity_offsets=torch.arange(pairs + 1) * SENTENCES * PER_SENTENCE,
        entity_sentence=place,
        presence=presence,
        key=2 * concept + presence,
        embedding=concepts[concept],
    )
    return SentenceEntities(*(t.to(DEVICE) for t in made[:7]))


@bench.provider("reference", device="cpu")
def reference(x: SentenceEntities, y: SentenceEntities, seeds: Tensor) -> tuple[Tensor, ...]:
    return edit_plan_reference(x, y, seeds, TAU, TAU, 1, 1, True)


@bench.provider("rrgkern")
def ours(x: SentenceEntities, y: SentenceEntities, seeds: Tensor) -> EditScript:
    return edit_plan(x, y, seeds=seeds, tau=TAU)


@pytest.mark.parametrize("pairs", [32, 320])
def test_edit_plan(benchmark, pairs):
    def make_inputs(seed: int) -> tuple[SentenceEntities, SentenceEntities, Tensor]:
        generator = torch.Generator().manual_seed(seed)
        x, y = reports(pairs, generator), reports(pairs, generator)
        return x, y, torch.arange(pairs, dtype=torch.int64, device=DEVICE)

    bench.compare(
        benchmark,
        make_inputs,
        shape={"pairs": pairs, "sentences": SENTENCES, "width": WIDTH},
        dtype=torch.float32,
        rounds=5,
    )
