"""The page on other trainers has the rows of what is installed, and loses none unnoticed."""

from __future__ import annotations

import pytest

from experiments import trainers


def test_the_page_has_the_rows_of_what_is_installed(monkeypatch, capsys) -> None:
    assert trainers.main(["--check"]) == 0
    rows = [line for line in trainers.table() if line.startswith("| rrgkern")]
    assert len(rows) == 6 and rows[0].split("|")[3] != rows[1].split("|")[3]
    monkeypatch.setattr(trainers, "EPS", 0.3)
    assert trainers.main(["--check"]) == 1
    assert "not on other-trainers.md: | rrgkern | grpo |" in capsys.readouterr().out


def test_a_package_that_is_not_there_is_named() -> None:
    with pytest.raises(ModuleNotFoundError, match="no_such_trainer"):
        trainers.alone("no_such_trainer.losses")
