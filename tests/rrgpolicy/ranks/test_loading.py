"""Ranks read their shards, and two nodes of two ranks compute what one process computes."""

from __future__ import annotations

import pickle
import shutil
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch

from rrgclinical.common.errors import UserError
from rrgpolicy.model.load import load_policy
from rrgpolicy.ranks import nodes, ranks
from rrgpolicy.rollout import checkpoint_tensors
from rrgtrain.plan import Setup, machine_of, plan_stage
from tests.rrgpolicy.model.common import text_directory, tiny_directory
from tests.rrgpolicy.model.test_whole import SPOILT, tensors, told
from tests.rrgpolicy.ranks.loading_suite import OPTIONS
from tests.rrgpolicy.ranks.node_suite import CHOSEN, LAYOUTS, READINGS
from tests.rrgpolicy.ranks.test_scale_ranks import compared
from tests.rrgtrain.common import recipe
from tests.rrgtrain.nodes import on_nodes
from tests.rrgtrain.runs import on_ranks

GOOD = ("tiny", "in parts", "text")
BAD = ("missing", "nan", "shape", "truncated", "another layer")
SMALL = 1 << 14
HEAD, EMBEDDING = "lm_head.weight", "model.embed_tokens.weight"

Found = list[dict[str, Any]]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("loading")


@pytest.fixture(scope="module")
def found(home: Path) -> Found:
    """Return what each rank has found."""
    good = [home / name for name in GOOD]
    shutil.copytree(tiny_directory(), good[0])
    shutil.copytree(text_directory(), good[2])
    shutil.copytree(tiny_directory(), good[1])
    (good[1] / "model.safetensors").unlink()
    # of odd rows, which two ranks share unevenly
    load_policy(tiny_directory()).model.save_pretrained(good[1], max_shard_size="40KB")
    assert len(list(good[1].glob("*.safetensors"))) > 3
    spoilt = []
    for name in BAD:
        spoilt.append(Path(shutil.copytree(tiny_directory(), home / name)))
        SPOILT[name][0](spoilt[-1])
    out = home / "found"
    words = [*map(str, good), "--", *map(str, spoilt)]
    main = "tests.rrgpolicy.ranks.loading_suite"
    on_ranks(str(out), *words, cwd=home, main=main, statuses=[0, 0])
    return [pickle.loads(Path(f"{out}-{rank}").read_bytes()) for rank in range(2)]


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("name", GOOD)
def test_shards_are_those_of_whole_loading(found: Found, name: str, options: str) -> None:
    for rank, of_rank in enumerate(found):
        loaded = of_rank[f"{name}, {options}"]
        assert loaded.differences == []
        assert 0 < loaded.filled <= loaded.held + loaded.largest + SMALL < loaded.whole
        assert (loaded.reads > 0) == (rank == 0), "one rank reads the files"


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("name", GOOD)
def test_the_plan_knows_what_a_start_needs(found, home, name, options):
    chosen = OPTIONS[options]
    words = [f"policy.path={home / name}", f"policy.dtype={chosen.get('dtype', 'float32')}"]
    words.append(f"policy.freeze_vision={str(chosen.get('freeze_vision', False)).lower()}")
    plan = plan_stage(Setup.of(recipe(*words), machine_of("cpu"), 2), "rl")
    (start,) = [part.bytes["start"] for part in plan.device if part.name == "weights as loaded"]
    assert found[1][f"{name}, {options}"].ready == pytest.approx(start, rel=0.1)


def test_a_reference_is_copied_by_shards(found: Found) -> None:
    assert [of_rank["reference"] for of_rank in found] == [[], []]


@pytest.mark.parametrize("name", BAD)
def test_every_rank_has_the_line_of_one_process(found, home, name, tmp_path, capfd):
    alone = told(tiny_directory(), SPOILT[name][0], tmp_path, capfd)
    line = alone.replace(str(tmp_path / "copy"), str(home / name))
    assert [of_rank[f"spoilt, {name}"] for of_rank in found] == [line, line]


@pytest.mark.parametrize("factor", [1.0, 2.0])
def test_a_head_is_tied_where_it_is_the_embedding(tmp_path: Path, factor: float) -> None:
    path = Path(shutil.copytree(tiny_directory(), tmp_path / "policy"))
    tensors(lambda state: state.update({HEAD: factor * state[EMBEDDING]}))(path)
    warned = pytest.warns(UserWarning, match="read one by one") if factor != 1.0 else nullcontext()
    with warned:
        policy = load_policy(path, unread=True)
    assert policy.layout.unread == (factor == 1.0)
    head, embedding = policy.backbone.lm_head.weight, policy.language_model.embed_tokens.weight
    assert (head is embedding) == (factor == 1.0)
    if factor != 1.0:
        torch.testing.assert_close(head, factor * embedding, rtol=0, atol=0)
    # as a sampler is told
    assert (HEAD in checkpoint_tensors(policy)) == (factor != 1.0)
    assert policy.config.tie_word_embeddings == (factor == 1.0)


@pytest.fixture(scope="module")
def of_nodes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    home = tmp_path_factory.mktemp("nodes")
    done = on_nodes(str(home), cwd=home, main="tests.rrgpolicy.ranks.node_suite")
    reports = [(home / f"node{k}" / "err.txt").read_text()[-3000:] for k in range(2)]
    assert [d.status for d in done] == [0] * 4, [d.err[-3000:] for d in done] + reports
    values: dict[str, Any] = pickle.loads((home / "found").read_bytes())
    return values


def test_weights_are_sharded_within_a_node_and_rollouts_gather_there(of_nodes):
    for values in of_nodes["together"]["of ranks"]:
        assert values["nodes"] == 2 and values["mesh"] == (2, 2)
        assert values["ranks"] == [[0, 1], [2, 3]], "the ranks of a node share a copy"
        assert values["gathers"] == {2}, "a rollout gathers within the node only"
        assert 0.4 < values["share"] < 0.6


@pytest.mark.parametrize("case", [*CHOSEN, "LoRA"])
def test_gradients_are_those_of_one_process(of_nodes: dict[str, Any], case: str) -> None:
    alone, both = (of_nodes[who]["updates"][case] for who in ("alone", "together"))
    compared(alone, both, 1e-9)


def test_in_bf16_each_rank_rounds_and_the_sum_over_nodes_does_not(of_nodes: dict[str, Any]) -> None:
    alone, both = (of_nodes[who]["updates"] for who in ("alone", "together"))
    compared(alone["bf16"], both["bf16"], 2**-5)  # three ranks round a group each
    compared(both["bf16, 4x1"], both["bf16"], 1e-6)  # gradients are summed in fp32


@pytest.mark.parametrize("kind", ["model", "adapter off", "second adapter"])
def test_a_sharded_reference_gives_the_log_probabilities_of_a_whole_one(of_nodes, kind):
    alone, both = (of_nodes[who]["references"] for who in ("alone", "together"))
    assert bool((alone[kind] < 0).any())
    assert not torch.allclose(alone[kind], alone[f"{kind}, old"], atol=1e-3), "it is the policy"
    torch.testing.assert_close(both[kind], alone[kind], rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(both[f"{kind}, old"], alone[f"{kind}, old"], rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_clipped_step_ends_at_the_same_norm_weights_and_moments(of_nodes, layout):
    assert of_nodes["together"][f"norm, {layout}"] == pytest.approx(
        of_nodes["alone"]["norm"], rel=1e-12
    )
    alone, both = of_nodes["states"]["1"], of_nodes["states"][layout]
    assert alone.keys() == both.keys()
    for name, value in alone.items():
        # Adam divides by the gradient's size, so what is near 0 is told apart by its rounding
        torch.testing.assert_close(both[name], value, rtol=1e-6, atol=1e-8, msg=name)


def test_a_checkpoint_of_one_layout_is_read_on_another_to_the_same_bits(of_nodes):
    assert set(of_nodes["readings"]) == {*READINGS}
    for (source, onto), values in of_nodes["readings"].items():
        wanted = of_nodes["states"][source]
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
def test_who_shares_a_copy(here, asked, wanted, monkeypatch):
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
