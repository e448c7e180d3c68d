"""The GPU suite goes its way on a CPU, and judges rows as it must."""

from __future__ import annotations

import os
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from bench import gpu_suite, rows, targets

ROOT = Path(__file__).parents[2]


@pytest.fixture
def kept(monkeypatch):
    """The results, of which a dry run must change nothing."""
    monkeypatch.delenv("RRGKERN_ROWS", raising=False)
    # inside one of xdist's workers pytest-benchmark measures nothing, in child processes either
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    folder = ROOT / "bench" / "results"
    before = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    yield
    assert {path: path.stat().st_mtime_ns for path in folder.iterdir()} == before


@pytest.mark.gate
@pytest.mark.slow
def test_a_dry_run_measures_a_few_rows_and_keeps_nothing(kept, capfd, monkeypatch):
    # the provider "compiled" goes through as eager: Inductor's C++ takes the longest of all
    monkeypatch.setenv("TORCHDYNAMO_DISABLE", "1")
    assert gpu_suite.main(["--dry", "--part", "2", "policy_loss"]) == 0
    out = capfd.readouterr().out
    assert "== bench: bench/policy_loss.py: green" in out
    assert "== bench: bench/against_peers.py: green" in out
    # What a row is made of came out: ratios to eager, the floor, the memory.
    assert "linear_policy_loss domain, frozen head, forward+backward" in out
    assert "p50_vs_eager" in out and "share_of_floor" in out and "peak_mib" in out
    assert "cce-exact" in out and "cuda only" in out
    found = int(out.rsplit(" rows of run", 1)[0].rsplit("\n", 1)[1])
    # eager and ours, in four cases of one bench and seven of the other, and a row of each step
    assert found >= 2 * (4 + 7) + 2
    for target in targets.TARGETS:
        assert target.text in out


@pytest.mark.gate
@pytest.mark.slow
def test_dry_runs_of_the_other_parts(kept, capfd):
    assert gpu_suite.main(["--dry", "--part", "1", "advantages"]) == 0
    out = capfd.readouterr().out
    assert "== advantages: tests: green" in out and "passed" in out
    assert "2 rows of run" in out
    assert gpu_suite.main(["--dry", "--part", "3", "policy_loss"]) == 0
    out = capfd.readouterr().out
    assert "== build: would run setup.py" in out and "would run compute-sanitizer" in out
    assert "== profile: green" in out and "grad_in_forward:" in out and "recompute:" in out
    assert "4 rows of run" in out  # two steps, two modes


@pytest.fixture
def suite(tmp_path) -> gpu_suite.Suite:
    return gpu_suite.Suite(1, {"RRGKERN_RUN": "a"}, tmp_path, dry=True)


def test_what_runs_too_long_is_stopped_with_its_children(suite, tmp_path):
    ticks = tmp_path / "ticks"
    child = f"(while :; do echo tick >> {ticks}; sleep 0.1; done) & wait"
    begin = time.monotonic()
    assert not suite.step("endless", ["sh", "-c", child], 2)
    assert time.monotonic() - begin < 30
    written = ticks.stat().st_size
    time.sleep(1)
    assert ticks.stat().st_size == written > 0
    suite.until = time.monotonic()
    assert not suite.step("no time left", [sys.executable, "-c", "raise SystemExit"])
    suite.until += 60
    assert not suite.step("broken", [sys.executable, "-c", "print('seen'); raise SystemExit(3)"])
    assert suite.states == {"endless": "late", "no time left": "late", "broken": "red"}
    written = rows.of_run(tmp_path / "cpu.jsonl", "a")
    assert [row["state"] for row in written] == ["late", "late", "red"]
    assert "seen" in (tmp_path / "cpu-part1.log").read_text()


def test_on_a_gpu_every_room_has_its_part(monkeypatch, tmp_path, capsys):
    commands = []

    def run(self: gpu_suite.Suite, command: list[str], seconds: float) -> int:
        assert not {"RRGKERN_BENCH_DRY", "RRGKERN_TEST_DEVICE"} & set(self.environment)
        commands.append((self.part, " ".join(command[1:]), seconds))
        return 0

    monkeypatch.setattr(gpu_suite.Suite, "_run", run)
    monkeypatch.setattr(gpu_suite.rows, "RESULTS", tmp_path)
    monkeypatch.setattr(gpu_suite, "_tool", lambda name: f"/tools/{name}")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (9, 0))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device=None: "NVIDIA H200")
    assert gpu_suite.main(["--jobs", "5"]) == 1  # nothing was measured, so no target is met
    assert all(seconds <= gpu_suite.SECONDS for _, _, seconds in commands)
    for path in ROOT.glob("rrgkern/*/api.py"):
        room = path.parent.name
        assert any(f"tests/rrgkern/{room}" in c for _, c, _ in commands), room
        assert any(f"bench/{room}.py" in c for _, c, _ in commands), room
    parts = {part: [c for p, c, _ in commands if p == part] for part in (1, 2, 3)}
    assert len(parts[1]) == 1 + 5 + 1 and "-m gpu tests/rrgpolicy/model" in parts[1][-1]
    assert "-n 5 --dist loadgroup -m gpu or not slow" in parts[1][1]
    assert "bench/against_peers.py" in parts[2][0]
    assert "bench/rival_shapes.py" in parts[2][-2] and "bench/vision_windows.py" in parts[2][-1]
    assert any("memcheck" in c and "-m gpu and not own_process" in c for c in parts[3])
    (counted,) = [c for c in parts[3] if "--kernel-name policy_loss_from_logits_kernel" in c]
    assert "--clock-control none" in counted
    assert len([c for c in parts[3][-2:] if "--error-exitcode" in c]) == 2
    commands.clear()
    assert gpu_suite.main(["--part", "3", "--no-sanitize", "mccs"]) == 0
    assert not any("sanitizer" in c for _, c, _ in commands)


@pytest.mark.gate
@pytest.mark.slow
def test_rivals_shapes_go_through_on_a_few_rows(suite, capfd, monkeypatch):
    # pytest-benchmark measures nothing in what believes itself a worker of pytest-xdist.
    for name in [name for name in os.environ if name.startswith("PYTEST_XDIST")]:
        monkeypatch.delenv(name)
    suite.environment |= {"RRGKERN_BENCH_DRY": "1", "OUT": str(suite.results)}
    suite.environment["TORCHDYNAMO_DISABLE"] = "1"
    assert suite.bench("bench/rival_shapes.py")
    measured = rows.of_run(suite.results / "cpu.jsonl", "a")
    assert {row["room"] for row in measured} >= {"rival_mean", "rival_entropy", "rival_logits"}
    providers = {row["provider"] for row in measured}
    assert "rrgkern forward" in providers
    assert hasattr(F, "linear_cross_entropy") == ("F.linear_cross_entropy" in providers)
    # The suite of another machine has no QuACK: a line of the table says so, and nothing stops.
    assert "quack-ce" in capfd.readouterr().out


def row(case: str, provider: str, ms: float, mib: float, room: str = targets.HEAD) -> dict:
    timed = {"device": "nvidia-h200", "p50_ms": ms, "peak_mib": mib}
    return {"room": room, "case": case, "provider": provider} | timed


DOMAIN = "domain, trainable head, forward+backward"
FAST = [
    row("dense, forward+backward", "rrgkern in place", 1.4, 1.0, targets.LOGITS),
    row("dense, frozen head, forward+backward", "rrgkern", 15.0, 300.0),
    row("dense, trainable head, forward+backward", "rrgkern forward", 24.0, 1700.0),
    row("dense, trainable head, forward+backward", "rrgkern recompute", 30.0, 850.0),
    row("sparse, trainable head, forward+backward", "rrgkern recompute", 14.0, 850.0),
    row("sparse, trainable head, forward+backward", "rrgkern into .grad", 14.0, 280.0),
    *(
        row(f"domain, {head} head, forward+backward", provider, ms, mib)
        for head in ("trainable", "frozen")
        for provider, ms, mib in (
            ("rrgkern", 5.0, 500.0),
            ("trl-head", 10.5, 1600.0),
            ("cce-exact", 12.0, 1100.0),
            ("liger-chunked", 40.0, 2000.0),
            ("verl-head", 16.0, 1300.0),
        )
    ),
]


def states(rows: list[dict]) -> list[str]:
    return [verdict.state for verdict in targets.judge(rows)]


def test_targets_pass_on_rows_that_meet_them_and_only_on_those():
    assert states(FAST) == ["pass"] * len(targets.TARGETS)
    for i in range(len(FAST)):
        slower = [{**r, "p50_ms": r["p50_ms"] * (20 if j == i else 1)} for j, r in enumerate(FAST)]
        ours, timed = FAST[i]["provider"].startswith("rrgkern"), "into" not in FAST[i]["provider"]
        assert ("fail" in states(slower)) == (ours and timed), FAST[i]
        fatter = [
            {**r, "peak_mib": r["peak_mib"] * (20 if j == i else 1)} for j, r in enumerate(FAST)
        ]
        assert ("fail" in states(fatter)) == ours, FAST[i]


def test_the_best_rival_counts_and_an_inexact_one_does_not():
    fast_rival = [
        row(DOMAIN, "cce-exact", 8.0, 1100.0) if r["provider"] == "cce-exact" else r for r in FAST
    ]
    verdicts = targets.judge(fast_rival)
    assert [v.state for v in verdicts].count("fail") >= 1
    failed = next(v for v in verdicts if v.state == "fail")
    assert "1.60 of 1.7 times as fast as cce-exact" in failed.figures
    filtered = [*FAST, row(DOMAIN, "cce-filtered", 1.0, 1.0)]
    assert states(filtered) == ["pass"] * len(targets.TARGETS)


def test_milliseconds_of_another_card_are_shown_and_not_judged():
    slower = [{**r, "p50_ms": r["p50_ms"] * 2} for r in FAST]
    assert "fail" in states(slower)
    on_another = [{**r, "device": "nvidia-h100-80gb-hbm3"} for r in slower]
    assert states(on_another) == ["pass"] * len(targets.TARGETS)
    assert "2.80 of 1.5 ms (an H200's)" in targets.table(targets.judge(on_another))
    by_time_alone = [replace(targets.TARGETS[0], mib=None)]
    assert [v.state for v in targets.judge(on_another, by_time_alone)] == ["unmeasured"]
    fatter = [{**r, "peak_mib": r["peak_mib"] * 2} for r in on_another]
    assert states(fatter)[:6].count("fail") == 5


def test_what_was_not_measured_on_a_gpu_is_no_pass():
    assert states([]) == ["unmeasured"] * len(targets.TARGETS)
    on_cpu = [{k: v for k, v in r.items() if k != "p50_ms"} for r in FAST]
    assert states(on_cpu) == ["unmeasured"] * len(targets.TARGETS)
    alone = [r for r in FAST if r["provider"].startswith("rrgkern")]
    assert states(alone)[:6] == ["pass"] * 6
    assert states(alone)[6:] == ["unmeasured"] * 4
    text = targets.table(targets.judge(alone))
    assert "no row of trl-head or cce-exact" in text
    assert len(text.splitlines()) == len(targets.TARGETS)
