"""Know machines and rates: each with where it comes from, and if it was measured."""

from __future__ import annotations

import math
import os
import shutil
import subprocess
from dataclasses import dataclass, fields, replace
from pathlib import Path

import torch

from rrgclinical.common.resolve import nearest
from rrgtrain.errors import UserError

GIB = 1 << 30
UNMEASURED = "unmeasured"
GROUPS = Path("/sys/fs/cgroup")
"""Where Linux shows control groups."""
UNLIMITED = 1 << 60
QUOTA_SECONDS = 10.0
"""Seconds for a server to say what a user's quota is."""

# Dense bf16 FLOP/s of the tensor cores, from the vendors' data sheets. The first name that is
# part of the device's own counts.
PEAKS = {
    "GB200": 2.5e15,
    "B200": 2.25e15,
    "H200": 9.89e14,
    "H100 PCIe": 7.56e14,
    "H100 NVL": 8.35e14,
    "H100": 9.89e14,
    "A100": 3.12e14,
    "L40S": 3.62e14,
    "L40": 1.81e14,
    "L4": 1.21e14,
    "A10": 1.25e14,
    "RTX 4090": 1.65e14,
    "RTX 3090": 7.1e13,
}


@dataclass(frozen=True)
class Machine:
    """Describe a device: memory in bytes, FLOP/s, and bytes a second.

    flops: in bf16. bandwidth: of its memory. link: between devices.
    source: where the figures are from. They are a vendor's ceilings, and none was reached here.
    """

    name: str
    memory: int
    flops: float
    flops_fp32: float
    bandwidth: float
    link: float
    source: str
    cuda: bool = True


def _gpu(
    name: str, peak: str, mebibytes: int, fp32: float, bandwidth: float, link: float
) -> Machine:
    sheet = f"NVIDIA's data sheet of the {peak}; memory as nvidia-smi shows it"
    return Machine(name, mebibytes << 20, PEAKS[peak], fp32, bandwidth, link, sheet)


MACHINES = {
    gpu.name: gpu
    for gpu in (
        _gpu("h100", "H100", 81_559, 6.7e13, 3.35e12, 4.5e11),
        _gpu("h200", "H200", 143_771, 6.7e13, 4.8e12, 4.5e11),
        _gpu("a100-80", "A100", 81_920, 1.95e13, 2.04e12, 3.0e11),
        _gpu("a100-40", "A100", 40_960, 1.95e13, 1.56e12, 3.0e11),
        _gpu("l40s", "L40S", 46_068, 9.16e13, 8.64e11, 3.2e10),
        _gpu("a10", "A10", 23_028, 3.12e13, 6.0e11, 3.2e10),
    )
}
"""GPUs by the name that `rrgtrain plan --gpu` takes."""

# A core of a server, fp32 through PyTorch: an estimate, as are its memory's bytes a second.
CPU_FLOPS, CPU_BANDWIDTH = 1.0e11, 1.0e10


@dataclass(frozen=True)
class Host:
    """Describe a node: bytes of memory and of free disk, and cores; None unknown."""

    memory: int | None = None
    disk: int | None = None
    cores: int = 2

    @classmethod
    def of_gib(cls, memory: float | None, disk: float | None) -> Host:
        """Take the sizes of the command line, in GiB; UserError for no size."""
        for name, value in (("--host-memory", memory), ("--disk", disk)):
            if value is not None and not 0 < value < math.inf:
                raise UserError(f"{name} {value:g}; give it in GiB")
        memory_bytes, disk_bytes = (None if v is None else int(v * GIB) for v in (memory, disk))
        return cls(memory_bytes, disk_bytes)


@dataclass(frozen=True)
class Rates:
    """Paces that no data sheet gives; `SOURCES` says where each is from, most are unmeasured."""

    update_share: float = 0.4
    """Share of the peak FLOP/s that an update reaches."""
    forward_share: float = 0.5
    """Share of it in a forward without gradients: reference, prefill, vision tower."""
    read_share: float = 0.6
    """Share of the memory's bandwidth that decoding reaches."""
    launches: float = 70.0
    """Kernel launches of a decoder layer in eager decoding."""
    launch_seconds: float = 1.0e-5
    """Seconds of a launch, in which a GPU waits for Python."""
    graph_seconds: float = 2.0e-3
    """Seconds of the host for each token step of vLLM."""
    wake_seconds: float = 0.5
    """Seconds in which vLLM wakes and sleeps."""
    link_share: float = 0.6
    """Share of the link's bandwidth that gathering weights reaches."""
    image_seconds: float = 0.15
    """Seconds of a core to read and cut one radiograph."""
    edit_seconds: float = 1.0e-3
    """Seconds to edit one report."""
    reward_reports: float = 500.0
    """Reports a second that the reward's models read on one device."""
    record_seconds: float = 0.1
    """Seconds of a step's record, log and barriers."""

    def __post_init__(self) -> None:
        for rate in fields(self):
            if not (value := getattr(self, rate.name)) >= 0:
                raise UserError(f"{rate.name}={value}; a rate is 0 or more")


SOURCES = {
    "launches": "counted from transformers' Qwen2 layer; 2,500 launches a token at 36 layers",
    "image_seconds": "measured on one core: 58 ms to read a full-size JPEG, 91 ms to cut it",
}
"""Where a rate is from; those that are not here are unmeasured."""


def source_of(rate: str) -> str:
    """Say where a rate is from."""
    return SOURCES.get(rate, UNMEASURED)


def machine_of(name: str, gpu_memory: float | None = None) -> Machine:
    """Find a machine by its name, with `gpu_memory` in GiB if given.

    Raises UserError for an unknown name, or memory that is not positive.
    """
    if name not in (*MACHINES, "cpu"):
        listed = ", ".join([*MACHINES, "cpu"])
        raise UserError(f"--gpu {name} is unknown; {nearest(name, [*MACHINES, 'cpu'])}use {listed}")
    machine = cpu() if name == "cpu" else MACHINES[name]
    if gpu_memory is None:
        return machine
    if not 0 < gpu_memory < math.inf:
        raise UserError(f"--gpu-memory {gpu_memory:g}; give the memory of one GPU in GiB")
    return replace(machine, memory=int(gpu_memory * GIB))


def cpu() -> Machine:
    """Return the cores of this machine as a device; its pace is an estimate."""
    cores = torch.get_num_threads()
    flops = CPU_FLOPS * cores
    memory = memory_of_host() or 0
    source = f"an estimate, {UNMEASURED}"
    return Machine("cpu", memory, flops, flops, CPU_BANDWIDTH, CPU_BANDWIDTH, source, cuda=False)


def this_machine(cuda: bool) -> Machine:
    """Return the device that a run here computes on."""
    if not cuda:
        return cpu()
    name = torch.cuda.get_device_name()
    memory = int(torch.cuda.get_device_properties(torch.cuda.current_device()).total_memory)
    known = [m for m in MACHINES.values() if m.name.partition("-")[0].upper() in name.upper()]
    base = min(known or MACHINES.values(), key=lambda m: abs(m.memory - memory))
    return replace(base, memory=memory, name=base.name if known else name)


def memory_of_others() -> int:
    """Return the bytes of this GPU that neither are free nor PyTorch's, CUDA's context included."""
    free, total = torch.cuda.mem_get_info()
    return int(total - free - torch.cuda.memory_reserved())


def this_host(directory: Path) -> Host:
    """Look at this node: its memory, and the free disk beneath `directory`."""
    there = next(path for path in (directory, *directory.absolute().parents) if path.exists())
    free = shutil.disk_usage(there).free
    left = room_of_quota(there)
    return Host(memory_of_host(), free if left is None else min(free, left), os.cpu_count() or 1)


def room_of_quota(directory: Path) -> int | None:
    """Return the bytes that the user's quota leaves on the file system of a directory.

    The free room of a disk that many share says nothing of it. Asks `lfs quota` where the file
    system is Lustre and has that command, else `quota`, which asks an NFS server too. None without
    a limit, and where neither is installed or answers within `QUOTA_SECONDS`. Written by their
    manual pages: no file system with quotas was asked yet.
    """
    user = str(os.getuid())
    above = (directory.absolute(), *directory.absolute().parents)
    mount = next((str(place) for place in above if os.path.ismount(place)), "/")
    asked = (["lfs", "quota", "-q", "-u", user, mount], ["quota", "-vwp", "-f", mount])
    for words in asked:
        try:
            done = subprocess.run(words, capture_output=True, text=True, timeout=QUOTA_SECONDS)
        except (OSError, subprocess.TimeoutExpired):
            continue
        if (left := _room_of_quota(done.stdout)) is not None:
            return left
    return None


def _room_of_quota(text: str) -> int | None:
    """Bytes left of the hard limit, in a report of both commands.

    A line is file system, KiB used, soft and hard limit, then the same of files. `*` marks more
    than the soft limit, brackets a figure that a server lacks; 0 is no limit.
    """
    rooms = []
    for line in text.splitlines():
        words = [word.strip("*[]") for word in line.split()]
        if len(words) > 4 and all(word.isdigit() for word in words[1:4]) and int(words[3]):
            rooms.append(max(0, int(words[3]) - int(words[1])) * 1024)
    return min(rooms, default=None)


def memory_of_host(proc: Path = Path("/proc"), groups: Path = GROUPS) -> int | None:
    """Return the bytes of memory that are available to this process.

    A container or a batch job has a control group whose limit may be below the machine's. None
    where the system does not say.
    """
    rooms = _rooms_of_groups(proc / "self" / "cgroup", groups)
    if (proc / "meminfo").is_file():
        kib = _numbers(proc / "meminfo").get("MemAvailable:")
        rooms += [] if kib is None else [kib * 1024]
    return min(rooms, default=None)


def _rooms_of_groups(own: Path, groups: Path) -> list[int]:
    """Bytes that this process's control groups leave, its own and those above.

    Of version 2, and of version 1's memory controller. Cached files count as free, since the kernel
    drops them when memory is wanted.
    """
    lines = own.read_text().splitlines() if own.is_file() else []
    rooms = _rooms(groups, "/", "memory.max", "memory.current", "")
    for _, controllers, path in (line.split(":", 2) for line in lines):
        if not controllers:
            rooms += _rooms(groups, path, "memory.max", "memory.current", "")
        elif "memory" in controllers.split(","):
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_")
            rooms += _rooms(groups / "memory", path, *names)
    return rooms


def _rooms(top: Path, path: str, limit: str, used: str, of_tree: str) -> list[int]:
    """Bytes that a group and those above it leave; files have the names of their version.

    Without a limit version 2 says "max", and version 1 a number near 2**63: more than there is.
    """
    own, rooms = top / path.lstrip("/"), []
    for group in (own, *own.parents):
        if (group / limit).is_file() and (text := (group / limit).read_text().strip()) != "max":
            stat = _numbers(group / "memory.stat")
            files = (f"{of_tree}{kind}_file" for kind in ("active", "inactive"))
            taken = int((group / used).read_text()) - sum(stat.get(name, 0) for name in files)
            rooms += [max(0, int(text) - taken)] if int(text) < UNLIMITED else []
        if group == top:
            break
    return rooms


def _numbers(file: Path) -> dict[str, int]:
    words = (line.split() for line in file.read_text().splitlines())
    return {word[0]: int(word[1]) for word in words if len(word) > 1}
