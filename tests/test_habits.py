"""Test that workflows, hooks and the citation say what the Makefile and the package say."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import yaml

import rrgkern
from tests.house.plan import NOT_IN_CI
from tests.house.tools import in_ci

ROOT = Path(__file__).resolve().parents[1]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
TARGETS = set(re.findall(r"^([a-z][\w-]*):", (ROOT / "Makefile").read_text(), re.M))


def test_the_workflow_makes_what_ci_run_makes() -> None:
    jobs = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())["jobs"]
    steps = [step["run"] for job in jobs.values() for step in job["steps"] if "run" in step]
    made = {word for run in steps for word in re.findall(r"^make ([a-z][\w-]*)", run)}
    made |= set(jobs["more"]["strategy"]["matrix"]["target"]) - {
        "slow NAME=ptx-short",
        "slow NAME=products",
    }
    assert made == in_ci(ROOT) <= TARGETS
    assert not made & set(NOT_IN_CI)
    assert any(step.get("with") == {"fetch-depth": 0} for step in jobs["more"]["steps"])


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_has_a_limit_and_no_rights(path: Path) -> None:
    workflow = yaml.safe_load(path.read_text())
    assert workflow["permissions"] == {"contents": "read"}
    assert all("timeout-minutes" in job for job in workflow["jobs"].values())


def test_versions_are_those_of_the_package() -> None:
    pins = (ROOT / "constraints.txt").read_text()
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())
    (ruff,) = [repo["rev"] for repo in hooks["repos"] if "ruff" in repo["repo"]]
    assert f"ruff=={ruff.removeprefix('v')}\n" in pins
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == rrgkern.__version__
    assert citation["license"] == "Apache-2.0"
    newest = re.search(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(), re.M)
    assert newest and newest[1] == f"{rrgkern.__version__}, {citation['date-released']}"


def test_help_names_every_target() -> None:
    printed = subprocess.run(["make", "-s", "-C", ROOT, "help"], capture_output=True, text=True)
    assert printed.returncode == 0
    missing = {target for target in TARGETS if not re.search(rf"\b{target}\b", printed.stdout)}
    assert missing <= {"help", "clean"}, missing


def test_one_file_says_where_real_data_lies() -> None:
    """Three tests looked a folder too high since they had moved, and skipped what was there."""
    asks = [path for path in (ROOT / "tests").rglob("*.py") if '"RRG_DATA"' in path.read_text()]
    assert {str(path.relative_to(ROOT)) for path in asks} <= {
        "tests/real_data.py",
        "tests/planted.py",  # hands it to a copy of the tree
        "tests/test_habits.py",
    }
