"""The house is in order, and each of its rules notices when it is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import house

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("rule", house.RULES, ids=lambda rule: rule.__name__)
def test_house(rule):
    violations = list(rule(ROOT))
    assert not violations, "\n" + "\n".join(violations)


SOUND = {
    "README.md": (
        "# Name\n\n## A map\n\n```\n"
        "README.md        what it is\n"
        "bench/ csrc/     timing, kernels\n"
        "rrgkern/         the library\n"
        "  ops/           one room\n"
        "  other/         and a second\n"
        "python/rrgtrain/\n"
        "  data/          a package\n"
        "tests/           mirrors\n"
        "```\n"
    ),
    "rrgkern/__init__.py": (
        '"""L."""\nfrom rrgkern.ops import f\nfrom rrgkern.other import g\n__all__ = ["f", "g"]\n'
    ),
    "rrgkern/ops/__init__.py": '"""R."""\n',
    "rrgkern/ops/api.py": '"""A."""\nimport math\nimport torch\ndef f():\n    """F."""\n',
    "rrgkern/ops/reference.py": '"""R."""\n',
    "rrgkern/ops/op.py": '"""O."""\nfrom rrgkern.dispatch import x\ncustom_op("rrgkern::f")\n',
    "rrgkern/ops/triton_f.py": '"""T."""\nimport triton.language as tl\n',
    "rrgkern/ops/README.md": "ops\n",
    "rrgkern/other/__init__.py": '"""R."""\n',
    "rrgkern/other/api.py": '"""A."""\nfrom rrgkern.ops.reference import h\n',
    "rrgkern/other/reference.py": '"""R."""\n',
    "rrgkern/other/README.md": "other\n",
    "csrc/ops/ops.h": "",
    "csrc/ops/cpu.cc": "",
    "csrc/common/tensors.h": "",
    "python/rrgtrain/data/__init__.py": '"""D."""\nimport omegaconf\nfrom rrgkern import f\n',
    "tests/rrgkern/ops/test_f.py": "",
    "tests/rrgkern/other/test_g.py": "",
    "tests/rrgtrain/data/test_d.py": "",
    "bench/ops.py": "",
    "bench/other.py": "",
}

# (rule, path, its new content or None for gone, what the rule must say)
VIOLATIONS = [
    ("rooms_are_complete", "rrgkern/ops/api.py", None, "ops/api.py is missing"),
    ("rooms_are_complete", "rrgkern/ops/reference.py", None, "ops/reference.py is missing"),
    ("rooms_are_complete", "rrgkern/ops/README.md", None, "ops/README.md is missing"),
    ("rooms_are_complete", "rrgkern/other/api.py", 'custom_op("x")', "op.py is missing"),
    ("rooms_are_complete", "rrgkern/ops/api.py", 'custom_op("x")', "registers an op outside op.py"),
    ("rooms_are_complete", "bench/ops.py", None, "bench/ops.py is missing"),
    ("rooms_are_complete", "tests/rrgkern/ops/test_f.py", None, "no test in tests/rrgkern/ops"),
    ("rooms_are_complete", "rrgkern/__init__.py", "", "exports nothing of it"),
    ("rooms_are_complete", "csrc/new/cpu.cc", "", "csrc/new belongs to no room"),
    ("rooms_are_complete", "csrc/ops/ops.h", None, "csrc/ops: ops.h is missing"),
    ("rooms_are_complete", "csrc/ops/cpu.cc", None, "csrc/ops: cpu.cc is missing"),
    ("rooms_are_complete", "tests/rrgtrain/data/test_d.py", None, "rrgtrain.data: no test"),
    ("imports_point_one_way", "rrgkern/ops/api.py", "import rrgtrain.data", "imports rrgtrain"),
    (
        "imports_point_one_way",
        "rrgkern/ops/api.py",
        "def f():\n    from transformers import X",
        "ops/api.py:2: rrgkern imports transformers",
    ),
    ("imports_point_one_way", "rrgkern/csrc.py", "import omegaconf as o", "imports omegaconf"),
    ("imports_point_one_way", "rrgkern/ops/api.py", "import triton", "only triton_*.py"),
    (
        "imports_point_one_way",
        "rrgkern/ops/api.py",
        "from rrgkern.other.api import g",
        "room ops imports itself through other rooms",
    ),
    (
        "imports_point_one_way",
        "python/rrgtrain/data/__init__.py",
        "from rrgkern.ops.reference import f",
        "reaches into rrgkern.ops.reference",
    ),
    (
        "imports_point_one_way",
        "python/rrgtrain/data/__init__.py",
        "from rrgkern import f, _hidden",
        "_hidden is not in rrgkern.__all__",
    ),
    (
        "public_functions_have_docstrings",
        "rrgkern/ops/api.py",
        '"""A."""\ndef f(): pass\n',
        "ops/api.py:2: f has no docstring",
    ),
    (
        "public_functions_have_docstrings",
        "python/rrgtrain/data/__init__.py",
        "class Study: pass\n",
        "Study has no docstring",
    ),
    ("public_functions_have_docstrings", "rrgkern/ops/api.py", "x = 1\n", "no docstring"),
    ("no_paths_of_a_machine", "bench/ops.py", "x = '/" + "home/ann/data'", "bench/ops.py:1"),
    ("no_paths_of_a_machine", "csrc/ops/ops.h", "\n// /" + "root/x", "csrc/ops/ops.h:2"),
    ("readme_map_equals_the_disk", "README.md", "# Name\n", "README.md has no map"),
    ("readme_map_equals_the_disk", "README.md", None, "README.md has no map"),
    ("readme_map_equals_the_disk", "setup.py", "", "leaves out setup.py"),
    ("readme_map_equals_the_disk", "rrgkern/new/api.py", "", "leaves out rrgkern/new"),
    ("readme_map_equals_the_disk", "python/rrgtrain/new/a.py", "", "out python/rrgtrain/new"),
    (
        "readme_map_equals_the_disk",
        "README.md",
        SOUND["README.md"].replace("tests/  ", "tests/ recipes/  "),
        "names recipes, which does not exist",
    ),
]


def plant(root: Path, changes: dict[str, str | None]) -> None:
    for name, content in (SOUND | changes).items():
        if content is not None:
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(content)


@pytest.mark.parametrize("rule", house.RULES, ids=lambda rule: rule.__name__)
def test_a_sound_tree_has_no_violation(rule, tmp_path):
    plant(tmp_path, {})
    assert list(rule(tmp_path)) == []


@pytest.mark.parametrize(("rule", "path", "content", "message"), VIOLATIONS)
def test_each_rule_finds_what_was_planted(rule, path, content, message, tmp_path):
    plant(tmp_path, {path: content})
    violations = list(getattr(house, rule)(tmp_path))
    assert any(message in violation for violation in violations), violations
