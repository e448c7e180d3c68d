"""Kill -9 at four moments of a demo (`make slow NAME=chaos`: forty); a server of old weights."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.chaos import killed
from tests.rrgpolicy.rollout.served import Served, Worker
from tests.rrgpolicy.test_vllm_worker import Frozen
from tests.rrgtrain.runs import command, finished_demo, rows, started
from tests.soak import Look, grown


@pytest.mark.parametrize("share", [0.2, 0.45, 0.7, 0.95])
def test_a_killed_run_ends_as_if_it_had_been_left_alone(share: float, tmp_path: Path) -> None:
    run, seconds = finished_demo()
    for earlier in (1.0, 0.8, 0.6, 0.4):  # a process may be faster than the one that was measured
        trial = killed(tmp_path / str(earlier), [earlier * share * seconds], run)
        assert trial.differences == []
        if trial.phases:
            return
    pytest.fail("every kill came too late to hit anything")


class Deceived(Frozen):
    """Its weights stay behind, and it does not know."""

    def weights_taken(self) -> dict[str, Any]:
        return {**super().weights_taken(), "held": None}


@pytest.mark.parametrize(
    ("worker", "said"),
    [
        (Frozen, "vLLM at .* was given the weights of step 1 and computes with those of step 0"),
        (Deceived, "trainer and sampler differ by .* likely weights that the sampler has not"),
    ],
)
def test_a_server_that_keeps_old_weights_stops_the_run_which_goes_on_with_a_sound_one(
    worker: type, said: str, tmp_path: Path
) -> None:
    served = Served(finished_demo()[0] / "checkpoints" / "sft")
    served.workers = worker
    with served:
        asked = ["rl.algorithm=dr_grpo", "rl.steps=3", "rollout.engine=vllm_server"]
        asked += [f"rollout.url={served.url}", "rollout.wait=60"]
        done = command(*started(*asked), cwd=tmp_path)
        assert done.status == 75, done.err
        stopped = re.match(rf"rrgtrain: dr_grpo, step (\d): {said}", done.last)
        assert stopped and int(stopped[1]) in (1, 2), done.err
        assert "rrgtrain rl --resume run" in done.last
        assert [r["step"] for r in rows(tmp_path / "run") if r["phase"] == "dr_grpo"] == list(
            range(int(stopped[1]))
        )
        served.stop()
        served.workers = Worker
        served.start()
        done = command("rl", "--resume", "run", cwd=tmp_path)
        assert done.status == 0, done.err
    assert [r["step"] for r in rows(tmp_path / "run") if r["phase"] == "dr_grpo"] == [0, 1, 2]


@pytest.mark.parametrize(
    ("mib", "files", "seconds", "grows"),
    [
        (0.0, 0.0, 0.0, ""),
        (0.1, 0.0, 0.0, "MiB resident"),
        (0.0, 0.01, 0.0, "open files"),
        (0.0, 0.0, 1e-4, "processor seconds a step"),
    ],
)
def test_a_soak_names_what_grows(mib: float, files: float, seconds: float, grows: str) -> None:
    """By so much a step, and by so much the seconds of each next step."""
    steps = range(100, 1001, 100)
    looks = [Look(t, 500 + mib * t, int(12 + files * t), t / 10 + seconds * t * t) for t in steps]
    assert [line.startswith(grows) for line in grown(looks)] == [True] * bool(grows)
