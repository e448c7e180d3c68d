"""A function of one's own that calls exit is an error with its name, and no end of a run."""

from __future__ import annotations

from pathlib import Path

import pytest

from rrgtrain.errors import RewardError
from rrgtrain.rewards import RewardService
from rrgtrain.rewards.term_models import SpreadLabeller
from rrgtrain.schema import RewardSettings
from tests.rrgtrain.common import studies
from tests.rrgtrain.runs import command, started

LEAVES = "def f(*_, **__):\n    raise SystemExit(0)\n"


def leave(*_: object, **__: object) -> None:
    raise SystemExit(0)


@pytest.mark.parametrize("setting", ["data.source", "rl.algorithm", "rollout.engine"])
@pytest.mark.parametrize("text", ["raise SystemExit(0)\n", LEAVES])
def test_code_that_calls_exit_is_bad_input(setting: str, text: str, tmp_path: Path) -> None:
    (tmp_path / "own_exit.py").write_text(text)
    done = command(*started(f"{setting}=own_exit:f"), cwd=tmp_path)
    assert done.status == 2 and "own_exit" in done.last and "exit" in done.last.lower(), done.err


def test_a_term_and_a_labeller_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run ended with status 0 and no line, and a script went on to evaluate it."""
    (tmp_path / "own_exit_term.py").write_text(LEAVES)
    monkeypatch.syspath_prepend(tmp_path)
    service = RewardService(RewardSettings(terms={"own_exit_term:f": 1.0}))
    line = r"^reward term own_exit_term:f failed: SystemExit: 0 \(own_exit_term.py:2\)"
    with pytest.raises(RewardError, match=line):
        service(["Edema."], studies(1))
    monkeypatch.setattr(service.labeller, "label", leave)
    with pytest.raises(RewardError, match="^labels of reports cannot be read: SystemExit: 0"):
        SpreadLabeller(service.labeller).label(["Edema."])
