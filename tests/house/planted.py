"""A small sound tree, violations to plant in it, and what no rule may mind, from a table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from tests.house import plan

_TABLE: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("violations.yaml").read_text())
SOUND: dict[str, str] = _TABLE["sound"]


def _planted(path: str, content: str | dict[str, str] | None) -> str | None:
    """Return the new content of a file; a mapping changes pieces of the sound one."""
    if not isinstance(content, dict):
        return content
    text = SOUND[path]
    for old, new in content.items():
        text = text.replace(old, new) if old else text + new
    return text


_WORDY = 'def f():\n    """' + "word " * 16 + '"""'
# Violations whose content is long, or may not stand in a file of this tree.
_COMPUTED = [
    ("no_paths_of_a_machine", "bench/ops.py", "x = '/" + "home/ann/data'", "bench/ops.py:1"),
    ("no_paths_of_a_machine", "csrc/ops/ops.h", "\n// /" + "root/x", "csrc/ops/ops.h:2"),
    ("files_are_short", "csrc/ops/ops.h", "//\n" * 401, "csrc/ops/ops.h has 401 lines"),
    ("files_are_short", "tests/rrgkern/ops/test_f.py", "#\n" * 401, "test_f.py has 401 lines"),
    (
        "first_lines_are_plain",
        "rrgkern/ops/api.py",
        _WORDY,
        "api.py:2: f: the first line has 16 words",
    ),
    *(
        ("weights_are_capped", place, "#\n" * (int(plan.CAPS[name]) + 1), f"{name}: ")
        for name, place in (
            ("rrgtrain", "python/rrgtrain/state/study.py"),
            ("csrc", "csrc/ops/ops.h"),
            ("packages and csrc", "rrgkern/ops/op.py"),
            ("tests", "tests/rrgkern/ops/test_f.py"),
        )
    ),
]
# (rule, path, its new content or None for gone, what the rule must say)
VIOLATIONS = [
    *((rule, path, _planted(path, new), said) for rule, path, new, said in _TABLE["violations"]),
    *_COMPUTED,
]
# (rule, path, its new content), which the rule must let pass
HARMLESS = [(rule, path, content) for rule, path, content in _TABLE["harmless"]]
