"""Pages show rows with their age, and say what the rows say."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path

import pytest
import torch

from bench import card, peers, published, rows
from bench.batch import Sizes, draw_layout
from bench.harness import throughput
from bench.published import CODE, age, rows_of_pages
from rrgkern import PolicyLoss, loss_scale, policy_loss
from tests.house.tree import git

ROOT = Path(__file__).parents[2]
H100 = ROOT / "bench/results/nvidia-h100-80gb-hbm3.jsonl"
SOURCES = {
    "rrgkern/policy_loss/api.py": "x = 1\n",
    "csrc/policy_loss/cpu.cc": "int x;\n",
    "rrgkern/mccs/api.py": "x = 1\n",
    "rrgkern/policy_loss/README.md": "a table\n",
}


def test_the_age_of_a_row_is_its_commit_its_day_and_the_files_changed_since(tmp_path) -> None:
    tree = tmp_path / "tree"
    for name, text in SOURCES.items():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text(text)
    for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "first"]):
        git(tree, *words)
    first = git(tree, "rev-parse", "--short=12", "HEAD")
    row = {"room": "policy_loss", "date": "2026-11-26T10:00:00+00:00"}
    for number, name in enumerate(SOURCES):
        (tree / name).write_text("y = 2\n")
        git(tree, "commit", "-q", "-a", "-m", name)
        later = git(tree, "rev-parse", "--short=12", "HEAD")
        assert age(row | {"commit": later}, tree).changed == 0
        published.age_of.__globals__["_files_since"].cache_clear()
        assert age(row | {"commit": first}, tree).changed == min(number + 1, 2), name
    told = str(age(row | {"commit": first}, tree))
    assert told == f"{first[:7]} of 2026-11-26, 2 files of its code changed since"
    # what cannot be told is not made up: no commit, no history, a shallow one
    git(tree, "clone", "-q", "--depth=1", tree.as_uri(), str(tmp_path / "shallow"))
    for commit, home in (
        (f"{first}-dirty", tree),
        ("unknown", tree),
        (first, tmp_path / "shallow"),
        (first, tmp_path),
    ):
        assert age(row | {"commit": commit}, home).changed is None, (commit, home)
    assert "unknown number" in str(age(row | {"commit": first}, tmp_path))


@pytest.mark.skipif(importlib.util.find_spec("latex2mathml") is None, reason="no MkDocs Material")
def test_the_page_draws_every_row_with_its_age(monkeypatch) -> None:
    from docs import hooks

    names = re.findall(r"<!-- rows: (\w+) -->", (ROOT / "docs/performance.md").read_text("utf-8"))
    assert set(names) == set(hooks.TABLES)
    monkeypatch.setattr(published, "age_of", lambda row, *_: AGES[row["commit"]])
    row = {"room": "policy_loss", "case": "x", "provider": "eager", "p50_vs_eager": 1.0}
    planted = [row | {"commit": "new"}, row | {"commit": "old", "provider": "rrgkern"}]
    monkeypatch.setattr(published, "newest", lambda path: planted)
    drawn = hooks._ROWS.sub(hooks._drawn, "<!-- rows: peers -->").splitlines()
    assert [line.rpartition(" | ")[2] for line in drawn] == [
        "commit, day, files changed since |",
        "--- |",
        "new, 2026-11-27, ? |",
        "old, 2026-11-26, 41 |",
    ]


AGES = {
    "new": published.Age("new", "2026-11-27", None),
    "old": published.Age("old", "2026-11-26", 41),
}


def test_the_verdict_of_the_page_is_that_of_the_rows() -> None:
    made = {(row["room"], row["case"], row["provider"]): row for row in published.newest(H100)}
    page = (ROOT / "docs/performance.md").read_text("utf-8")
    logits, head = (line for line in page.splitlines() if line.startswith("**"))
    dense = "dense, forward+backward"
    ours, theirs = (
        made["policy_loss_from_logits", dense, name] for name in ("rrgkern in place", "compiled")
    )
    assert f"{theirs['p50_ms'] / ours['p50_ms']:.1f} times as fast" in logits
    assert f"{ours['p50_ms']:.1f} ms against {theirs['p50_ms']:.1f}" in logits
    assert f"{ours['peak_mib']:.0f} MiB against {theirs['peak_mib']:,.0f}" in logits
    of_head = "linear_policy_loss", "dense, trainable head, forward+backward"
    ours, theirs = made[*of_head, "rrgkern"], made[*of_head, "compiled"]
    assert "behind it" in head and ours["p50_ms"] > theirs["p50_ms"]
    assert f"{ours['p50_ms']:.1f} ms against {theirs['p50_ms']:.1f}" in head
    assert f"{ours['peak_mib']:,.0f} MiB against {theirs['peak_mib']:,.0f}" in head
    assert "a third" in head and 0.3 < ours["peak_mib"] / theirs["peak_mib"] < 0.36
    behind = [
        row["p50_ms"] / made[room, case, "compiled"]["p50_ms"]
        for (room, case, name), row in made.items()
        if (room, name) == ("linear_token_logps", "rrgkern")
    ]
    assert f"by {min(behind):.2f} to" in page


def test_one_row_of_a_card(tmp_path, monkeypatch, capsys) -> None:
    made: list[dict] = []
    monkeypatch.setattr(rows, "append", lambda device, row, folder: made.append(row))
    assert card.main(["--dry", "--models"]) == 0
    assert [row["case"] for row in made] == [
        f"{part}, Qwen2.5-VL-3B" for part in ("loss from logits", "frozen head")
    ]
    for row in made:
        assert json.dumps(row) and row["room"] in CODE and row["kernel_ms"] > 0
        assert row["eager_host_ms"] > 0 and row["copy_gb_s"] > 0
        # a CPU has no clocks, power or allocator to ask: they are absent, not made up
        assert row["device_state"] == {} and not {"allocations", "segments"} & set(row)
    assert throughput(2.0, 4e9, 0.0) == {"gb_s": 2000.0}
    assert throughput(2.0, 0.0, 8e12) == {"tflop_s": 4000.0} and not throughput(None, 1.0, 1.0)


def test_pages_quote_rows_of_the_gpu() -> None:
    rows = published.newest(H100)
    page = (ROOT / "docs" / "performance.md").read_text("utf-8")
    first = (ROOT / "README.md").read_text("utf-8").replace("*", "")
    quoted = {
        "from logits, in place": ("policy_loss_from_logits", "dense, forward+backward"),
        "from hidden states": ("linear_policy_loss", "domain, trainable head, forward+backward"),
        "with the head, every": ("linear_policy_loss", "dense, trainable head, forward+backward"),
    }
    for start, (room, case) in quoted.items():
        line = next(line for line in page.splitlines() if line.startswith(f"| {start}"))
        of_case = [row for row in rows if (row["room"], row["case"]) == (room, case)]
        best = {"liger-triton", "cce-exact"} & {row["provider"] for row in of_case}
        ours = "rrgkern in place" if room.endswith("logits") else "rrgkern"
        cells = line.replace("*", "").split("|")[2:6]
        for cell, name in zip(cells, (ours, "eager", "compiled", *best), strict=True):
            (row,) = (row for row in of_case if row["provider"] == name)
            mib = f"{row['peak_mib']:.1f}" if row["peak_mib"] < 0.5 else f"{row['peak_mib']:,.0f}"
            assert f"{row['p50_ms']:.1f} ms, {mib} MiB" in cell, (start, name)
            assert room.startswith("linear") or f"{row['p50_ms']:.1f} ms" in first, name
    (step,) = (row for row in rows if row["room"] == "update_step" and row["layers"] == 36)
    assert f"update {step['seconds/update']:.1f} s" in page
    assert f"sampling by transformers {step['seconds/rollout']:.1f} s" in page.replace("\n", " ")
    assert f"{step['peak_mib'] / 1024:.1f} GiB" in page


def test_the_code_of_every_row_is_there() -> None:
    assert {published.name_of(row) for row in rows_of_pages()} <= set(CODE)
    assert not [p for name in CODE for p in published.paths_of(name) if not (ROOT / p).is_dir()]


# Rows name the commit that was measured.
def test_a_tree_is_dirty_by_a_changed_file_but_not_by_rows(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(rows, "ROOT", tmp_path)
    monkeypatch.delenv("RRGKERN_COMMIT", raising=False)
    assert rows.commit() == "unknown"
    results = tmp_path / "bench" / "results" / "cpu.jsonl"
    results.parent.mkdir(parents=True)
    source = tmp_path / "a.py"
    for file in (results, source):
        file.write_text("")
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "first"]):
        git(tmp_path, *words)
    head = git(tmp_path, "rev-parse", "--short=12", "HEAD")
    assert rows.commit() == head
    results.write_text("{}\n")
    assert rows.commit() == head
    source.write_text("x = 1\n")
    assert rows.commit() == f"{head}-dirty"


# The register of peers, without any of them installed; tests/parity runs them.
CPU = torch.device("cpu")


def test_what_is_missing_is_said_in_one_line(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    reasons = {peer.name: peer.why_not(CPU) for peer in peers.PEERS}
    assert reasons["cce-exact"] == "cuda only"
    assert reasons["trl-head"] == ("trl is not installed: see tests/parity/requirements.txt")
    cuda = torch.device("cuda")
    assert peers.provider("cce-exact").why_not(cuda).startswith("cut-cross-entropy is not")
    assert peers.provider("quack-ce").why_not(cuda) == (
        "quack-kernels is not installed: pip install 'quack-kernels[cu13]', too large for .whl/"
    )


def test_the_loss_behind_a_head_is_the_one_of_this_library():
    batch = draw_layout(Sizes(groups=5, members=3, length=20, width=0, vocabulary=9), "domain", 3)
    generator = torch.Generator().manual_seed(3)
    leaf = (-torch.rand(batch.mask.shape, generator=generator)).requires_grad_()
    old = (leaf + 3 * batch.old).detach()
    loss = peers.clip_loss(leaf, batch.advantages, old, batch.mask)
    (theirs,) = torch.autograd.grad(loss, leaf)

    offsets = torch.arange(0, batch.mask.numel() + 1, batch.mask.shape[1])
    mask = batch.mask.flatten()
    out = policy_loss(
        leaf.flatten(),
        batch.advantages,
        offsets,
        scale=loss_scale("grpo", offsets, mask=mask),
        old=old.flatten(),
        mask=mask,
        spec=PolicyLoss(eps_low=peers.EPSILON, eps_high=peers.EPSILON),
    )
    (ours,) = torch.autograd.grad(out.loss, leaf)
    assert out.metrics["clip_low"] > 0 and out.metrics["clip_high"] > 0
    torch.testing.assert_close(loss, out.loss, rtol=1e-5, atol=1e-7)
    torch.testing.assert_close(theirs, ours, rtol=1e-5, atol=1e-8)
