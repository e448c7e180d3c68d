"""Violations of the rules about tools, to plant in the sound tree of `planted.py`."""

from __future__ import annotations

PYPROJECT = """[tool.importlinter]
root_packages = ["rrgkern", "rrgtrain", "rrgclinical", "rrgdata"]
[tool.pytest.ini_options]
testpaths = ["tests"]
[tool.mypy]
files = ["rrgkern", "python", "tests", "bench", "experiments", "setup.py"]
"""
MAKEFILE = """.PHONY: test lint help
help:
\t@echo test lint
test: made
\tpython -m pytest -q $(if $(ORDER),--shuffle) tests
lint:
\tpython -m ruff check .
\tpython -m ruff format --check .
\tpython -m mypy
\t.venv/bin/lint-imports --no-logo
"""

# (rule, path, its new content, what the rule must say)
TOOLS = [
    ("tests_are_collected", "tests/rrgtrain/dist/test_d.py", "", "no folder called dist"),
    ("tests_are_collected", "tests/build/inner/test_d.py", "", "no folder called build"),
    ("tests_are_collected", "bench/test_d.py", "", "bench/test_d.py lies outside tests/"),
    (
        "tests_are_collected",
        "pyproject.toml",
        PYPROJECT.replace("tests", "tests/rrgkern"),
        'wanted testpaths = ["tests"]',
    ),
    (
        "tests_are_collected",
        "pyproject.toml",
        PYPROJECT.replace("[tool.mypy]", 'norecursedirs = ["op*"]\n[tool.mypy]'),
        "tests/rrgkern/ops/test_f.py: pytest enters no folder called ops",
    ),
    (
        "tests_are_collected",
        "pyproject.toml",
        PYPROJECT.replace("[tool.mypy]", 'addopts = "--ignore=tests/rrgkern"\n[tool.mypy]'),
        "pyproject.toml: addopts leaves tests out: --ignore",
    ),
    (
        "tests_are_collected",
        "Makefile",
        MAKEFILE.replace("-q", "-q -m 'not slow'"),
        "Makefile: make test leaves tests out: -m",
    ),
    (
        "tests_are_collected",
        "Makefile",
        MAKEFILE.replace(" tests\n", " tests/rrgkern\n"),
        "make test does not run pytest on tests",
    ),
    (
        "tests_are_collected",
        "tests/rrgkern/conftest.py",
        'collect_ignore = ["ops"]',
        "tests/rrgkern/conftest.py leaves tests out: collect_ignore",
    ),
    (
        "tests_are_collected",
        "tests/rrgkern/ops/test_f.py",
        "@pytest.mark." + "gate\ndef test_f(): ...\n",
        "test_f.py has a gate, and make gates does not run it",
    ),
    ("sources_are_linted", "python/rrgtrain/dist/lost.py", "", "dist/lost.py: ruff does not read"),
    ("sources_are_linted", "bench/node_modules/x.py", "", "node_modules/x.py: ruff does not read"),
    (
        "sources_are_linted",
        "pyproject.toml",
        PYPROJECT + '[tool.ruff]\nextend-exclude = ["bench"]\n',
        "bench/ops.py: ruff does not read it",
    ),
    (
        "sources_are_linted",
        "pyproject.toml",
        PYPROJECT + '[tool.ruff.format]\nexclude = ["tests"]\n',
        "ruff format leaves out tests",
    ),
    ("sources_are_linted", "bench/ops.py", "# ruff: noqa\n", "bench/ops.py: # ruff: noqa turns"),
    (
        "sources_are_linted",
        "Makefile",
        MAKEFILE.replace("ruff check .", "ruff check rrgkern"),
        "make lint does not run ruff check .",
    ),
    (
        "sources_are_linted",
        "Makefile",
        MAKEFILE.replace("lint-imports", "lint"),
        "make lint does not run lint-imports",
    ),
    ("sources_are_linted", "python/new/a.py", "", "import-linter does not read new"),
    ("sources_are_type_checked", "docs/hooks.py", "", "docs/hooks.py: mypy does not read it"),
    (
        "sources_are_type_checked",
        "pyproject.toml",
        PYPROJECT + 'exclude = "dist"\n',
        "mypy's exclude takes files away",
    ),
    (
        "sources_are_type_checked",
        "pyproject.toml",
        PYPROJECT + '[[tool.mypy.overrides]]\nmodule = "tests.*"\nignore_errors = true\n',
        "mypy's ignore_errors takes files away",
    ),
    (
        "sources_are_type_checked",
        "pyproject.toml",
        PYPROJECT + '[[tool.mypy.overrides]]\nmodule = ["rrgkern.*.triton_f"]\n'
        "disallow_untyped_defs = false\n",
        "rrgkern/ops/triton_f.py: _launch is no kernel and lacks types",
    ),
    (
        "sources_are_type_checked",
        "pyproject.toml",
        PYPROJECT + "[tool.ruff.lint.pylint]\nmax-args = 0\n[[tool.mypy.overrides]]\n"
        'module = ["rrgkern.*.triton_f"]\ndisallow_untyped_defs = false\n',
        "rrgkern/ops/triton_f.py: _launch takes 1 parameters, at most 0",
    ),
    ("checks_run_in_ci", "Makefile", MAKEFILE + "fuzz:\n\ttrue\n", "make fuzz does not run in"),
    (
        "checks_run_in_ci",
        ".ci/run",
        "stages lint test parity\n",
        ".ci/run makes parity, which the Makefile does not have",
    ),
    (
        "checks_run_in_ci",
        ".ci/run",
        "stages lint test help\n",
        "make help runs in .ci/run: take it off NOT_IN_CI",
    ),
    ("checks_run_in_ci", ".ci/run", "stages lint\n", "make test does not run in"),
]
