"""A rank that is lost, silent or started otherwise ends the run in one line."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from rrgclinical.common.errors import UserError
from rrgdata.study import Study
from rrgdata.training_subset import Subset
from rrgpolicy.ranks import ranks
from rrgtrain.state.identity import (
    identity_of,
    require_equal_start,
    require_same_data,
    require_same_subset,
    start_files,
)
from tests.rrgpolicy.model.common import tiny_directory
from tests.rrgtrain.common import recipe, studies
from tests.rrgtrain.nodes import on_nodes
from tests.rrgtrain.run.test_scale_runs import RUN
from tests.rrgtrain.runs import At, Done, warm

HOST = re.escape(socket.gethostname())
SPREAD = [*RUN, "scale.mode=fsdp2", "rl.eval_every=1", "eval.limit=1"]
HANGS = "test_a_rank_that_hangs_ends_the_run_after_the_timeout"


@pytest.fixture(scope="module", autouse=True)
def hung(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Future[list[Done]] | None]:
    """Start at once the run whose rank hangs: it waits while the other tests compute."""
    if not any(item.name == HANGS for item in request.session.items):
        yield None
        return
    home = tmp_path_factory.mktemp("hung")
    at = At("rrgtrain.train.batch:Batch.of_all_ranks", 1, "hang")
    warm()  # to start the server sets the environment for a moment, which no thread may
    with ThreadPoolExecutor(1) as pool:
        yield pool.submit(on_nodes, *SPREAD, "scale.timeout=20", cwd=home, nodes=1, at=at)


def test_nodes_that_do_not_share_the_run_are_refused(tmp_path: Path) -> None:
    homes = [tmp_path / "one", tmp_path / "two"]
    for home in homes:
        home.mkdir()
    done = on_nodes(*SPREAD, cwd=tmp_path, here=1, homes=homes, statuses=[2, 2])
    wanted = rf"rrgtrain: run is not shared by the nodes: {HOST} does not see there what the others"
    assert re.match(wanted, done[0].last) and done[1].err == "", done[0].err + done[1].err
    assert not (homes[1] / "run").exists()
    assert not list(homes[0].rglob("*.tmp"))


@pytest.mark.parametrize(
    ("there", "said"),
    [
        ("rl:\n  lr: 0.002\n", rf"rank 1 on {HOST} was started with another rl.lr than rank 0; "),
        (None, rf"rank 1 on {HOST}: .*own.yaml"),
    ],
)
def test_a_node_with_another_recipe_is_refused(there, said, tmp_path):
    homes = [tmp_path / "one", tmp_path / "two"]
    for home, text in zip(homes, ("rl:\n  lr: 0.001\n", there), strict=True):
        home.mkdir()
        if text is not None:
            (home / "own.yaml").write_text(text)
    words = [word for word in SPREAD if not word.startswith("rl.lr=")]
    words = [words[0], "own.yaml", *words[1:], "--out", str(tmp_path / "run")]
    done = on_nodes(*words, cwd=tmp_path, here=1, homes=homes, statuses=[2, 2])
    assert re.match(f"rrgtrain: {said}", done[0].last) and done[1].err == "", done[0].err
    assert not (tmp_path / "run").exists()


def gathered(monkeypatch: pytest.MonkeyPatch, change: dict[str, str | None]) -> None:
    """Let this process be rank 0, and rank 1 have the same but for `change`; None takes a key."""

    def gather(own: tuple[str, dict[str, str]]) -> list[tuple[str, dict[str, str]]]:
        there = {**own[1], **{k: v for k, v in change.items() if k in own[1]}}
        return [own, ("there", {k: v for k, v in there.items() if v is not None})]

    monkeypatch.setattr(ranks, "size", lambda: 2)
    monkeypatch.setattr(ranks, "gather", gather)


def test_other_settings_code_or_files_are_named(tmp_path, monkeypatch):
    (tmp_path / "own_term.py").write_text("def f(report, reference):\n    return 1.0\n")
    monkeypatch.syspath_prepend(tmp_path)
    asked = recipe("reward.terms={'own_term:f': 1.0}", f"policy.path={tiny_directory()}")
    weights, config = (f"policy.path: {name}" for name in ("model.safetensors", "config.json"))
    for change, line in (
        ({"rl.group": "2"}, "was started with another rl.group than rank 0"),
        ({"torch": "2.0.0"}, r"runs torch 2\.0\.0 \(rank 0: "),
        ({"reward.terms: own_term.py": "2"}, r"runs other code than rank 0 \(reward.terms: own_t"),
        ({"reward.terms: own_term.py": None}, r"runs other code than rank 0 \(reward.terms: own_t"),
        ({weights: "3"}, rf"reads other files than rank 0 \({weights}\)"),
        ({weights: None}, rf"reads other files than rank 0 \({weights}\)"),
    ):
        gathered(monkeypatch, change)
        with pytest.raises(UserError, match=f"^rank 1 on there {line}"):
            require_equal_start(identity_of(asked))
    hub = {name: None for name in start_files(asked.policy, asked.rl, asked.reward)}
    assert {weights, config} <= hub.keys()
    for change in ({}, hub, {"data.root": "2", "policy.path": "2"}):
        gathered(monkeypatch, change)
        require_equal_start(identity_of(asked))


def test_other_studies_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    own = studies(3)

    def compare(there: list[Study]) -> None:
        """Gather once to learn the digest of `there`, once to compare it."""
        digests: list[dict[str, str]] = []
        monkeypatch.setattr(ranks, "size", lambda: 2)
        monkeypatch.setattr(ranks, "gather", lambda sent: [digests.append(sent[1]) or sent])
        require_same_data({"train": there})
        gathered(monkeypatch, dict(digests[0]))
        require_same_data({"train": own})

    compare(own)
    with pytest.raises(UserError, match=r"rank 1 on there reads other studies \(train 2 of .* 3"):
        compare(own[:2])
    for field in ("report", "indication", "technique", "comparison"):
        with pytest.raises(UserError, match=r"reads other studies \(train 3 of digest .* 3 of"):
            compare([*own[:2], replace(own[2], **{field: "Other."})])


def test_nodes_with_other_subsets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each would train on its own, and the sums over ranks be those of no recipe."""

    def subset(*chosen: str) -> Subset:
        return Subset("random", 0.5, 0, list(chosen))

    subset("train-1", "train-3").save(tmp_path / "subset.json")
    data = recipe(f"data.subset={tmp_path}").data
    key = f"data.subset={tmp_path}"
    gathered(monkeypatch, {key: subset("train-3", "train-1").digest})
    require_same_subset(data)
    gathered(monkeypatch, {key: subset("train-1", "train-2").digest})
    with pytest.raises(UserError, match=r"reads other studies in data.subset=.* the same file"):
        require_same_subset(data)
    require_same_subset(recipe().data)


def test_a_restart_by_torchrun_hears_nothing_of_the_attempt_before(tmp_path: Path) -> None:
    main = "tests.rrgpolicy.ranks.restart_suite"
    done = on_nodes(cwd=tmp_path, nodes=1, main=main, restarts=1)
    assert [(d.status, d.out) for d in done] == [(0, "[0, 1]\n")] * 2, done[0].err


def test_a_rank_that_hangs_ends_the_run_after_the_timeout(hung: Future[list[Done]]) -> None:
    """The last of the module, so that its clock runs beside the others."""
    done = hung.result()
    assert done[0].status == 75 and done[1].status == -9
    assert "another rank is gone (" in done[0].last, done[0].err
    assert "Traceback" not in done[0].err
