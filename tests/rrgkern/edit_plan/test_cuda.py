"""A GPU plans as the CPU does, bit for bit."""

from __future__ import annotations

import pytest
import torch

from rrgkern import SentenceEntities, csrc, dispatch, edit_plan
from tests.rrgkern.edit_plan.cases import random_pair
from tests.rrgkern.edit_plan.test_twin import scattered, table, with_kinds

pytestmark = pytest.mark.gpu
PAPER = [
    {"max_edits": max_edits, "conflict_requires_spurious": strict, "tau": tau}
    for max_edits in (1, 3, None)
    for strict in (True, False)
    for tau in (0.6, 0.95)
]
RELEASED = [{"rule": "released", "tau": tau, "affinity": table(3)} for tau in (0.3, 0.6, 0.9)]


def on_gpu(z: SentenceEntities, offsets: str) -> SentenceEntities:
    return SentenceEntities(
        *(
            tensor.to(offsets if name.endswith("offsets") else "cuda")
            for name, tensor in zip(z._fields, z, strict=True)
        )
    )


# (pairs, sentences, texts): the last do not fit into the shared memory of a block.
@pytest.mark.parametrize(("pairs", "sentences", "texts"), [(400, 8, 12), (1, 3, 4), (5, 90, 120)])
@pytest.mark.parametrize("width", [2, 33, 768])
@pytest.mark.parametrize("offsets", ["cuda", "cpu"])
def test_scripts_are_equal(pairs: int, sentences: int, texts: int, width: int, offsets: str):
    assert csrc.why_not("edit_plan", "cuda") is None, "build the extension for this GPU first"
    assert dispatch.served_by("rrgkern::edit_plan_released", "cuda") == "csrc edit_plan"
    batch = [random_pair(seed, sentences, texts) for seed in range(pairs)]
    x, y = (with_kinds([pair[k] for pair in batch], k) for k in (0, 1))
    if width > 2:
        x, y = scattered(x, width, 1), scattered(y, width, 2)
    seeds = torch.arange(pairs) - 7
    for options in PAPER + RELEASED:
        moved = {k: v.cuda() if isinstance(v, torch.Tensor) else v for k, v in options.items()}
        there = (on_gpu(x, offsets), on_gpu(y, offsets))
        for _ in range(2):
            script = edit_plan(*there, seeds=seeds.cuda(), **moved)
            for field, wanted in zip(script, edit_plan(x, y, seeds=seeds, **options), strict=True):
                assert torch.equal(field.cpu(), wanted)


def test_no_reports_at_all() -> None:
    x = on_gpu(with_kinds([], 0), "cuda")
    for rule in ("paper", "released"):
        assert edit_plan(x, x, seeds=torch.arange(0).cuda(), rule=rule).count.shape == (0,)
