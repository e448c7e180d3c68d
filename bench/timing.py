"""Timing providers against each other: interleaved rounds, inputs rotating past the cache."""

from __future__ import annotations

import gc
import itertools
import math
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile
from torch.utils import _pytree as pytree

Inputs = Sequence[Any]
Provider = Callable[..., Any]

# Cycles that the GPU is kept busy for before each measurement, about 0.3 ms: it then works off what
# the host has put in its queue meanwhile, and no sample holds the host's lead-in.
_BUSY_CYCLES = 600_000
# CPUs differ and say little; three copies of 64 MiB exceed the caches of all but a few servers.
_CPU_CACHE_BYTES = 64 << 20
_MOST_COPIES = 32
# Fields of a row that only a CUDA device fills; null elsewhere.
OF_KERNELS = ("kernels", "kernel_ms", "allocations", "segments")


def device_of(inputs: Inputs) -> torch.device:
    """The device of the first tensor among `inputs`."""
    return next(leaf for leaf in pytree.tree_leaves(inputs) if isinstance(leaf, Tensor)).device


def rotation(inputs: Inputs) -> int:
    """Count the copies of `inputs` that exceed the last cache three times over."""
    tensors = [leaf for leaf in pytree.tree_leaves(inputs) if isinstance(leaf, Tensor)]
    size = sum(t.numel() * t.element_size() for t in tensors)
    device = device_of(inputs)
    cache = (
        torch.cuda.get_device_properties(device).L2_cache_size
        if device.type == "cuda"
        else _CPU_CACHE_BYTES
    )
    return max(2, min(_MOST_COPIES, math.ceil(3 * cache / max(size, 1))))


class Rounds:
    """Run every provider once per round: a busy machine slows all of them alike.

    `fresh` holds, for a provider that overwrites its inputs, what makes them anew: it runs before
    each call and is not timed.
    """

    def __init__(
        self,
        providers: Mapping[str, Provider],
        inputs: Sequence[Inputs],
        fresh: Mapping[str, Provider] | None = None,
    ) -> None:
        self.providers = list(providers.items())
        self.fresh = dict(fresh or {})
        self.inputs = inputs
        self.cuda = device_of(inputs[0]).type == "cuda"
        self.milliseconds: dict[str, list[float]] = {name: [] for name in providers}
        self.host: dict[str, list[float]] = {name: [] for name in providers}
        self._round = self._calls = 0

    def __call__(self) -> None:
        """One round; the order of the providers rotates from round to round."""
        start = self._round % len(self.providers)
        for name, provider in self.providers[start:] + self.providers[:start]:
            # A copy is read again only after all the others, when the cache has lost it.
            inputs = self.inputs[self._calls % len(self.inputs)]
            self._calls += 1
            if name in self.fresh:
                inputs = self.fresh[name](*inputs)
            device, host = self._time(provider, inputs)
            self.milliseconds[name].append(device)
            self.host[name].append(host)
        self._round += 1

    def forget(self) -> None:
        """Drop what the warm-up measured."""
        for samples in (*self.milliseconds.values(), *self.host.values()):
            samples.clear()

    def _time(self, provider: Provider, inputs: Inputs) -> tuple[float, float]:
        """Milliseconds of the device, and those of the host until the call returned.

        On a CPU with one thread it is processor time: what else the machine does is not in it.
        """
        if not self.cuda:
            clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
            begin = clock()
            provider(*inputs)
            took = (clock() - begin) * 1e3
            return took, took
        before, after = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda._sleep(_BUSY_CYCLES)
        before.record()
        begin = time.perf_counter()
        provider(*inputs)
        host = (time.perf_counter() - begin) * 1e3
        after.record()
        after.synchronize()
        return before.elapsed_time(after), host


def kernel_figures(provider: Provider, inputs: Inputs) -> dict[str, Any]:
    """Profile one call: kernels, their time in ms, what the allocator did.

    On a GPU a kernel's time knows no host; `allocations` are the allocator's, `segments` those that
    it asked the driver for. On a CPU operators stand in the kernels' place, without the other two.
    """
    device = device_of(inputs)
    cuda = device.type == "cuda"
    before = torch.cuda.memory_stats(device) if cuda else {}
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if cuda else [])]
    with profile(activities=activities) as profiled:
        result = provider(*inputs)
        if cuda:
            torch.cuda.synchronize(device)
    del result
    own = "self_device_time_total" if cuda else "self_cpu_time_total"
    # On a GPU the kernels alone: an operator's entry counts them once more.
    where = DeviceType.CUDA if cuda else DeviceType.CPU
    spent = {e.key: e for e in profiled.key_averages() if e.device_type == where}
    largest = sorted(spent, key=lambda key: getattr(spent[key], own), reverse=True)[:6]
    figures = {
        "kernels": sum(event.count for event in spent.values()),
        "kernel_ms": sum(getattr(event, own) for event in spent.values()) / 1e3,
        "largest_ms": {key[:60]: getattr(spent[key], own) / 1e3 for key in largest},
    }
    if not cuda:
        return figures
    after = torch.cuda.memory_stats(device)
    names = {"allocations": "allocation.all.allocated", "segments": "segment.all.allocated"}
    return figures | {name: after[key] - before.get(key, 0) for name, key in names.items()}


def device_state(device: torch.device) -> dict[str, str]:
    """Ask the driver for clocks, power and throttle reasons; {} where it says none."""
    if device.type != "cuda" or (smi := shutil.which("nvidia-smi")) is None:
        return {}
    index = str(torch.cuda.get_device_properties(device).uuid)
    for reasons in ("clocks_event_reasons.active", "clocks_throttle_reasons.active"):
        names = ("clocks.sm", "clocks.mem", "power.draw", "power.limit", reasons)
        query = [
            smi,
            f"--id=GPU-{index}",
            f"--query-gpu={','.join(names)}",
            "--format=csv,noheader",
        ]
        answer = subprocess.run(query, capture_output=True, text=True, timeout=20, check=False)
        if answer.returncode == 0:
            names = (*names[:-1], "throttle_reasons")
            values = map(str.strip, answer.stdout.split(","))
            return dict(zip(names, values, strict=True))
    return {}


def peak_mib(provider: Provider, inputs: Inputs, fresh: Provider | None = None) -> float:
    """Measure the peak memory of one call, as the allocator counts it.

    It is counted above what was allocated before the call.

    On a GPU by its statistics; on a CPU from the profiler's record of every allocation and release
    of PyTorch's allocator, temporaries of an operator included.
    """
    if fresh is not None:
        inputs = fresh(*inputs)
    if device_of(inputs).type != "cuda":
        return _peak_mib_on_cpu(provider, inputs)
    device = device_of(inputs)
    gc.collect()
    torch.cuda.synchronize(device)
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    result = provider(*inputs)
    torch.cuda.synchronize(device)
    peak = torch.cuda.max_memory_allocated(device) - before
    del result
    return peak / 2**20


def _peak_mib_on_cpu(provider: Provider, inputs: Inputs) -> float:
    """From the profiler's record of each allocation and release."""
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities, profile_memory=True) as profile:
        result = provider(*inputs)
    del result
    events = [e for e in profile.profiler.kineto_results.events() if e.name() == "[memory]"]
    changes = (event.nbytes() for event in sorted(events, key=lambda event: event.start_ns()))
    return max(itertools.accumulate(changes), default=0) / 2**20


def percentiles(samples: Sequence[float]) -> dict[str, float]:
    """{"p20": ..., "p50": ..., "p80": ...}"""
    quantiles = torch.tensor([0.2, 0.5, 0.8], dtype=torch.float64)
    values = torch.tensor(samples, dtype=torch.float64).quantile(quantiles)
    return dict(zip(("p20", "p50", "p80"), values.tolist(), strict=True))
