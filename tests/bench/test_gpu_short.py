"""The short run of a GPU: what it measures and in what order, rehearsed on a CPU."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from bench import gpu_short, rows
from rrgkern.logps import triton_from_hidden


@pytest.fixture
def written(monkeypatch) -> list[dict]:
    appended: list[dict] = []
    monkeypatch.setattr(rows, "append", lambda device, row, folder: appended.append(row))
    return appended


def test_heads_come_first_then_logits_then_steps(written, capfd):
    assert gpu_short.main(["--dry"]) == 0
    heads, logits = written[:12], written[12:]
    assert {row["room"] for row in heads} == {"logps"}
    assert [row["provider"] for row in heads[:3]] == [
        "rrgkern",
        "rrgkern, tiles of 32 MiB",
        "torch.compile",
    ]
    assert len({row["case"] for row in heads}) == 4
    assert [row["provider"] for row in logits] == ["out of place", "in place"]
    for row in written:
        assert row["kernels"] > 0 and row["kernel_ms"] > 0 and row["p50_ms"] > 0
        assert row["kernel_ms"] >= sum(row["largest_ms"].values()) * 0.999
    assert "gpu_step.py --unsaved --steps 8" in capfd.readouterr().out.splitlines()[-1]


def test_nothing_is_begun_when_the_time_is_up(monkeypatch, written, capsys):
    monkeypatch.setattr(gpu_short, "SECONDS", -1)
    assert gpu_short.main(["--dry"]) == 1
    assert not written and "are up before short, 64 positions, frozen" in capsys.readouterr().out


def test_without_a_gpu_it_says_how_to_rehearse(monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert gpu_short.main([]) == 2
    assert "rehearse with --dry" in capsys.readouterr().out


def test_small_tiles_have_32_mib_whatever_the_card(monkeypatch):
    device, tiles = torch.device("cuda", 0), triton_from_hidden.TILES
    for gib in (24, 80, 141):
        card = SimpleNamespace(total_memory=gib << 30)
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _, card=card: card)
        with gpu_short.small_tiles(device):
            small = triton_from_hidden.TILES.tiling.on(device).elements
        assert small * 4 == pytest.approx(32 << 20, rel=1e-2)
        assert triton_from_hidden.TILES is tiles
