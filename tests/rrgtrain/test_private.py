"""Text of reports is readable by its owner alone, and one page names every place where it ends."""

from __future__ import annotations

import csv
import gzip
import os
from pathlib import Path

import pytest
from PIL import Image

from rrgclinical.store import Store
from rrgdata.file_memory import FileMemory
from rrgtrain.cli import main
from tests.rrgtrain.common import SMALL_POLICY

CANARIES = {"report": "zanzibarium", "indication": "quokkaitis", "id": "study-xyzzy"}
PAGE = Path(__file__).parents[2] / "docs" / "warnings.md"


def readable_by_others(folder: Path) -> list[str]:
    return [str(p) for p in folder.rglob("*") if p.is_file() and p.stat().st_mode & 0o077]


def test_caches_are_private_whatever_the_umask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    before = os.umask(0o022)
    try:
        Store(tmp_path / "store", "model").put("key", b"text of a report")
        memory = FileMemory("reports", tmp_path, "1", "nothing is kept")
        memory.keep([(tmp_path / "a", (1, 1), "text of a report")])
    finally:
        os.umask(before)
    assert memory.path.is_file() and readable_by_others(tmp_path) == []
    assert memory.path.parent.stat().st_mode & 0o077 == 0


def table(folder: Path) -> Path:
    """Write a table of studies whose texts hold the canaries."""
    Image.linear_gradient("L").resize((64, 48)).save(folder / "image.png")
    with (folder / "data.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["id", "split", "images", "report", "indication"])
        for number, split in enumerate(["train"] * 4 + ["val", "test"]):
            report = f"Small effusion of the {CANARIES['report']}. Lungs are clear."
            rows.writerow(
                [f"{CANARIES['id']}{number}", split, "image.png", report, CANARIES["indication"]]
            )
    return folder / "data.csv"


def places_of(word: str, *folders: Path) -> set[str]:
    """Name the files that hold a word, as the page names them."""
    found = set()
    for path in (p for folder in folders for p in folder.rglob("*") if p.is_file()):
        content = path.read_bytes()
        if path.suffix == ".gz":
            content = gzip.decompress(content)
        if word.encode() in content:
            name = {
                ".gz": "steps/*.json.gz",
                ".pt": "resume/*/state.pt",
                ".sqlite": f"{path.name.split('-')[0]}-*.sqlite",
            }
            found.add(name.get(path.suffix, path.name))
    return found


def test_the_page_names_every_place_where_a_text_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    data = [f"data.root={table(tmp_path)}", "data.source=table", "data.workers=0"]
    small = [word for word in SMALL_POLICY if not word.startswith("data.")]
    short = ["eval.max_new_tokens=6", "rl.max_new_tokens=6", "eval.bootstrap=5", "eval.samples=1"]
    short += ["sft.steps=1", "rl.steps=1", "rl.prompts=2", "rl.group=2", "sft.batch=2"]
    words = [*data, *small, *short]
    before = os.umask(0o022)
    try:
        assert main(["data", "check", str(tmp_path / "data.csv")]) == 0
        assert main(["sft", "--out", "runs/sft", *words, "checkpoint.steps=1"]) == 0
        tuned = "runs/sft/checkpoints/sft"
        assert (
            main(["rl", "--from", tuned, "--out", "runs/rl", *data, *short, "log.records=1"]) == 0
        )
        assert main(["generate", tuned, ".", "--out", "runs/written.jsonl", *short[:1]]) == 0
        assert main(["export", "runs/rl/checkpoints/editgrpo", "--out", "exported"]) == 0
    finally:
        os.umask(before)
    assert readable_by_others(tmp_path / "runs") == [] != readable_by_others(tmp_path / "exported")
    page = PAGE.read_text(encoding="utf-8").partition("## Where text ends up")[2]
    for kind, word in CANARIES.items():
        places = places_of(word, tmp_path / "runs", tmp_path / "cache", tmp_path / "exported")
        assert places, kind
        unnamed = [place for place in places if f"`{place}`" not in page]
        assert not unnamed, (kind, unnamed)
