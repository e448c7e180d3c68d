"""A small sound tree, violations to plant in it, and what no rule may mind."""

from __future__ import annotations

from tests.house import plan
from tests.house.planted_tools import MAKEFILE, PYPROJECT, TOOLS

SOUND = {
    "pyproject.toml": PYPROJECT,
    "Makefile": MAKEFILE,
    ".ci/run": "stages lint test\n",
    "README.md": "# Name\n",
    "CONTRIBUTING.md": (
        "# Contributing\n\n## A map\n\n```\n"
        "README.md        what it is\n"
        "CONTRIBUTING.md  this page\n"
        "bench/ csrc/     timing, kernels\n"
        "rrgkern/         the library\n"
        "  ops/           one room\n"
        "  other/         and a second\n"
        "python/rrgtrain/\n"
        "  state/ train/  two rooms\n"
        "python/rrgclinical/\n"
        "python/rrgdata/  flat\n"
        "tests/           mirrors\n"
        "Makefile pyproject.toml\n"
        "```\n"
    ),
    "rrgkern/__init__.py": (
        '"""L."""\nfrom rrgkern.ops import f\nfrom rrgkern.other import g\n__all__ = ["f", "g"]\n'
    ),
    "rrgkern/ops/__init__.py": '"""R."""\nfrom rrgkern.ops.api import f\n',
    "rrgkern/ops/api.py": '"""A."""\nimport math\nimport torch\ndef f():\n    """F."""\n',
    "rrgkern/ops/reference.py": '"""R."""\n',
    "rrgkern/ops/op.py": '"""O."""\nfrom rrgkern.dispatch import x\ncustom_op("rrgkern::f")\n',
    "rrgkern/ops/triton_f.py": (
        '"""T."""\nimport triton.language as tl\n'
        "@triton.jit(x=1)\ndef _kernel(x): ...\ndef _launch(x) -> None: ...\n"
    ),
    "rrgkern/ops/README.md": "ops\n",
    "rrgkern/other/__init__.py": '"""R."""\n',
    "rrgkern/other/api.py": '"""A."""\nfrom rrgkern.ops.reference import h\n',
    "rrgkern/other/reference.py": '"""R."""\n',
    "rrgkern/other/README.md": "other\n",
    "csrc/ops/ops.h": "",
    "csrc/ops/cpu.cc": "",
    "csrc/common/tensors.h": "",
    "python/rrgtrain/state/__init__.py": '"""D."""\nimport omegaconf\nfrom rrgkern import f\n',
    "tests/rrgkern/ops/test_f.py": "",
    "tests/rrgkern/other/test_g.py": "",
    "python/rrgtrain/state/study.py": '"""S."""\nclass Study:\n    """S."""\n',
    "python/rrgtrain/train/__init__.py": '"""T."""\nfrom rrgtrain.state import Study\n',
    "python/rrgclinical/__init__.py": '"""C."""\nfrom rrgkern import g\n',
    "python/rrgdata/__init__.py": '"""P."""\nfrom rrgclinical.labels import L\n',
    "tests/rrgtrain/state/test_d.py": "from rrgkern.ops.reference import h\n",
    "tests/rrgtrain/test_train_loop.py": "",
    "tests/rrgclinical/test_c.py": "",
    "tests/rrgdata/test_p.py": "",
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
    ("rooms_are_complete", "tests/rrgtrain/state/test_d.py", None, "rrgtrain.state: no test"),
    (
        "the_library_has_one_door",
        "rrgkern/ops/api.py",
        "def f():\n    from transformers import X",
        "ops/api.py:2: rrgkern imports transformers",
    ),
    ("the_library_has_one_door", "rrgkern/csrc.py", "import omegaconf as o", "imports omegaconf"),
    ("the_library_has_one_door", "rrgkern/ops/api.py", "import triton", "only triton_*.py"),
    (
        "the_library_has_one_door",
        "python/rrgtrain/state/__init__.py",
        "from rrgkern.ops.reference import f",
        "reaches into rrgkern.ops.reference",
    ),
    (
        "the_library_has_one_door",
        "python/rrgtrain/state/__init__.py",
        "from rrgkern import f, _hidden",
        "_hidden is not in rrgkern.__all__",
    ),
    ("no_paths_of_a_machine", "bench/ops.py", "x = '/" + "home/ann/data'", "bench/ops.py:1"),
    ("no_paths_of_a_machine", "csrc/ops/ops.h", "\n// /" + "root/x", "csrc/ops/ops.h:2"),
    ("the_map_equals_the_disk", "CONTRIBUTING.md", "# Name\n", "CONTRIBUTING.md has no map"),
    ("the_map_equals_the_disk", "CONTRIBUTING.md", None, "CONTRIBUTING.md has no map"),
    ("the_map_equals_the_disk", "setup.py", "", "leaves out setup.py"),
    ("the_map_equals_the_disk", "rrgkern/new/api.py", "", "leaves out rrgkern/new"),
    ("the_map_equals_the_disk", "python/rrgtrain/new/a.py", "", "out python/rrgtrain/new"),
    ("rooms_are_complete", "tests/rrgtrain/test_train_loop.py", None, "rrgtrain.train: no test"),
    ("rooms_are_complete", "tests/rrgdata/test_p.py", None, "rrgdata: no test"),
    ("rooms_are_complete", "experiments/new/a.py", "", "experiments.new: no test"),
    ("the_library_has_one_door", "rrgkern/ops/api.py", "import tests.t", "imports tests.t"),
    (
        "the_library_has_one_door",
        "python/rrgclinical/labels.py",
        "from rrgkern.ops.api import f",
        "rrgclinical reaches into rrgkern.ops.api",
    ),
    (
        "rooms_are_entered_by_their_doors",
        "rrgkern/other/api.py",
        "from rrgkern.ops.triton_f import k",
        "other/api.py:1: rrgkern.ops.triton_f is an inner file of another room",
    ),
    (
        "rooms_are_entered_by_their_doors",
        "rrgkern/other/api.py",
        "from rrgkern.ops import triton_f",
        "rrgkern.ops.triton_f is an inner file of another room",
    ),
    (
        "rooms_are_entered_by_their_doors",
        "python/rrgtrain/train/__init__.py",
        "from rrgtrain.state.secret import x",
        "rrgtrain.state.secret is an inner file",
    ),
    (
        "tests_and_benches_use_doors",
        "bench/ops.py",
        "from rrgkern.ops import op, triton_f",
        "bench/ops.py:1: rrgkern.ops.triton_f is an inner file",
    ),
    (
        "tests_and_benches_use_doors",
        "tests/rrgtrain/state/test_d.py",
        "import rrgtrain.state.secret",
        "rrgtrain.state.secret is an inner file",
    ),
    (
        "class_names_are_unique",
        "python/rrgtrain/train/loop.py",
        "class Study: pass",
        "rrgtrain: class Study is defined in rrgtrain.state.study, rrgtrain.train.loop",
    ),
    ("files_are_short", "csrc/ops/ops.h", "//\n" * 401, "csrc/ops/ops.h has 401 lines"),
    ("files_are_short", "tests/rrgkern/ops/test_f.py", "#\n" * 401, "test_f.py has 401 lines"),
    (
        "json_has_one_reader",
        "python/rrgtrain/state/study.py",
        "import json\nx = json.loads('1')\n",
        "study.py:2: json.loads",
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
    (
        "weights_are_capped",
        "rrgkern/ops/op.py",
        "def f(x):\n    if x:\n        raise ValueError(x)\n    try:\n        x()\n"
        "    except OSError:\n        warnings.warn(x)\n",
        "refusals, % of packages: ",
    ),
    (
        "rooms_take_their_section",
        "python/rrgtrain/state/study.py",
        "def f(a: int, *, whole: Recipe | None = None): pass",
        "study.py:1: f takes the whole recipe as whole",
    ),
    (
        "first_lines_are_plain",
        "python/rrgdata/__init__.py",
        '"""What is drawn."""',
        "rrgdata/__init__.py:1: the module: the first line begins with What",
    ),
    (
        "first_lines_are_plain",
        "rrgkern/ops/api.py",
        'def f():\n    """' + "word " * 16 + '"""',
        "rrgkern/ops/api.py:2: f: the first line has 16 words, at most 15",
    ),
    ("named_files_exist", "rrgkern/ops/README.md", "see\n`gone.py`", "README.md:2: gone.py is no"),
    ("named_files_exist", "rrgkern/ops/README.md", "old/reference.py", "old/reference.py is no"),
    ("named_files_exist", "Makefile", "t:\n\tpython -m rrgkern.old", "Makefile:2: rrgkern.old is"),
    (
        "named_files_exist",
        "rrgkern/ops/op.py",
        'register(op, "rrgkern.old.triton_f", "launcher")',
        "ops/op.py:1: rrgkern.old.triton_f is no module",
    ),
    (
        "named_files_exist",
        "rrgkern/ops/op.py",
        'resolve("rrgkern.ops.api:gone")',
        "rrgkern.ops.api:gone is no module",
    ),
    ("the_map_equals_the_disk", "python/rrgclinical/new/a.py", "", "rrgclinical/new"),
    ("the_map_equals_the_disk", "experiments/new/a.py", "", "out experiments/new"),
    (
        "the_map_equals_the_disk",
        "CONTRIBUTING.md",
        SOUND["CONTRIBUTING.md"].replace("python/rrgdata", "python/rrgtrain"),
        "leaves out python/rrgdata",
    ),
    (
        "the_map_equals_the_disk",
        "CONTRIBUTING.md",
        SOUND["CONTRIBUTING.md"].replace("tests/  ", "tests/ recipes/  "),
        "names recipes, which does not exist",
    ),
    ("locals_say_what_they_hold", "rrgkern/ops/api.py", "found = 1\n", "1 locals named found"),
    (
        "locals_say_what_they_hold",
        "python/rrgdata/load.py",
        "def f(wanted):\n    for seen in wanted:\n        told, x = seen\n    g = lambda kept: x\n",
        "python/rrgdata/load.py: 4 locals named kept, seen, told, wanted, at most 0",
    ),
    (
        "locals_say_what_they_hold",
        "python/rrgtrain/train/loop.py",
        "with f() as given:\n    x = [asked for asked in given]\nif (known := x): pass\n",
        "3 locals named asked, given, known",
    ),
    *TOOLS,
]


# (rule, path, its new content), which the rule must let pass
HARMLESS = [
    (
        "rooms_take_their_section",
        "python/rrgtrain/state/study.py",
        "def f(a: RecipeFile, recipe, *rest: int) -> Recipe: pass",
    ),
    ("rooms_are_entered_by_their_doors", "rrgkern/ops/api.py", "import rrgkern.ops.triton_f"),
    (
        "rooms_are_entered_by_their_doors",
        "rrgkern/ops/triton_f.py",
        "from rrgkern.triton_lib.exact import e",
    ),
    (
        "rooms_are_entered_by_their_doors",
        "python/rrgtrain/train/__init__.py",
        "from rrgtrain.state.store import read",
    ),
    ("tests_and_benches_use_doors", "bench/ops.py", "from rrgkern.ops.api import f"),
    ("class_names_are_unique", "python/rrgclinical/labels.py", "class Study: pass"),
    ("named_files_exist", "rrgkern/ops/README.md", "ops/reference.py, triton_f.py, ../x.py"),
    ("named_files_exist", "rrgkern/ops/op.py", 'f("rrgkern.ops.triton_f", "rrgkern.ops.api:f")'),
    ("first_lines_are_plain", "rrgkern/ops/api.py", 'def _f():\n    """Where it goes."""'),
    (
        "the_library_has_one_door",
        "python/rrgtrain/state/__init__.py",
        "import rrgdata, rrgclinical.labels\nfrom rrgkern import f",
    ),
    ("locals_say_what_they_hold", "rrgkern/ops/api.py", "x.found, y = f(known=z), unseen"),
    ("locals_say_what_they_hold", "bench/ops.py", "found = 1"),
]
