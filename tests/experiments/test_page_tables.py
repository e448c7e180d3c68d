"""Tables of docs have the rows of what is installed, and lose none unnoticed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from experiments import data_files, metrics, processors, readers, trainers

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
