"""One room's providers measured against each other.

A bench file registers providers, then compares them at the shapes of the domain:

    bench = Bench("mccs")

    @bench.provider("eager")
    def eager(pred, truth): ...

    @bench.provider("peer", needs="peer_package")
    def peer(pred, truth): ...

    @pytest.mark.parametrize("rows", [512, 8192])
    def test_mccs(benchmark, rows):
        bench.compare(benchmark, make_inputs, shape={"rows": rows}, dtype=torch.int8)

`make bench ROOM=mccs` runs the room's tests, then this file, and prints the table. On a GPU rows
hold milliseconds from CUDA events; on a CPU only the ratio to the baseline, both taken in one run.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from typing import Any

import torch

from bench import rows, timing
from bench.ceilings import floor_ms

# Filled by compare, printed by bench/conftest.py when the session ends.
tables: list[tuple[str, list[dict[str, Any]]]] = []


class Bench:
    """The providers of one room. `baseline` is the one that ratios refer to."""

    def __init__(self, room: str, *, baseline: str = "eager") -> None:
        self.room = room
        self.baseline = baseline
        self._providers: dict[str, tuple[timing.Provider, str | None, str | None]] = {}

    def provider(
        self, name: str, *, needs: str | None = None, device: str | None = None
    ) -> Callable[[timing.Provider], timing.Provider]:
        """Register a provider: a function of the inputs that does all the work to be timed.

        Take gradients with `torch.autograd.grad`, which leaves nothing in the inputs that the
        next round would add to.

        Args:
            name: the provider in the table: "eager", "compiled", "rrgkern", a peer's name.
            needs: a package; without it the provider is listed as not installed.
            device: "cuda" or "cpu" for a provider that runs on that device only.
        """

        def register(function: timing.Provider) -> timing.Provider:
            if name in self._providers:
                raise ValueError(f"{self.room}: provider {name!r} is registered twice")
            self._providers[name] = (function, needs, device)
            return function

        return register

    def available(self, device: torch.device) -> tuple[dict[str, timing.Provider], dict[str, str]]:
        """(providers that can run on `device`, why the others cannot)."""
        runs: dict[str, timing.Provider] = {}
        missing: dict[str, str] = {}
        for name, (function, needs, only) in self._providers.items():
            if only and only != device.type:
                missing[name] = f"{only} only"
            elif needs and importlib.util.find_spec(needs) is None:
                missing[name] = f"{needs} is not installed"
            else:
                runs[name] = function
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
    ) -> list[dict[str, Any]]:
        """Measure every available provider and append one row for each.

        Args:
            benchmark: pytest-benchmark's fixture; it drives the rounds. With
                --benchmark-disable every provider runs once and nothing is recorded.
            make_inputs: positional inputs from a seed; called once per rotating copy.
            shape: sizes for the row, {"tokens": 8192, "vocab": 151936}.
            dtype: the dtype of the large operands.
            case: what is computed, where a room has several ("forward+backward").
            bytes_moved, flops: the least traffic and work of the problem. On a GPU they give the
                floor, from ceilings measured in the same run.
            rounds: timed rounds, after two that are not counted.

        Returns:
            The rows, also in `benchmark.extra_info`.
        """
        first = make_inputs(0)
        device = timing.device_of(first)
        providers, missing = self.available(device)
        if benchmark.disabled:
            benchmark.pedantic(lambda: [provider(*first) for provider in providers.values()])
            return []
        inputs = [first, *(make_inputs(seed) for seed in range(1, timing.rotation(first)))]
        measured = timing.Rounds(providers, inputs)
        for _ in range(2):
            measured()
        peaks = {name: timing.peak_mib(provider, first) for name, provider in providers.items()}
        measured.forget()
        benchmark.pedantic(measured, rounds=rounds, iterations=1)

        common = {
            "room": self.room,
            "case": case,
            "shape": dict(shape),
            "dtype": str(dtype).removeprefix("torch."),
            "rounds": rounds,
            "versions": rows.versions(tuple(n for _, n, _ in self._providers.values() if n)),
        }
        floor = floor_ms(device, dtype, bytes_moved, flops)
        result = []
        for name in providers:
            row = common | {"provider": name} | self._figures(measured, name, floor, peaks[name])
            rows.append(device, row)
            result.append(row)
        title = f"{self.room} {case}".strip() + f", {dict(shape)}, {common['dtype']}, {device.type}"
        tables.append((title, [*result, *({"provider": n, "note": w} for n, w in missing.items())]))
        benchmark.extra_info["rows"] = result
        return result

    def _figures(
        self, measured: timing.Rounds, name: str, floor: float | None, peak: float | None
    ) -> dict[str, float]:
        samples, baseline = measured.milliseconds[name], measured.milliseconds[self.baseline]
        ratio = timing.percentiles([s / b for s, b in zip(samples, baseline, strict=True)])
        figures = {f"{p}_vs_{self.baseline}": value for p, value in ratio.items()}
        if measured.cuda:
            times = timing.percentiles(samples)
            figures |= {f"{p}_ms": value for p, value in times.items()}
            if floor is not None:
                figures |= {"floor_ms": floor, "share_of_floor": floor / times["p50"]}
        if peak is not None:
            figures["peak_mib"] = peak
        return figures
