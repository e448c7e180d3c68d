"""Two nodes of two ranks compute what one process computes, and read each other's checkpoints.

The four ranks are started once, by an agent of torchrun for each node; `node_suite` is what they
compute.
"""

from __future__ import annotations

import pickle
from typing import Any

import pytest
import torch

from rrgclinical.common.errors import UserError
from rrgpolicy.ranks import nodes, ranks
from tests.rrgpolicy.ranks.node_suite import CHOSEN, LAYOUTS, READINGS
from tests.rrgpolicy.ranks.test_scale_gradients import compared
from tests.rrgtrain.nodes import on_nodes


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    home = tmp_path_factory.mktemp("nodes")
    done = on_nodes(str(home), cwd=home, main="tests.rrgpolicy.ranks.node_suite")
    reports = [(home / f"node{k}" / "err.txt").read_text()[-3000:] for k in range(2)]
    assert [d.status for d in done] == [0] * 4, [d.err[-3000:] for d in done] + reports
    values: dict[str, Any] = pickle.loads((home / "found").read_bytes())
    return values


def test_weights_are_sharded_within_a_node_and_rollouts_gather_there(found: dict[str, Any]) -> None:
    for values in found["together"]["of ranks"]:
        assert values["nodes"] == 2 and values["mesh"] == (2, 2)
        assert values["ranks"] == [[0, 1], [2, 3]], "the ranks of a node share a copy"
        assert values["gathers"] == {2}, "a rollout gathers within the node only"
        assert 0.4 < values["share"] < 0.6


@pytest.mark.parametrize("case", [*CHOSEN, "LoRA"])
def test_gradients_are_those_of_one_process(found: dict[str, Any], case: str) -> None:
    alone, both = (found[who]["updates"][case] for who in ("alone", "together"))
    compared(alone, both, 1e-9)


def test_in_bf16_each_rank_rounds_and_the_sum_over_nodes_does_not(found: dict[str, Any]) -> None:
    alone, both = (found[who]["updates"] for who in ("alone", "together"))
    compared(alone["bf16"], both["bf16"], 2**-5)  # three ranks round a group each
    compared(both["bf16, 4x1"], both["bf16"], 1e-6)  # gradients are summed in fp32


@pytest.mark.parametrize("kind", ["model", "adapter off", "second adapter"])
def test_a_sharded_reference_gives_the_log_probabilities_of_a_whole_one(
    found: dict[str, Any], kind: str
) -> None:
    alone, both = (found[who]["references"] for who in ("alone", "together"))
    assert bool((alone[kind] < 0).any())
    assert not torch.allclose(alone[kind], alone[f"{kind}, old"], atol=1e-3), "it is the policy"
    torch.testing.assert_close(both[kind], alone[kind], rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(both[f"{kind}, old"], alone[f"{kind}, old"], rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_clipped_step_ends_at_the_same_norm_weights_and_moments(
    found: dict[str, Any], layout: str
) -> None:
    assert found["together"][f"norm, {layout}"] == pytest.approx(found["alone"]["norm"], rel=1e-12)
    alone, both = found["states"]["1"], found["states"][layout]
    assert alone.keys() == both.keys()
    for name, value in alone.items():
        # Adam divides by the gradient's size, so what is near 0 is told apart by its rounding
        torch.testing.assert_close(both[name], value, rtol=1e-6, atol=1e-8, msg=name)


def test_a_checkpoint_of_one_layout_is_read_on_another_to_the_same_bits(
    found: dict[str, Any],
) -> None:
    assert set(found["readings"]) == {*READINGS}
    for (source, onto), values in found["readings"].items():
        wanted = found["states"][source]
        assert values.keys() == wanted.keys()
        for name, value in wanted.items():
            assert torch.equal(values[name], value), (source, onto, name)


@pytest.mark.parametrize(
    ("here", "asked", "wanted"),
    [
        ([8], None, 8),
        ([4, 4], None, 4),
        ([2, 2, 2], None, 2),
        ([4, 4], 8, 8),
        ([8], 2, 2),
        ([6, 2], 4, 4),
        ([4, 4], 3, "scale.shard=3 does not divide 8 processes; use one of 1, 2, 4, 8"),
        ([6, 2], None, "nodes have 2 and 6 processes; start as many on each, or set scale.shard"),
    ],
)
def test_who_shares_a_copy(
    here: list[int], asked: int | None, wanted: int | str, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = {
        "processes_here": [n for n in here for _ in range(n)],
        "is_first_here": [k == 0 for n in here for k in range(n)],
    }
    monkeypatch.setattr(ranks, "size", lambda: sum(here))
    for name in answers:
        monkeypatch.setattr(nodes, name, lambda name=name: name)
    monkeypatch.setattr(ranks, "gather", answers.__getitem__)
    if isinstance(wanted, int):
        assert nodes.shard_size(asked) == wanted
    else:
        with pytest.raises(UserError, match=wanted):
            nodes.shard_size(asked)


@pytest.mark.parametrize("asked", ["auto", "cuda"])
def test_a_gpu_is_named_with_its_index(asked: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """ "cuda" alone is GPU 0 in every new thread: the rewards' and those that read weights."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 5)
    assert nodes.own_device(asked) == "cuda:5"
    assert [nodes.own_device(named) for named in ("cpu", "cuda:1")] == ["cpu", "cuda:1"]
