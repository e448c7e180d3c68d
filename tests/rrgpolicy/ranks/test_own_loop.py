"""`shared_prefix_logps` in a loop of one's own under FSDP2, on two ranks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.rrgpolicy.ranks.own_loop_suite import ARRANGEMENTS, DRY, KINDS, policy_of, trained_of
from tests.rrgtrain.runs import on_ranks


@pytest.fixture(scope="module")
def cells(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Return what each rank has found."""
    home = tmp_path_factory.mktemp("own-loop")
    done = on_ranks(str(home / "out"), cwd=home, main="tests.rrgpolicy.ranks.own_loop_suite")
    assert [d.status for d in done] == [0, 0], done[0].err + done[1].err
    return [json.loads(Path(home / f"out-{rank}").read_text()) for rank in range(2)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("arrangement", ARRANGEMENTS)
def test_a_probed_model_trains_as_without_shards(cells, arrangement: str, kind: str) -> None:
    start = torch.cat([p.detach().float().flatten() for p in trained_of(policy_of(kind))])
    ends = []
    for rank in cells:
        got, plain = rank[f"{arrangement}/{kind}"], rank[f"plain/{kind}"]
        assert got["losses"] == pytest.approx(plain["losses"], abs=1e-5 if kind == "fp32" else 5e-3)
        way = torch.tensor(plain["weights"]) - start
        gap = (torch.tensor(got["weights"]) - start - way).norm() / way.norm()
        assert way.abs().max() > 0.001 and gap < (1e-4 if kind == "fp32" else 0.1)
        ends.append(got["weights"])
    assert ends[0] == ends[1]


@pytest.mark.parametrize("arrangement", ARRANGEMENTS)
def test_a_model_is_probed_before_it_is_sharded(cells, arrangement: str) -> None:
    for rank in cells:
        late, plain = rank[f"{arrangement}/late"], rank["plain/fp32"]
        if arrangement == "loss":  # its forward gathers the weights, and such can be probed
            assert late["losses"] == pytest.approx(plain["losses"], abs=1e-5)
        else:
            assert "probe_shared_prefix(model, prompts) once before fully_shard" in late["refused"]


@pytest.mark.parametrize("trap", DRY)
def test_a_dry_step_names_the_traps_of_ranks(cells, trap: str) -> None:
    assert [rank[f"dry/{trap}"] for rank in cells] == [DRY[trap]] * 2
