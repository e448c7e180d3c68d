"""The page on other trainers has the rows of what is installed, and loses none unnoticed."""

from __future__ import annotations

from importlib import metadata

import pytest

from experiments import trainers


def test_the_page_has_the_rows_of_what_is_installed(monkeypatch, capsys) -> None:
    assert trainers.main(["--check"]) == 0
    rows = [line for line in trainers.table() if line.startswith("| rrgkern")]
    assert len(rows) == 6 and rows[0].split("|")[3] != rows[1].split("|")[3]
    monkeypatch.setattr(trainers, "EPS", 0.3)
    assert trainers.main(["--check"]) == 1
    said = capsys.readouterr().out
    assert "not on other-trainers.md: | rrgkern | grpo |" in said
    assert "on other-trainers.md alone: | rrgkern | grpo |" in said


def test_a_package_that_must_have_rows_is_not_passed_over(monkeypatch) -> None:
    monkeypatch.setitem(trainers.PACKAGES, "no-such-trainer", trainers.of_ours)
    assert trainers.main(["--check"]) == 0
    with pytest.raises(metadata.PackageNotFoundError):
        trainers.main(["--check", "no-such-trainer"])


def test_a_package_that_is_not_there_is_named() -> None:
    with pytest.raises(ModuleNotFoundError, match="no_such_trainer"):
        trainers.alone("no_such_trainer.losses")
