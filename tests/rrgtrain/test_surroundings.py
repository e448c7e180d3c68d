"""Tests do not mind what started them, and a child that dies or calls exit says so."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from rrgtrain.errors import RewardError
from rrgtrain.rewards import RewardService
from rrgtrain.rewards.term_models import SpreadLabeller
from rrgtrain.schema import RewardSettings
from tests.rrgtrain.common import studies
from tests.rrgtrain.runs import command, start_process, started

HERE = Path(__file__).resolve().parent
# Signals, lines for a screen, times, files of a run, words with a home.
SENSITIVE = [
    *("../rrgclinical/common/test_stop.py", "../rrgclinical/common/test_streams.py"),
    *("log/test_logs.py", "state/test_rundir.py", "test_words.py"),
]


def main_of_pytest(home: Path) -> None:
    """Run the sensitive tests; a process forked from the server has imported what they need."""
    report = os.open(home / "report.txt", os.O_WRONLY | os.O_CREAT, 0o666)
    for number in (1, 2):
        os.dup2(report, number)
    os.close(0)
    os.umask(0o077)
    for ignored in (signal.SIGHUP, signal.SIGINT):
        signal.signal(ignored, signal.SIG_IGN)
    for name in [name for name in os.environ if name.startswith(("PYTEST_", "XDG_", "LC_"))]:
        del os.environ[name]
    # a home that cannot be made: it would lie in a file
    hostile = {"HOME": f"{__file__}/home", "COLUMNS": "40", "TZ": "Pacific/Auckland", "LC_ALL": "C"}
    os.environ.update(hostile, TRITON_INTERPRET="0")
    time.tzset()
    os.chdir(home)
    words = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--tb=short"]
    words += ["-c", str(HERE.parents[1] / "pyproject.toml"), f"--basetemp={home / 'blank and é'}"]
    raise SystemExit(pytest.main([*words, *(str(HERE / name) for name in SENSITIVE)]))


def test_sensitive_tests_pass_in_hostile_surroundings(tmp_path: Path) -> None:
    process = start_process(main_of_pytest, tmp_path)
    process.join()
    assert process.exitcode == 0, (tmp_path / "report.txt").read_text()[-6000:]


# A function of one's own that calls exit is an error with its name, and no end of a run.
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
