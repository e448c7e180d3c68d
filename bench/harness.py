"""One room's providers measured against each other.

A bench file registers providers, then compares them at the shapes of the domain:

    bench = Bench("mccs")

    @bench.provider("eager")
    def eager(pred, truth): ...

    @bench.provider("peer", needs="peer_package")
    def peer(pred, truth): ...

    bench.peers("head", wrap)       # every peer of bench/peers that starts from hidden states

    @pytest.mark.parametrize("rows", [512, 8192])
    def test_mccs(benchmark, rows):
        bench.compare(benchmark, make_inputs, shape={"rows": rows}, dtype=torch.int8)

`make bench ROOM=mccs` runs this file and prints the table; TESTS=1 runs the room's tests first. On
a GPU rows hold milliseconds from CUDA events; on a CPU only the ratio to the baseline, both taken
in one run.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from bench import peers, rows, timing
from bench.batch import DRY
from bench.ceilings import floor_ms
from rrgkern import dispatch

# Filled by compare, printed by bench/conftest.py when the session ends.
tables: list[tuple[str, list[dict[str, Any]]]] = []

# None when a provider can run on the device, else why not.
WhyNot = Callable[[torch.device], str | None]


@contextmanager
def slow_paths() -> Iterator[set[tuple[str, str]]]:
    """Collect the (op, device) that references serve meanwhile, those announced before too."""
    before, dispatch._announced = dispatch._announced, set()
    try:
        yield dispatch._announced
    finally:
        dispatch._announced = before | dispatch._announced


class Agree(NamedTuple):
    """Say which of the tensors that providers return must be alike, and how much.

    The first `tensors` are compared: ‖difference‖ ≤ tolerance · ‖wanted‖.
    """

    tensors: int
    tolerance: float
    truth: timing.Provider | None = None
    """Wanted in the baseline's place, in more digits, where the baseline's own rounding is above
    the tolerance; a peer may then be 1.5 times as far off as the baseline."""


@dataclass(frozen=True)
class Entry:
    """A registered provider; the fields are those of `Bench.provider`."""

    function: timing.Provider
    why_not: WhyNot
    packages: tuple[str, ...]
    fresh: timing.Provider | None
    exact: bool
    peer: bool


class Bench:
    """The providers of one room. `baseline` is the one that ratios refer to."""

    def __init__(self, room: str, *, baseline: str = "eager") -> None:
        self.room = room
        self.baseline = baseline
        self._entries: dict[str, Entry] = {}

    def provider(
        self,
        name: str,
        *,
        needs: str | WhyNot | None = None,
        device: str | None = None,
        packages: tuple[str, ...] = (),
        fresh: timing.Provider | None = None,
        exact: bool = True,
        peer: bool = False,
    ) -> Callable[[timing.Provider], timing.Provider]:
        """Register a provider: a function that does all the work to be timed.

        Take gradients with `torch.autograd.grad`, which leaves nothing in the inputs that the
        next round would add to.

        Args:
            name: the provider in the table: "eager", "compiled", "rrgkern", a peer's name.
            needs: a package, without which the provider is listed as not installed; or a
                function of the device that says why the provider cannot run.
            device: "cuda" or "cpu" for a provider that runs on that device only.
            packages: whose versions belong in the row, by their names for pip.
            fresh: for a provider that overwrites its inputs: makes them anew, from the inputs
                as they were. It runs before each call, is not timed, and what it holds counts
                as input.
            exact: False where the provider leaves gradients out on purpose.
            peer: a failure of it is a line of the table and stops nothing.
        """
        package = needs if isinstance(needs, str) else None

        def why_not(on: torch.device) -> str | None:
            if device and device != on.type:
                return f"{device} only"
            if package and importlib.util.find_spec(package) is None:
                return f"{package} is not installed"
            return needs(on) if callable(needs) else None

        def register(function: timing.Provider) -> timing.Provider:
            if name in self._entries:
                raise ValueError(f"{self.room}: provider {name!r} is registered twice")
            named = packages or ((package,) if package else ())
            self._entries[name] = Entry(function, why_not, named, fresh, exact, peer)
            return function

        return register

    def peers(
        self,
        path: str,
        wrap: Callable[[peers.Peer], timing.Provider],
        *,
        fresh: timing.Provider | None = None,
    ) -> None:
        """Register every peer that starts from `path`, one of those in bench/peers.

        Args:
            wrap: makes a function of the bench's inputs out of a peer (see bench/peers).
            fresh: as in `provider`, for the peers that overwrite their logits.
        """
        for peer in peers.of(path):
            self.provider(
                peer.name,
                needs=peer.why_not,
                packages=(peer.distribution,),
                fresh=fresh if peer.overwrites else None,
                exact=peer.exact,
                peer=True,
            )(wrap(peer))

    def available(self, device: torch.device) -> tuple[dict[str, timing.Provider], dict[str, str]]:
        """(providers that can run on `device`, why the others cannot)."""
        runs: dict[str, timing.Provider] = {}
        missing: dict[str, str] = {}
        for name, entry in self._entries.items():
            if reason := entry.why_not(device):
                missing[name] = reason
            else:
                runs[name] = entry.function
        if self.baseline not in runs:
            raise ValueError(f"{self.room}: no provider {self.baseline!r} to take ratios against")
        return runs, missing

    def compare(
        self,
        benchmark: Any,
        make_inputs: Callable[[int], timing.Inputs],
        *,
        shape: Mapping[str, Any],
        dtype: torch.dtype,
        case: str = "",
        bytes_moved: float = 0.0,
        flops: float = 0.0,
        rounds: int = 20,
        agree: Agree | None = None,
    ) -> list[dict[str, Any]]:
        """Measure every available provider and append one row for each.

        Where a reference serves an op in the place of a kernel, a provider is called "(reference)"
        and no row is written.

        Args:
            benchmark: pytest-benchmark's fixture; it drives the rounds. With
                --benchmark-disable every provider runs once and nothing is recorded.
            make_inputs: positional inputs from a seed; called once per rotating copy.
            shape: sizes for the row, {"tokens": 8192, "vocab": 151936}.
            dtype: the dtype of the large operands.
            case: what is computed, where a room has several ("forward+backward").
            bytes_moved, flops: the least traffic and work of the problem. They give the floor,
                from ceilings measured in the same run.
            rounds: timed rounds, after two that are not counted.
            agree: what providers must return. A peer that computes something else, or fails, is
                listed and not timed; of the others it is an error. The difference of an inexact
                provider is recorded whatever it is.

        Returns:
            The rows, also in `benchmark.extra_info`.
        """
        first = make_inputs(0)
        device = timing.device_of(first)
        runs, missing = self.available(device)
        differences, slow = self._check(runs, missing, first, agree)
        fresh = {name: f for name in runs if (f := self._entries[name].fresh)}
        if benchmark.disabled:
            benchmark.pedantic(lambda: None)
            return []
        rounds = 2 if DRY else rounds
        inputs = [first, *(make_inputs(seed) for seed in range(1, timing.rotation(first)))]
        measured = timing.Rounds(runs, inputs, fresh)
        for _ in range(2):
            measured()
        # A CPU has no kernels, and its allocator counts nothing.
        kernels = {name: dict[str, Any].fromkeys(timing.OF_KERNELS) for name in runs}
        if device.type == "cuda":
            for name, run in runs.items():
                with_inputs = fresh[name](*first) if name in fresh else first
                kernels[name] = timing.kernel_figures(run, with_inputs)
        peaks = {name: timing.peak_mib(runs[name], first, fresh.get(name)) for name in runs}
        measured.forget()
        benchmark.pedantic(measured, rounds=rounds, iterations=1)
        state = timing.device_state(device)

        packages = tuple(p for name in runs for p in self._entries[name].packages)
        common = {
            "room": self.room,
            "case": case,
            "shape": dict(shape),
            "dtype": str(dtype).removeprefix("torch."),
            "rounds": rounds,
            "versions": rows.versions(packages),
        }
        floor = floor_ms(device, dtype, bytes_moved, flops)
        result = []
        for name in runs:
            label = f"{name} (reference)" if name in slow else name
            row = common | {"provider": label} | self._figures(measured, name, floor, peaks)
            row |= kernels[name] | ({"device_state": state} if state else {})
            row |= throughput(row.get("p50_ms"), bytes_moved, flops)
            if name in differences:
                row["difference"] = differences[name]
            if not slow:
                rows.append(device, row)
            elif name in slow:
                row["note"] = f"no row: its kernel is missing for {slow[name]}"
            result.append(row)
        title = f"{self.room} {case}".strip() + f", {dict(shape)}, {common['dtype']}, {device.type}"
        tables.append((title, [*result, *({"provider": n, "note": w} for n, w in missing.items())]))
        benchmark.extra_info["rows"] = result
        return result

    def _check(
        self,
        runs: dict[str, timing.Provider],
        missing: dict[str, str],
        inputs: timing.Inputs,
        agree: Agree | None,
    ) -> tuple[dict[str, float], dict[str, str]]:
        """Run each provider once; moves peers that fail or differ from `runs` to `missing`.

        Returns differences from the baseline, and the ops that a reference served, by provider.
        """
        differences, slow = dict[str, float](), dict[str, str]()
        count, tolerance, truth = agree or Agree(0, 0.0)
        of_peers = tolerance
        with slow_paths() as ops:
            found = _leading(runs[self.baseline](*inputs), count)
        slow |= {self.baseline: _names(ops)} if ops else {}
        wanted = found
        if truth:
            wanted = _leading(truth(*inputs), count)
            differences[self.baseline] = max(map(difference, found, wanted), default=0.0)
            of_peers = max(tolerance, 1.5 * differences[self.baseline])
        del found
        for name, provider in list(runs.items()):
            if name == self.baseline:
                continue
            entry = self._entries[name]
            try:
                given = entry.fresh(*inputs) if entry.fresh else inputs
                with slow_paths() as ops:
                    found = _leading(provider(*given), count)
                slow |= {name: _names(ops)} if ops else {}
            except Exception as error:
                if not entry.peer:
                    raise
                problem = f"{type(error).__name__}: {error}".splitlines()[0][:160]
                missing[name] = f"failed: {problem}"
                del runs[name]
                continue
            if not agree:
                continue
            differences[name] = max(map(difference, found, wanted), default=0.0)
            if entry.exact and not differences[name] <= (of_peers if entry.peer else tolerance):
                problem = f"differs from {'the truth' if truth else self.baseline}"
                problem += f" by {differences[name]:.2g}"
                if not entry.peer:
                    raise AssertionError(f"{self.room}: {name} {problem}, allowed {tolerance:.2g}")
                missing[name] = f"{problem}: not timed"
                del runs[name], differences[name]
        return differences, slow

    def _figures(
        self, measured: timing.Rounds, name: str, floor: float | None, peaks: Mapping[str, float]
    ) -> dict[str, float]:
        samples, baseline = measured.milliseconds[name], measured.milliseconds[self.baseline]
        ratio = timing.percentiles([s / b for s, b in zip(samples, baseline, strict=True)])
        figures = {f"{p}_vs_{self.baseline}": value for p, value in ratio.items()}
        times = timing.percentiles(samples)
        if measured.cuda:
            figures |= {f"{p}_ms": value for p, value in times.items()}
            figures["host_ms"] = timing.percentiles(measured.host[name])["p50"]
            host_of_baseline = timing.percentiles(measured.host[self.baseline])["p50"]
            figures[f"{self.baseline}_host_ms"] = host_of_baseline  # how fast the host is
            if floor is not None:
                figures["floor_ms"] = floor
        if floor is not None:
            figures["share_of_floor"] = floor / times["p50"]
        return figures | {"peak_mib": peaks[name]}


def throughput(ms: float | None, bytes_moved: float, flops: float) -> dict[str, float]:
    """Divide the least bytes and operations by the time: GB/s and TFLOP/s."""
    if ms is None:
        return {}
    rates = {"gb_s": bytes_moved / ms / 1e6, "tflop_s": flops / ms / 1e9}
    return {name: rate for name, rate in rates.items() if rate}


def _names(ops: set[tuple[str, str]]) -> str:
    return ", ".join(sorted(name for name, _ in ops))


def _leading(result: Any, count: int) -> list[Tensor]:
    """The first `count` tensors of what a provider returned."""
    result = (result,) if isinstance(result, Tensor) else result
    if not count:
        return []
    if len(result) < count:
        raise ValueError(f"returned {len(result)} tensors, wanted at least {count}")
    return [tensor.detach() for tensor in result[:count]]


def difference(found: Tensor, wanted: Tensor) -> float:
    """‖found - wanted‖ / ‖wanted‖; 16-bit tensors are widened a slice at a time."""
    if found.shape != wanted.shape:
        return float("inf")
    squares = torch.zeros(2, dtype=torch.float64, device=wanted.device)
    slices = (tensor.reshape(-1).split(1 << 24) for tensor in (found, wanted))
    for a, b in zip(*slices, strict=True):
        squares[0] += (a.double() - b.double()).square().sum()
        squares[1] += b.double().square().sum()
    return float((squares[0] / squares[1]).sqrt()) if squares[1] else float(squares[0].sqrt())
