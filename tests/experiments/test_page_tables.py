"""Tables of docs have the rows of what is installed, and lose none unnoticed."""

from __future__ import annotations

from dataclasses import replace
from importlib import metadata

import pytest

from experiments import data_files, metrics, page_table, processors, readers, trainers
from experiments.page_table import PageTable

MODULES = (data_files, metrics, processors, readers, trainers)
TABLES = {module.__name__: module.TABLE for module in MODULES}


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_the_page_has_the_rows_of_what_is_installed(table, capsys) -> None:
    # METEOR's program takes long to start; `make night` has it
    packages = {k: rows for k, rows in table.packages.items() if not k.startswith("java")}
    table = replace(table, packages=packages)
    assert table.main(["--check", "rrgkern"]) == 0, capsys.readouterr().out


def test_what_differs_is_shown(monkeypatch, capsys) -> None:
    monkeypatch.setattr(trainers, "EPS", 0.3)
    assert trainers.TABLE.main(["--check"]) == 1
    said = capsys.readouterr().out
    assert "not on other-trainers.md: | rrgkern | grpo |" in said
    assert "on other-trainers.md alone: | rrgkern | grpo |" in said


def _table(**packages: str) -> PageTable:
    rows = {name: lambda cell=cell: iter([[cell]]) for name, cell in packages.items()}
    return PageTable("a.script", "a.md", ("x",), rows)


def test_what_is_written_leaves_the_rows_of_what_is_not_installed(monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(page_table, "DOCS", tmp_path)
    page = tmp_path / "a.md"
    page.write_text("# A\n\n<!-- written by python -m a.script -->\n<!-- end -->\n\nB\n")
    version = metadata.version("numpy")
    assert _table(rrgkern="1", numpy="2").main(["--write"]) == 0
    lines = page.read_text().splitlines()
    assert lines[4:8] == ["| | x |", "|---|---|", "| rrgkern | 1 |", f"| numpy {version} | 2 |"]
    text = page.read_text().replace(f"numpy {version}", "no-such-package 1.0")
    page.write_text(text)
    absent = _table(rrgkern="1", **{"no-such-package": "3"})
    assert absent.main(["--write"]) == 0 and page.read_text() == text
    assert absent.main(["--check"]) == 0
