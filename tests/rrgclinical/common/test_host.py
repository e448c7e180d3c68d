"""Test that limits of containers and quotas count."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from rrgclinical.common.host import memory_of_host, room_of_quota, room_on_disk

GIB = 1 << 30


def group(folder: Path, limit: str, current: int, cached: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "memory.max").write_text(f"{limit}\n")
    (folder / "memory.current").write_text(f"{current}\n")
    half = cached // 2
    (folder / "memory.stat").write_text(f"anon 7\nactive_file {half}\ninactive_file {half}\n")


def test_the_limit_of_a_container_counts(tmp_path: Path) -> None:
    proc, groups = tmp_path / "proc", tmp_path / "cgroup"
    (proc / "self").mkdir(parents=True)
    (proc / "meminfo").write_text(f"MemTotal: 9 kB\nMemAvailable: {512 << 20} kB\n")
    (proc / "self" / "cgroup").write_text("0::/slurm/job_1\n")
    assert memory_of_host(proc, groups) == 512 * GIB
    group(groups / "slurm" / "job_1", "max", 3 * GIB, 0)
    group(groups / "slurm", str(64 * GIB), 30 * GIB, 20 * GIB)
    assert memory_of_host(proc, groups) == 54 * GIB, "files are dropped when it is wanted"
    group(groups / "slurm" / "job_1", str(16 * GIB), 20 * GIB, 0)
    assert memory_of_host(proc, groups) == 0
    assert memory_of_host(tmp_path / "none", tmp_path / "none") is None


def test_the_limit_of_an_older_control_group_counts(tmp_path: Path) -> None:
    proc, groups = tmp_path / "proc", tmp_path / "cgroup"
    (proc / "self").mkdir(parents=True)
    lines = "9:cpu,cpuacct:/\n5:memory:/slurm/job_1\n0::/\n"
    (proc / "self" / "cgroup").write_text(lines)
    for folder, limit in (("slurm/job_1", 2**63 - 4096), ("slurm", 64 * GIB)):
        place = groups / "memory" / folder
        place.mkdir(parents=True, exist_ok=True)
        (place / "memory.limit_in_bytes").write_text(f"{limit}\n")
        (place / "memory.usage_in_bytes").write_text(f"{30 * GIB}\n")
        (place / "memory.stat").write_text(f"inactive_file 7\ntotal_inactive_file {20 * GIB}\n")
    assert memory_of_host(proc, groups) == 54 * GIB
    (groups / "memory" / "slurm" / "memory.limit_in_bytes").write_text(str(2**63 - 4096))
    assert memory_of_host(proc, groups) is None


QUOTA = {
    "lfs": "   /scratch  8388608* 9000000 10485760 6d23h 120 0 0 -",
    "quota": (
        "Disk quotas for user ann (uid 1000): \n"
        "     Filesystem  blocks   quota   limit   grace   files   quota   limit   grace\n"
        "nas:/home 4194304  9000000 6291456 0 120 0 0 0"
    ),
}


@pytest.mark.parametrize(
    ("answers", "left"),
    [
        (QUOTA, 2 * GIB),
        ({"quota": QUOTA["quota"]}, 2 * GIB),
        ({"lfs": QUOTA["lfs"].replace("10485760", "0"), "quota": QUOTA["quota"]}, 2 * GIB),
        ({"lfs": QUOTA["lfs"].replace("10485760", "8388000")}, 0),
        ({"lfs": "Unexpected quotactl error: Operation not supported"}, None),
        ({}, None),
    ],
)
def test_a_quota_counts(
    answers: dict[str, str], left: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in answers.items():
        command = tmp_path / "bin" / name
        command.parent.mkdir(exist_ok=True)
        command.write_text(f"#!/bin/sh\ncat <<'END'\n{text}\nEND\n")
        command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/bin")
    assert room_of_quota(tmp_path) == left
    free = shutil.disk_usage(tmp_path).free
    room = room_on_disk(tmp_path / "run")
    assert room == pytest.approx(free if left is None else min(free, left), rel=0.05)
