"""A run that is stopped, and resumed, ends in the same bits as one that is left alone."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from rrgtrain.state.store import STATE, CheckpointStore, load_checkpoint
from tests.rrgclinical.chat.server import Reply, serving
from tests.rrgclinical.facts.test_facts import model
from tests.rrgpolicy.rollout.served import CHAT, Served
from tests.rrgtrain.common import phantoms
from tests.rrgtrain.runs import (
    TINY_RUN,
    At,
    command,
    differences,
    finished,
    finished_demo,
    rows,
    started,
)

SFT, RL = "rrgtrain.train.sft", "rrgtrain.train.rl"
SCORE, SAVE = "rrgtrain.train.evaluate:score", "rrgpolicy.model.policy:Policy.save"
REWARD = "rrgtrain.rewards.service:RewardService.__call__"
AHEAD = "rrgtrain.rewards.service:RewardService._read_ahead"
DISK = "torch.distributed.checkpoint.filesystem:FileSystemWriter.write_data"


# Where a SIGTERM comes in, in the order of a demo, counted from where the run goes on.
MOMENTS = [
    At("rrgtrain.run.session:warm_up_vision"),
    At(f"{SFT}:sft_loss"),
    At(SCORE),  # the first validation
    At(f"{SFT}:sft_loss", 2),
    At(SAVE),
    At(SCORE),  # the evaluation of SFT
    At(f"{RL}:sample_groups"),
    At(f"{RL}:accumulate_gradients"),
    At("rrgtrain.train.rl_run:RlRun.complete"),
    At(SCORE),
    At(f"{RL}:apply_step", 2),
    At(SAVE),
    At(SCORE),
    At("rrgtrain.run.outcome:draw"),
]


def test_sigterm_in_every_phase_of_one_run(tmp_path: Path) -> None:
    words = ["demo", "--out", "run", *TINY_RUN]
    for at in MOMENTS:
        done = command(*words, cwd=tmp_path, at=at, status=75)
        assert done.last.startswith("rrgtrain: stopped by SIGTERM"), at
        assert done.last.endswith("; go on with: rrgtrain demo --resume run"), at
        words = ["demo", "--resume", "run"]
    command(*words, cwd=tmp_path, status=0)
    assert differences(finished_demo()[0], tmp_path / "run") == []
    done = command(*words, cwd=tmp_path, status=2)
    assert "the run in run has ended; its report is run/report.html" in done.last


def test_before_the_run_has_begun_nothing_stands_in_the_way(tmp_path: Path) -> None:
    words = ["demo", "--out", "run", *TINY_RUN]
    done = command(*words, cwd=tmp_path, at=At("rrgdata.phantom.write:_write_study", 4), status=75)
    told = "rrgtrain: stopped by SIGTERM; nothing was saved: start it again with the same command"
    assert done.last == told
    done = command("demo", "--resume", "run", cwd=tmp_path)
    assert done.status == 2 and "no run in run to resume; drop --resume" in done.last
    done = command(*words, cwd=tmp_path, at=At("rrgtrain.run.session:start_policy"), status=75)
    assert done.last.endswith("go on with: rrgtrain demo --resume run")


def test_the_same_command_goes_on_or_begins_again(tmp_path: Path) -> None:
    words = ["sft", "--out", "run", *TINY_RUN]
    assert command(*words, cwd=tmp_path, at=At(f"{SFT}:sft_loss", 4, "SIGKILL")).status < 0
    other = command(*words, "sft.lr=0.5", cwd=tmp_path)
    assert other.status == 2 and "run already holds a run (" in other.last
    done = command(*words, cwd=tmp_path)
    assert done.status == 0 and "rrgtrain: resuming run at step " in done.err
    assert command(*words, cwd=tmp_path).status == 2, "a run that has ended is never begun again"
    score = ["eval", "--from", "run/checkpoints/sft", "--out", "e", *TINY_RUN, "eval.limit=1"]
    late = At("rrgtrain.run.outcome:draw", 1, "SIGKILL")
    for at in (At("rrgtrain.run.session:start_policy", 1, "SIGKILL"), late, late):
        assert command(*score, cwd=tmp_path, at=at).status < 0
    assert (tmp_path / "e/predictions.jsonl").is_file()
    assert command(*score, cwd=tmp_path).status == 0
    last = command(*score, cwd=tmp_path)
    assert last.status == 2 and "e already holds a run (" in last.last


def test_ctrl_c_finishes_the_step_and_the_second_does_not_wait(tmp_path: Path) -> None:
    at = At(f"{SFT}:sft_loss", 2, "SIGINT")
    done = command("sft", "--out", "run", *TINY_RUN, cwd=tmp_path, at=at, status=130)
    assert "rrgtrain: SIGINT: finishing the phase; once more to stop at once" in done.err
    assert done.last == (
        "rrgtrain: stopped by SIGINT after 2 steps of sft; go on with: rrgtrain sft --resume run"
    )
    assert [r["step"] for r in rows(tmp_path / "run") if r["phase"] == "sft"] == [0, 1]
    config = tmp_path / "run/config.yaml"
    whole = config.read_text()
    for spoilt in (whole[: len(whole) // 2], whole.replace("seed: 0", "seed: 1")):
        config.write_text(spoilt)
        done = command("sft", "--resume", "run", cwd=tmp_path)
        assert done.status == 2 and "run/config.yaml" in done.last, done.err
        assert config.read_text() == spoilt
    config.write_text(whole)
    at = At(f"{SFT}:sft_loss", 1, "SIGINT+SIGINT")
    done = command("sft", "--resume", "run", cwd=tmp_path, at=at)
    assert done.status == 130 and done.last == "rrgtrain: interrupted"


GO_ON = ["rl", "--resume", "run"]


@pytest.fixture(scope="module")
def rl_alone() -> Path:
    return finished(*started())[0]


# What dies in the evaluation of the start, behind the look at the data; in step 1, before which are
# the look, the evaluation, its validation, and step 0, and behind a resume the look alone; and in
# the validation behind it.
DYING = [
    (At(REWARD, 2, "reward"), "evaluate start: reward term facts failed"),
    (At(REWARD, 5, "reward"), "editgrpo, step 1: reward term facts failed: no answer from the"),
    (At(REWARD, 2, "bug"), "editgrpo, step 1: ZeroDivisionError: division by zero (traceback in"),
    (At(AHEAD, 1, "reward"), "editgrpo, step 1: reward term facts failed: no answer from"),
    (At(AHEAD, 1), "stopped by SIGTERM after 1 steps of editgrpo; go on with"),
    (At(f"{RL}:sample_groups", 1, "bug"), "editgrpo, step 1: ZeroDivisionError: division by zero"),
    (At(REWARD, 3, "reward"), "editgrpo, step 2: reward term facts failed"),
]


def test_a_dying_reward_or_sampler_stops_the_run_and_it_goes_on(rl_alone, tmp_path):
    words, traced = started("checkpoint.steps=1000"), tmp_path / "run/failures/editgrpo-1.txt"
    for at, told in DYING:
        traced.unlink(missing_ok=True)
        done = command(*words, cwd=tmp_path, at=at, status=75)
        assert told in done.last and done.last.endswith("go on with: rrgtrain rl --resume run"), at
        if at.act == "bug":
            trace = traced.read_text()
            assert "Traceback" in trace and "division by zero" in trace
        if step := re.search(r"editgrpo, step (\d)|after (\d) steps", told):
            newest = CheckpointStore(tmp_path / "run" / "resume", 9).newest()
            assert newest is not None and str(newest.state["step"]) in step.groups(), at
        words = GO_ON
    command(*GO_ON, "checkpoint.steps=1", cwd=tmp_path, status=0)
    assert differences(rl_alone, tmp_path / "run") == []


def test_a_full_disk_keeps_the_last_checkpoint_and_it_goes_on(rl_alone, tmp_path):
    words = started()
    for number in (1, 2, 3):
        done = command(*words, cwd=tmp_path, at=At(DISK, number, "full disk"), status=75)
        assert "no checkpoint could be written to run/resume: No space left on dev" in done.last
        assert done.last.endswith("make room; go on with: rrgtrain rl --resume run")
        words = GO_ON
    done = command(*words, cwd=tmp_path, at=At("os:write", 2, "full disk"))  # a row of metrics
    assert done.status == 75 and "No space left on device" in done.last
    command(*words, cwd=tmp_path, status=0)
    assert differences(rl_alone, tmp_path / "run") == []


def test_a_kill_or_a_second_interrupt_while_one_is_written(rl_alone, tmp_path):
    command(*started(), cwd=tmp_path, at=At(DISK, 3, "SIGKILL"), status=-9)
    resume = tmp_path / "run" / "resume"
    assert any(p.name.startswith(".") for p in resume.iterdir()), "it was being written"
    done = command(*GO_ON, cwd=tmp_path, at=At(DISK, 2, "SIGINT+sleep+SIGINT+sleep"))
    assert done.status == 130 and done.last == "rrgtrain: interrupted", done.err
    command(*GO_ON, cwd=tmp_path, status=0)
    assert differences(rl_alone, tmp_path / "run") == []


def test_a_corrupt_newest_checkpoint_falls_back_and_ends_in_the_same_bits(rl_alone, tmp_path):
    assert command(*started(), cwd=tmp_path, at=At(f"{RL}:sample_groups", 3)).status == 75
    resume = tmp_path / "run" / "resume"
    # The best one is kept beside the last two, where it is an older one.
    names = CheckpointStore(resume, 9).names()[-2:]
    assert len(names) == 2, "the last two are kept"
    broken = resume / names[-1] / STATE
    broken.write_bytes(broken.read_bytes()[:-1])
    earlier = load_checkpoint(resume / names[0]).state["step"]
    done = command(*GO_ON, cwd=tmp_path, status=0)
    lines = done.err.splitlines()
    warned = [line for line in lines if "is broken" in line]
    assert len(warned) == 1
    assert warned[0].startswith(f"rrgtrain: warning: checkpoint {names[-1]} is broken (state.pt")
    assert warned[0].endswith(f"falling back to {names[0]}")
    assert f"rrgtrain: resuming run at step {earlier} of editgrpo" in lines
    assert differences(rl_alone, tmp_path / "run") == []


def test_a_reward_endpoint_that_dies_is_asked_again_and_the_run_goes_on(tmp_path: Path) -> None:
    asked, down = 0, set[int]()

    def answer(number: int, body: dict) -> Reply:
        nonlocal asked
        asked += 1
        return Reply(status=503) if asked in down else model(number, body)

    homes = [tmp_path / name for name in ("alone", "stopped")]
    with serving(answer) as server:
        told = {"endpoint": server.url, "model": "tiny", "tries": 3}
        words = started(
            "reward.terms.facts=1", *(f"reward.options.facts.{k}={v}" for k, v in told.items())
        )
        command(*words, cwd=homes[0], status=0)
        # two requests in a row, within its tries; later for good
        asked, down = 0, {5, 6, *range(asked // 2, 2 * asked)}
        done = command(*words, cwd=homes[1])
        assert done.status == 75 and "reward term facts failed: " in done.last, done.err
        assert done.last.endswith("go on with: rrgtrain rl --resume run")
        down.clear()
        command(*GO_ON, cwd=homes[1], status=0)
    assert differences(*(home / "run" for home in homes)) == []


def test_a_vllm_server_that_dies_is_waited_for_and_the_run_goes_on(tmp_path: Path) -> None:
    run, _ = finished_demo()
    with Served(run / "checkpoints" / "sft") as served:
        asked = ["rollout.engine=vllm_server", f"rollout.url={served.url}", "rollout.wait=1"]
        words = started(*asked, "rl.steps=3", "eval.limit=1")
        homes = [tmp_path / name for name in ("alone", "stopped")]
        command(*words, cwd=homes[0], status=0)
        # in the second step, for good: behind the start's evaluation and validation of a study
        # each, and a step of 2 prompts
        served.stop()
        served.start()
        served.dies = [(CHAT, 1 + 1 + 2 + 1)]
        done = command(*words, cwd=homes[1], status=75)
        assert "editgrpo, step 1: no answer from vLLM at http" in done.last
        assert done.last.endswith("go on with: rrgtrain rl --resume run")
        # in the third, and it comes back with the weights of the start
        served.start()
        served.dies, served.back = [(CHAT, 2 + 1 + 2)], 0.3
        done = command(*GO_ON, "rollout.wait=60", cwd=homes[1])
        assert done.status == 0 and served.dies == [], done.err
    # no more than the longer wait
    assert differences(*(home / "run" for home in homes)) == ["config.yaml"]


def test_an_adapter_with_dropout_and_several_updates_per_rollout(tmp_path: Path) -> None:
    """Generators, a dropped learning rate and what the KL compares with go on as they were."""
    lora = ["policy.lora.rank=4", "policy.lora.alpha=8", "policy.lora.dropout=0.3", "sft.lr=0.01"]
    drop = ["sft.eval_every=1", "sft.patience=1", "sft.min_delta=1", "sft.drops=2"]
    words = ["demo", "--out", "run", *TINY_RUN, *lora, *drop, "rl.epochs=2", "rl.beta=0.05"]
    homes = [tmp_path / name for name in ("alone", "stopped")]
    assert command(*words, cwd=homes[0]).status == 0
    for at in (At(f"{SFT}:sft_loss", 4), At(f"{RL}:accumulate_gradients", 3)):
        assert command(*words, cwd=homes[1], at=at).status == 75
        words = ["demo", "--resume", "run"]
    command(*words, cwd=homes[1], status=0)
    runs = [home / "run" for home in homes]
    assert differences(*runs) == []
    steps = [r for r in rows(runs[0]) if r["phase"] == "editgrpo"]
    assert len({r["lr"] for r in rows(runs[0]) if r["phase"] == "sft"}) == 3
    assert steps[0]["ratio_max"] != 1 and steps[-1]["kl"] > 0


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("stopped")
    command("sft", "--out", "run", *TINY_RUN, cwd=home, at=At(f"{SFT}:sft_loss", 2), status=75)
    return home


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["demo", "--resume", "run"], "begun by another command; use: rrgtrain sft --resume run"),
        (["sft", "--resume", "run", "--out", "b"], "a resumed run has its own: leave out --out"),
        (["sft", "sft", "--resume", "run"], "has its own: leave out recipe sft"),
        (["rl", "--resume", "run", "--from", "x"], "has its own: leave out --from"),
        (["sft", "--resume", "run", "seed=3"], "'seed=3' would make another experiment"),
        (["sft", "--resume", "run", "sft.lrr=1"], "did you mean sft.lr?"),
        (["sft", "--resume", "nowhere"], "no run in nowhere to resume"),
    ],
    ids=str,
)
def test_what_cannot_be_resumed_is_told_in_one_line(words, told, stopped):
    done = command(*words, cwd=stopped, status=2)
    assert len(done.err.splitlines()) == 1 and told in done.last


def test_settings_may_change_where_the_checkpoints_allow_it(stopped: Path, tmp_path: Path) -> None:
    # a copy: the other tests need a run that has not ended
    home = shutil.copytree(stopped, tmp_path / "home")
    done = command(
        *("sft", "--resume", "run", "sft.steps=6", "checkpoint.keep=3", "sft.batch=3"),
        cwd=home,
        status=0,
    )
    assert "how many a step reads, are not those of before" in done.err
    steps = [r["step"] for r in rows(home / "run") if r["phase"] == "sft"]
    assert steps == [0, 1, 2, 3, 4, 5]
    labels = [n.partition("-")[2] for n in CheckpointStore(home / "run" / "resume", 9).names()]
    # the last three, and the one whose weights are the best so far for the first of them
    assert labels == ["sft-2", "sft-5", "sft", "evaluate.SFT"]


def test_exchanged_weights_are_refused_and_fewer_steps_than_were_made_end_the_run(tmp_path):
    """`--from runs/sft`, and that run goes on training: the reference would be another."""
    words = started()
    start = shutil.copytree(words[words.index("--from") + 1], tmp_path / "start")
    words[words.index("--from") + 1] = str(start)
    assert command(*words, cwd=tmp_path, at=At(f"{RL}:sample_groups", 4)).status == 75
    whole = (start / "model.safetensors").read_bytes()
    (start / "model.safetensors").write_bytes(whole[:-4] + bytes(4))
    done = command(*GO_ON, cwd=tmp_path)
    assert done.status == 2 and len(done.err.splitlines()) == 1
    assert "policy.path: model.safetensors is not the file that the run began from" in done.last
    # moved, and as it was; it validates where it stands, evaluates and writes its report
    (start / "model.safetensors").write_bytes(whole)
    start.rename(tmp_path / "moved")
    command(*GO_ON, f"policy.path={tmp_path / 'moved'}", "rl.steps=2", cwd=tmp_path, status=0)
    steps = [r["step"] for r in rows(tmp_path / "run") if r["phase"] == "editgrpo_val"]
    assert steps == [-1, 1, 2] and (tmp_path / "run" / "report.html").is_file()


def test_a_resume_on_other_data_gives_no_report_another_study(tmp_path: Path) -> None:
    root = Path(shutil.copytree(phantoms(), tmp_path / "data"))
    words = ["demo", "--out", "run", *TINY_RUN, "data.source=iu_xray", f"data.root={root}"]
    assert command(*words, cwd=tmp_path, at=At(f"{RL}:sample_groups")).status == 75
    annotation = json.loads((root / "annotation.json").read_text())
    # the evaluation of SFT is remembered; its first study goes, the others are turned round
    gone, *others = annotation["test"]
    annotation["test"] = others[::-1]
    del annotation["train"][0]
    (root / "annotation.json").write_text(json.dumps(annotation))
    done = command("demo", "--resume", "run", "eval.split=val", cwd=tmp_path, status=2)
    assert "none of the 4 studies of 'evaluate SFT' is among the val studies" in done.last
    done = command("demo", "--resume", "run", "eval.split=test", "eval.limit=2", cwd=tmp_path)
    assert done.status == 0, done.err
    assert "1 of 4 studies of 'evaluate SFT' are no longer in the data" in done.err
    assert (
        done.err.count("the training studies, or how many a step reads, are not those of before")
        == 1
    )
    lines = (tmp_path / "run/predictions.jsonl").read_text().splitlines()
    named = [(row["system"], row["id"]) for row in map(json.loads, lines)]
    kept = [entry["id"] for entry in others]
    assert gone["id"] not in kept
    assert named == [(system, name) for system in ("SFT", "EditGRPO") for name in kept]
