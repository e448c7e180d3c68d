"""Two ranks read their shards: the weights of whole loading, in the memory of a shard."""

from __future__ import annotations

import pickle
import shutil
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch

from rrgpolicy.model.load import load_policy
from rrgpolicy.rollout import checkpoint_tensors
from rrgtrain.plan import Setup, machine_of, plan_stage
from tests.rrgpolicy.model.common import text_directory, tiny_directory
from tests.rrgpolicy.model.test_whole import IN_FILE, SPOILT, tensors, told
from tests.rrgpolicy.ranks.loading_suite import OPTIONS
from tests.rrgtrain.common import recipe
from tests.rrgtrain.run.test_scale_runs import RUN
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
    done = on_ranks(str(out), *words, cwd=home, main="tests.rrgpolicy.ranks.loading_suite")
    assert [d.status for d in done] == [0, 0], done[0].err + done[1].err
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
def test_the_plan_knows_what_a_start_needs(
    found: Found, home: Path, name: str, options: str
) -> None:
    chosen = OPTIONS[options]
    words = [f"policy.path={home / name}", f"policy.dtype={chosen.get('dtype', 'float32')}"]
    words.append(f"policy.freeze_vision={str(chosen.get('freeze_vision', False)).lower()}")
    plan = plan_stage(Setup.of(recipe(*words), machine_of("cpu"), 2), "rl")
    (start,) = [part.bytes["start"] for part in plan.device if part.name == "weights as loaded"]
    assert found[1][f"{name}, {options}"].ready == pytest.approx(start, rel=0.1)


def test_a_reference_is_copied_by_shards(found: Found) -> None:
    assert [of_rank["reference"] for of_rank in found] == [[], []]


@pytest.mark.parametrize("name", BAD)
def test_every_rank_has_the_line_of_one_process(
    found: Found, home: Path, name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
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


def test_a_run_on_a_spoilt_checkpoint_leaves_nothing(tmp_path: Path) -> None:
    policy = Path(shutil.copytree(tiny_directory(), tmp_path / "policy"))
    tensors(lambda state: state[IN_FILE][0].fill_(torch.nan))(policy)
    words = [word if word != "tiny" else str(policy) for word in RUN]
    done = on_ranks(*words, "scale.mode=fsdp2", cwd=tmp_path)
    assert [d.status for d in done] == [2, 2], done[0].err
    shared, line = [line for line in done[0].err.splitlines() if line.startswith("rrgtrain: ")]
    assert "prompts are shared by a packed row" in shared
    assert "holds NaN or infinity; copy the checkpoint again" in line and done[1].err == ""
    assert not (tmp_path / "run" / "config.yaml").exists()
