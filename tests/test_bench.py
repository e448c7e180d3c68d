"""The harness: what it records, and what it must not."""

from __future__ import annotations

import functools
import json

import pytest
import torch

from bench import harness, rows, timing
from rrgkern import csrc, dispatch


class Fixture:
    """The part of pytest-benchmark's fixture that the harness uses."""

    def __init__(self, *, disabled: bool = False) -> None:
        self.disabled = disabled
        self.extra_info: dict[str, object] = {}

    def pedantic(self, target, rounds: int = 1, iterations: int = 1) -> None:
        assert iterations == 1
        for _ in range(1 if self.disabled else rounds):
            target()


@pytest.fixture
def bench(monkeypatch, tmp_path) -> harness.Bench:
    monkeypatch.setattr(rows, "RESULTS", tmp_path)
    monkeypatch.setattr(harness, "tables", [])
    bench = harness.Bench("planted")
    bench.calls = []

    @bench.provider("eager")
    def eager(x):
        bench.calls.append(("eager", x.data_ptr()))
        return (x @ x @ x @ x @ x).sum()

    @bench.provider("ours")
    def ours(x):
        bench.calls.append(("ours", x.data_ptr()))
        return x.sum()

    @bench.provider("peer", needs="no_such_package_anywhere")
    def peer(x):
        raise AssertionError("a peer that is not installed must not run")

    @bench.provider("device", device="cuda")
    def device(x):
        raise AssertionError("a CUDA provider must not run on CPU")

    return bench


def make_inputs(seed: int) -> tuple[torch.Tensor]:
    return (torch.full((256, 256), float(seed)),)


def compare(bench: harness.Bench, fixture: Fixture, **options):
    return bench.compare(
        fixture, make_inputs, shape={"side": 256}, dtype=torch.float32, rounds=6, **options
    )


def test_rows_of_a_cpu_hold_ratios_and_no_times(bench, tmp_path):
    fixture = Fixture()
    result = compare(bench, fixture, case="product", bytes_moved=1e6)
    written = [json.loads(line) for line in (tmp_path / "cpu.jsonl").read_text().splitlines()]
    assert [row["provider"] for row in written] == ["eager", "ours"]
    for row in written:
        assert {"commit", "date", "device", "versions", "shape", "dtype", "case"} <= set(row)
        assert not [key for key, value in row.items() if key.endswith("_ms") and value is not None]
        assert row["share_of_floor"] > 0 and row["kernel_ms"] is row["allocations"] is None
    eager, ours = written
    assert eager["p50_vs_eager"] == 1.0
    assert 0 < ours["p20_vs_eager"] <= ours["p50_vs_eager"] <= ours["p80_vs_eager"]
    assert ours["p50_vs_eager"] < 1.0
    assert fixture.extra_info["rows"] == result
    notes = {row["provider"]: row.get("note") for row in harness.tables[0][1]}
    assert notes["peer"] == "no_such_package_anywhere is not installed"
    assert notes["device"] == "cuda only"


def test_a_reference_is_called_so_and_leaves_no_row(bench, tmp_path, monkeypatch):
    """As without the extension, or with one that lacks a room; also where that was said before."""

    @bench.provider("slow")
    def slow(x):
        dispatch.announce_slow_path("rrgkern::planted", "cpu", "it is gone")
        return x.sum()

    with pytest.warns(dispatch.SlowPathWarning):
        dispatch.announce_slow_path("rrgkern::planted", "cpu", "it is gone")
    with pytest.warns(dispatch.SlowPathWarning):
        result = compare(bench, Fixture())
    monkeypatch.undo()
    assert [row["provider"] for row in result] == ["eager", "ours", "slow (reference)"]
    assert result[2]["note"] == "no row: its kernel is missing for rrgkern::planted"
    assert not list(tmp_path.iterdir())


def test_without_the_extension_no_row_is_written(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(csrc, "build_info", lambda: None)
    rows.append(torch.device("cpu"), {"room": "x"}, tmp_path)
    assert not list(tmp_path.iterdir())
    assert "no row is written: the compiled extension is missing" in capsys.readouterr().out


def test_rounds_rotate_inputs_and_order(bench):
    compare(bench, Fixture())
    timed = bench.calls[-12:]
    assert [name for name, _ in timed].count("ours") == 6
    starts = [timed[i][0] for i in range(0, 12, 2)]
    assert starts == ["eager", "ours"] * 3 or starts == ["ours", "eager"] * 3
    assert len({address for _, address in timed}) == 12


def compared(bench: harness.Bench, *agree, **options):
    options = {"shape": {}, "dtype": torch.float32, "rounds": 2, **options}
    inputs = (torch.ones(8, 8),)
    return bench.compare(Fixture(), lambda seed: inputs, agree=harness.Agree(*agree), **options)


def written(folder) -> list[dict]:
    return [json.loads(line) for line in (folder / "cpu.jsonl").read_text().splitlines()]


def test_a_peer_that_fails_or_differs_is_listed_and_not_timed(bench, tmp_path):
    @bench.provider("broken", peer=True)
    def broken(x):
        raise RuntimeError("no kernel image\nand a long story")

    @bench.provider("other", peer=True)
    def other(x):
        return 1.5 * (x @ x @ x @ x @ x).sum()

    @bench.provider("rough", peer=True, exact=False)
    def rough(x):
        return 1.25 * (x @ x @ x @ x @ x).sum()

    del bench._entries["ours"]
    result = compared(bench, 1, 0.1)
    assert [row["provider"] for row in result] == ["eager", "rough"]
    assert result[1]["difference"] == pytest.approx(0.25)
    notes = {row["provider"]: row.get("note") for row in harness.tables[0][1]}
    assert notes["broken"] == "failed: RuntimeError: no kernel image"
    assert notes["other"] == "differs from eager by 0.5: not timed"
    assert [row["provider"] for row in written(tmp_path)] == ["eager", "rough"]


def test_where_the_baseline_rounds_all_are_held_to_the_truth(bench):
    """Eager is 0.1 off: peers may be 1.5 times as far, ours within the tolerance all the same."""

    def power(x, factor=1.0):
        return factor * (x @ x @ x @ x @ x).sum()

    def differences(ours: float) -> dict[str, float]:
        made = harness.Bench("planted")
        for name, factor in (("eager", 1.1), ("ours", ours), ("near", 1.14), ("far", 1.16)):
            peer = name in ("near", "far")
            made.provider(name, peer=peer)(functools.partial(power, factor=factor))
        harness.tables.clear()
        return {row["provider"]: row["difference"] for row in compared(made, 1, 0.05, power)}

    wanted = {"eager": 0.1, "ours": 0.01, "near": 0.14}
    assert differences(ours=1.01) == pytest.approx(wanted, abs=1e-4)
    notes = {row["provider"]: row.get("note") for row in harness.tables[0][1]}
    assert notes["far"] == "differs from the truth by 0.16: not timed"
    with pytest.raises(AssertionError, match="ours differs from the truth by 0.06, allowed 0.05"):
        differences(ours=1.06)


def test_a_provider_of_ours_that_differs_or_fails_is_an_error(bench):
    with pytest.raises(AssertionError, match="planted: ours differs from eager by .*, allowed"):
        compared(bench, 1, 1e-3)
    del bench._entries["ours"]

    @bench.provider("ours")
    def ours(x):
        raise RuntimeError("planted")

    with pytest.raises(RuntimeError, match="planted"):
        compared(bench, 1, 1e-3)
    del bench._entries["ours"]
    bench.provider("ours")(lambda x: (x @ x @ x @ x @ x).sum() + torch.nan)
    with pytest.raises(AssertionError, match="by nan"):
        compared(bench, 1, 1e-3)


def test_a_provider_that_overwrites_gets_fresh_inputs(bench):
    seen: list[float] = []

    def fresh(x):
        return (x.clone(),)

    @bench.provider("in place", fresh=fresh)
    def in_place(x):
        seen.append(float(x.sum()))
        return (x @ x @ x @ x @ x).sum(), x.zero_()

    compare(bench, Fixture(), agree=harness.Agree(1, 10.0))
    # Each copy of the inputs is as it was drawn: full of its seed.
    copies = timing.rotation(make_inputs(0))
    assert set(seen) <= {256.0 * 256.0 * seed for seed in range(copies)}
    assert len(set(seen)) > 1


def test_rows_of_a_run_are_found_again_in_the_file_that_was_named(bench, tmp_path, monkeypatch):
    compare(bench, Fixture())
    monkeypatch.setenv("RRGKERN_RUN", "second")
    monkeypatch.setenv("RRGKERN_ROWS", "elsewhere")
    compare(bench, Fixture())
    path = rows.path_of(torch.device("cpu"))
    assert path == tmp_path / "elsewhere.jsonl"
    assert [row["provider"] for row in rows.of_run(path, "second")] == ["eager", "ours"]
    assert rows.of_run(path, "first") == rows.of_run(tmp_path / "none.jsonl", "second") == []
    assert all("run" not in row for row in written(tmp_path))
