"""The house is in order, and each of its rules notices when it is not."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests import house
from tests.house import exceptions, plan, rules
from tests.house.planted import HARMLESS, SOUND, VIOLATIONS
from tests.house.tree import files

ROOT = Path(__file__).parents[1]
NAMED = {rule.__name__: rule for rule in house.RULES}


@pytest.mark.parametrize("rule", house.RULES, ids=lambda rule: rule.__name__)
def test_house(rule):
    violations = house.over(rule, ROOT)
    assert not violations, "\n" + "\n".join(violations)


def plant(root: Path, changes: dict[str, str | None]) -> None:
    for name, content in (SOUND | changes).items():
        if content is not None:
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(content)


def test_the_plan_allows_no_more_than_is_needed():
    needless = list(exceptions.needless(ROOT))
    assert not needless, "\n" + "\n".join(needless)


@pytest.mark.parametrize("rule", house.RULES, ids=lambda rule: rule.__name__)
def test_a_sound_tree_has_no_violation(rule, tmp_path):
    plant(tmp_path, {})
    assert list(rule(tmp_path)) == []


@pytest.mark.parametrize(("rule", "path", "content", "message"), VIOLATIONS)
def test_each_rule_finds_what_was_planted(rule, path, content, message, tmp_path):
    plant(tmp_path, {path: content})
    violations = list(NAMED[rule](tmp_path))
    assert any(message in violation for violation in violations), violations


@pytest.mark.parametrize(("rule", "path", "content"), HARMLESS)
def test_no_rule_minds_what_is_allowed(rule, path, content, tmp_path):
    plant(tmp_path, {path: content})
    assert list(NAMED[rule](tmp_path)) == []


def test_every_rule_has_a_violation_planted():
    planted = {rule for rule, *_ in VIOLATIONS}
    assert planted == {rule.__name__ for rule in house.RULES}


def test_a_limit_holds_back_what_it_allows_and_not_one_more(tmp_path, monkeypatch):
    plant(tmp_path, {"csrc/ops/ops.h": "//\n" * 401, "bench/ops.py": "#\n" * 401})
    monkeypatch.setitem(plan.LIMITS, "files_are_short", 2)
    assert house.over(rules.files_are_short, tmp_path) == []
    monkeypatch.setitem(plan.LIMITS, "files_are_short", 1)
    assert house.over(rules.files_are_short, tmp_path)[-1] == (
        "files_are_short: 2 violations, at most 1"
    )


def test_a_room_s_own_tests_open_what_is_named_and_others_do_not(tmp_path, monkeypatch):
    opens = "from rrgkern.ops import triton_f"
    plant(tmp_path, {"tests/rrgkern/ops/test_f.py": opens, "tests/rrgkern/other/test_g.py": opens})
    both = list(rules.tests_and_benches_use_doors(tmp_path))
    monkeypatch.setattr(plan, "OPENED", {"rrgkern.ops": "triton_f"})
    other = list(rules.tests_and_benches_use_doors(tmp_path))
    assert len(both) == 2 and [line.split(":")[0] for line in other] == [
        "tests/rrgkern/other/test_g.py"
    ]


def test_a_file_has_no_more_vague_locals_than_it_may(tmp_path, monkeypatch):
    monkeypatch.setattr(plan, "VAGUE_LOCALS", {"rrgkern/ops": "api 1 op 1"})
    plant(tmp_path, {"rrgkern/ops/api.py": "found = 1", "rrgkern/ops/op.py": "found = seen = 1"})
    (violation,) = rules.words.locals_say_what_they_hold(tmp_path)
    assert violation == "rrgkern/ops/op.py: 2 locals named found, seen, at most 1"


def test_an_exception_that_is_mended_and_a_limit_that_is_too_wide_are_told(tmp_path, monkeypatch):
    plant(tmp_path, {"csrc/ops/ops.h": "//\n" * 401, "bench/other.py": "#\n"})
    monkeypatch.setattr(plan, "INNER", {("rrgkern.other.api", "rrgkern.ops.triton_f")})
    monkeypatch.setattr(plan, "OWN_JSON", {"rrgtrain.state.study"})
    monkeypatch.setattr(plan, "SAME_NAME", {"rrgtrain:Study"})
    monkeypatch.setattr(plan, "LONG_FILES", {"csrc/ops/ops.h": 450, "bench/other.py": 500})
    monkeypatch.setattr(plan, "DOORS", {"rrgtrain.state": "study images"})
    monkeypatch.setattr(plan, "OPENED", {"rrgkern.ops": "triton_f"})
    monkeypatch.setattr(plan, "LIMITS", {"first_lines_are_plain": 2})
    monkeypatch.setattr(plan, "VAGUE_LOCALS", {"python/rrgtrain/state": "study 1"})
    assert [line.split(",")[0] for line in exceptions.needless(tmp_path)] == [
        "INNER: ('rrgkern.other.api'",
        "OWN_JSON: rrgtrain.state.study is mended",
        "SAME_NAME: rrgtrain:Study is mended",
        "LONG_FILES: csrc/ops/ops.h has 401 lines",
        "LONG_FILES: bench/other.py has 1 lines",
        "DOORS: no other room",
        "DOORS: no other room",
        "OPENED: no test of the room opens rrgkern.ops.triton_f",
        "LIMITS: first_lines_are_plain has 0 violations",
        "VAGUE_LOCALS: python/rrgtrain/state/study.py has 0",
    ]


@pytest.fixture(scope="module")
def copied(tmp_path_factory):
    root = tmp_path_factory.mktemp("house")
    for path in files(ROOT, ".py", ".toml"):
        where = path.relative_to(ROOT)
        if where.parts[0] in ("rrgkern", "python", "pyproject.toml"):
            (root / where).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, root / where)
    return root


@pytest.mark.parametrize(
    ("path", "line", "contract"),
    [
        (None, "", "0 broken"),
        ("rrgkern/padded.py", "import rrgtrain.errors", "A package imports those beneath it"),
        ("python/rrgdata/study.py", "import rrgkern.padded", "Studies and pages call no kernel"),
        ("python/rrgdata/study.py", "import tests.tolerance", "Nothing imports tests"),
        ("python/rrgpolicy/ranks/ranks.py", "import rrgpolicy.model", "The floors of rrgpolicy"),
        ("python/rrgpolicy/new.py", "", "The floors of rrgpolicy"),
        ("python/rrgtrain/state/tree.py", "import rrgtrain.train", "The floors of rrgtrain"),
        ("python/rrgtrain/commands/command.py", "import rrgtrain.commands.started", "Rooms, and"),
        ("rrgkern/logps/api.py", "import rrgkern.policy_loss.api", "Rooms, and"),
    ],
)
def test_the_contracts_of_imports_break(path, line, contract, copied):
    """Imports inside functions too."""
    planted = copied / (path or "pyproject.toml")
    sound = planted.read_text() if planted.exists() else None
    if path:
        planted.write_text(f"{sound or ''}\n\ndef _late():\n    {line or 'pass'}\n")
    try:
        paths = f"{copied}{os.pathsep}{copied}/python"
        environment = {**os.environ, "PYTHONPATH": paths}
        command = [Path(sys.executable).parent / "lint-imports", "--no-logo", "--no-cache"]
        run = subprocess.run(
            command, cwd=copied, env=environment, capture_output=True, text=True, check=False
        )
        assert re.search(rf"{contract}.*BROKEN" if path else contract, run.stdout), run.stdout
    finally:
        planted.write_text(sound) if sound is not None else planted.unlink()


@pytest.mark.gate
def test_a_run_enters_no_more_lines_than_its_cap() -> None:
    """Of all packages, so that a move from one into another gains nothing."""
    # in a process that has run nothing else
    command = [sys.executable, "-m", "tests.house", "--trace"]
    world = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT, env=world)
    out = done.stdout
    before = int(re.search(r"first step: ([\d,]+) lines", out)[1].replace(",", ""))
    assert before <= plan.CAPS["before step 1"], out
