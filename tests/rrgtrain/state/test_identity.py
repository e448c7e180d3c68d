"""A resume believes its own config.yaml alone, and reads what more or fewer ranks have written."""

from __future__ import annotations

import json
import shutil
from collections import OrderedDict
from pathlib import Path

import numpy as np
import pytest
import torch

from rrgpolicy.ranks.rng import random_states, set_random_states
from rrgtrain.config import dump_config, load_config
from rrgtrain.errors import UserError
from rrgtrain.schema import Recipe
from rrgtrain.state.identity import identity_of, require_settled, require_whole, settled
from rrgtrain.state.rundir import RunDir
from rrgtrain.state.store import MANIFEST, CheckpointStore
from rrgtrain.state.tree import SMALL, PerRank, put_back, take_out
from tests.rrgtrain.runs import on_ranks
from tests.rrgtrain.state.rank_store import wholes
from tests.rrgtrain.state.saving import SavingStore

RECIPE = load_config(Recipe, "dr_grpo", ["data.root=here", "policy.prompt=${oc.env:HOW,short}"])
FILES = {"policy.path: model.safetensors": "1", "rl.reference: config.json": "2"}


def of(recipe: Recipe, files: dict[str, str] | None = None) -> dict[str, str]:
    """Return what a checkpoint keeps of a recipe that began from `files`, its own by default."""
    digests = settled(identity_of(recipe))
    if files is None:
        return digests
    digests = {key: digest for key, digest in digests.items() if ": " not in key}
    return digests | {f"begun from {name}": digest for name, digest in files.items()}


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    dump_config(RECIPE, tmp_path / "config.yaml")
    about = {"settings": of(RECIPE, FILES)}
    SavingStore(tmp_path / "resume", 1).save("rl-1", {}, about)
    return RunDir(tmp_path)


def read(run: RunDir, *overrides: str) -> Recipe:
    return load_config(Recipe, run.config, list(overrides))


def resumed(run: RunDir) -> None:
    read(run)
    require_whole(run, ".")


def test_what_may_move_or_change_is_believed(run: RunDir) -> None:
    require_settled(run, of(read(run), FILES))
    moved = ["data.root=there", "policy.device=cpu", "rl.lr=0.5", "reward.terms.words=1"]
    again = read(run, *moved)
    require_settled(run, of(again, FILES))
    dump_config(again, run.config)
    require_whole(run, ".")
    require_settled(run, of(read(run), FILES))


def test_a_start_that_is_gone_is_told_with_its_key(run: RunDir) -> None:
    told = (
        "no directory policy.path=gone/.*, from which the run in .* behind --resume: policy.path="
    )
    with pytest.raises(UserError, match=told):
        require_whole(run, "gone/checkpoints/ck")
    require_whole(run, "Qwen/Qwen2.5-VL-3B-Instruct")


def test_a_file_cut_short_is_refused(run: RunDir) -> None:
    whole = run.config.read_text()
    ends = [i for i, c in enumerate(whole) if c == "\n"]
    for end in [*ends[: -1 : len(ends) // 12], ends[-2]]:
        run.config.write_text(whole[: end + 1])
        told = r"config.yaml( lacks [\w.]+: it was cut short|:\d+: [\w.]+ is (a section, not|null))"
        with pytest.raises(UserError, match=told):
            resumed(run)


@pytest.mark.parametrize(
    ("before", "after", "key"),
    [
        ("seed: 0", "seed: 1", "seed"),
        ("algorithm: dr_grpo", "algorithm: editgrpo", "rl.algorithm"),
        ("group: 10", "group: 4", "rl.group"),
        ("reference: start", "reference: base", "rl.reference"),
        ("source: phantom", "source: nih", "data.source"),
    ],
)
def test_another_experiment_is_refused(run: RunDir, before: str, after: str, key: str) -> None:
    text = run.config.read_text()
    assert before in text
    run.config.write_text(text.replace(before, after))
    with pytest.raises(UserError, match=f"config.yaml has another {key} than the run's checkpoint"):
        require_settled(run, of(read(run), FILES))


def test_weights_that_were_exchanged_are_refused(run: RunDir) -> None:
    for changed in ("policy.path: model.safetensors", "rl.reference: config.json"):
        with pytest.raises(UserError, match=f"^{changed} is not the file that the run began from"):
            require_settled(run, of(read(run), {**FILES, changed: "3"}))
    renamed = {"policy.path: model-1-of-2.safetensors": "1", "rl.reference: config.json": "2"}
    with pytest.raises(UserError, match="^policy.path: model.safetensors is not the file"):
        require_settled(run, of(read(run), renamed))
    # more files than before, and a hub name, which has none
    require_settled(run, of(read(run), {**FILES, "policy.path: notes.txt": "3"}))
    require_settled(run, of(read(run), {"rl.reference: config.json": "2"}))


def test_another_environment_makes_another_experiment(run, monkeypatch):
    monkeypatch.setenv("HOW", "think")
    with pytest.raises(UserError, match="another policy.prompt"):
        require_settled(run, of(read(run), FILES))


def test_another_text_in_the_file_of_the_prompt_is_refused(tmp_path: Path) -> None:
    prompt = tmp_path / "mine.txt"
    prompt.write_text("Describe the {current}.")
    recipe = load_config(Recipe, "dr_grpo", [f"policy.prompt={prompt}"])
    dump_config(recipe, tmp_path / "config.yaml")
    before = of(recipe)
    SavingStore(tmp_path / "resume", 1).save("rl-1", {}, {"settings": before})
    run = RunDir(tmp_path)
    require_settled(run, of(read(run)))
    prompt.write_text("Describe the {current}!")
    with pytest.raises(UserError, match="policy.prompt: mine.txt is not the file") as told:
        require_settled(run, of(read(run)))
    assert "\n" not in str(told.value)
    # that it is gone is told by whoever reads it
    prompt.unlink()
    require_settled(run, of(read(run)))


def test_a_second_resume_leaves_what_the_first_is_writing(run: RunDir) -> None:
    """It is refused by the lock, after it has looked at the checkpoints."""
    with RunDir.create(run.path, resume=True):
        writing = run.resume / f".000002-rl-2.{'a' * 32}.tmp"
        writing.mkdir()
        (writing / "__0_0.distcp").write_bytes(b"half")
        require_whole(run, str(run.path))
        with pytest.raises(UserError, match="another process is writing"):
            RunDir.create(run.path, resume=True)
        assert (writing / "__0_0.distcp").is_file()
    RunDir.create(run.path, resume=True).close()
    assert not writing.exists()


# Nested state without its tensors, and together again.
def test_round_trip_with_awkward_keys() -> None:
    x, y = torch.arange(SMALL), torch.ones(SMALL, 2)
    state = {
        "a.b": x,
        "a": {"b": y, 3: [x, None, (1, 2.5, "t", True, b"\0")]},
        "empty": {},
        "order": OrderedDict(z=1),
        "number": np.float64(0.25),
        "small": torch.arange(12.0).reshape(3, 4).t()[1],
        "own": PerRank({"x": x}),
    }
    skeleton, tensors = take_out(state)
    assert len(tensors) == 4, "small ones stay where they are"
    back = put_back(skeleton, lambda name, sharded: tensors[name])
    assert back["small"].tolist() == [1.0, 5.0, 9.0]
    assert len(back["own"]) == 1 and torch.equal(back["own"][0]["x"], x)
    assert torch.equal(back["a.b"], x) and torch.equal(back["a"]["b"], y)
    assert back["a"][3][1:] == [None, (1, 2.5, "t", True, b"\0")]
    assert back["order"] == {"z": 1} and type(back["number"]) is float
    assert type(back["a"][3][2][3]) is bool


@pytest.mark.parametrize("leaf", [{1, 2}, object(), np.zeros(2), lambda: None])
def test_what_is_no_data_is_named(leaf: object) -> None:
    with pytest.raises(TypeError, match=r"the state's loop\.1 is a \w+; a checkpoint holds"):
        take_out({"loop": [0, leaf]})


def test_random_states_go_on_where_they_were() -> None:
    import random

    def draw() -> tuple:
        return random.random(), random.gauss(0, 1), np.random.rand(), float(torch.rand(()))

    draw()
    random.gauss(0, 1)  # leaves the second of a pair behind
    np.random.standard_normal()
    kept = put_back(take_out(random_states())[0], lambda *_: torch.empty(0))
    first = draw()
    assert draw() != first
    set_random_states(kept)
    assert draw() == first


MAIN = "tests.rrgtrain.state.rank_store"


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("ranks")
    for verb in ("write", "fail"):
        on_ranks(verb, str(home / "resume"), cwd=home, main=MAIN, statuses=[0, 0])
    return home


def test_every_rank_writes_its_part_and_a_full_disk_on_one_leaves_the_old(written: Path) -> None:
    (kept,) = (written / "resume").iterdir()
    assert kept.name == "000001-rl-1"
    files = json.loads((kept / MANIFEST).read_text())["files"]
    assert set(files) == {".metadata", "state.pt", "__0_0.distcp", "__1_0.distcp"}


@pytest.mark.parametrize("count", [2, 3])
def test_any_number_of_ranks_reads_it(count: int, written: Path) -> None:
    words, statuses = ("read", str(written / "resume")), [0] * count
    on_ranks(*words, cwd=written, count=count, main=MAIN, statuses=statuses)


def test_one_process_reads_it(written: Path) -> None:
    found = CheckpointStore(written / "resume", 2).newest()
    assert found is not None
    state = found.state
    assert all(torch.equal(a, b) for a, b in zip(state["sharded"], wholes(), strict=True))
    assert len(state["own"]) == 2 and state["own"][1] is None, "what is other ranks' own"


def test_a_part_of_another_rank_that_is_spoilt_is_told(written: Path, tmp_path: Path) -> None:
    resume = tmp_path / "resume"
    resume.mkdir()
    shutil.copytree(written / "resume" / "000001-rl-1", resume / "000001-rl-1")
    part = resume / "000001-rl-1" / "__1_0.distcp"
    part.write_bytes(part.read_bytes()[:-1])
    done = on_ranks("read", str(resume), cwd=tmp_path, main=MAIN)
    assert done[0].status != 0 and "__1_0.distcp has" in done[0].err


# Check that all ranks end alike where one of them alone meets the reason.
ENDINGS = "tests.rrgtrain.state.rank_stops"
CASES = {
    "write_failure": (
        "no checkpoint could be written to {home}/write failure/resume: No space left on device",
        "there is none before it; make room []",
    ),
    "end_of_validation": (
        "rl, step 1, rank 0: No space left on device (metrics.jsonl)",
        "['000001-rl-1']",
    ),
    "end_of_step": (
        "rl, step 1, rank 0: No space left on device (metrics.jsonl)",
        "the step was half done, so the last checkpoint counts ['000001-rl-1']",
    ),
    "saving": ("stopped by SIGTERM after 1 steps of rl", "['000001-rl-1']"),
}


def test_all_ranks_end_in_one_line(tmp_path: Path) -> None:
    done = on_ranks(str(tmp_path), *CASES, cwd=tmp_path, main=ENDINGS, statuses=[0, 0])
    for lines in (d.out.splitlines() for d in done):
        for line, (first, last) in zip(lines, CASES.values(), strict=True):
            assert first.format(home=tmp_path) in line and line.endswith(last), line


def test_a_rank_that_does_not_answer_is_noticed_while_a_checkpoint_is_waited_for(tmp_path):
    done = on_ranks(str(tmp_path), "silence", cwd=tmp_path, main=ENDINGS)
    assert done[0].out.startswith("another rank is gone"), done[0].out + done[0].err
