"""A wheel made from the source distribution and installed away from the checkout runs a demo."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests import house
from tests.rrgtrain.runs import TINY_RUN

LISTS = """
import rrgkern, rrgtrain
from rrgtrain.cli import main
print(rrgkern.__file__, rrgtrain.__file__, sep="\\n", flush=True)
for words in (["--version"], ["recipes"], ["keys", "rl.kl"]):
    try:
        assert main(words) == 0, words
    except SystemExit as end:
        assert not end.code, words
"""
# A user has neither the build's settings nor Triton's interpreter, which is slow.
NOT_OF_A_USER = ("RRGKERN_", "PYTHON", "TRITON_INTERPRET")
ROOT = Path(__file__).parents[1]
# In the compiler's place: it reads each source with all that it includes, and hands over the
# library that this tree is installed with. .ci/run compiles all, where it installs.
READS = """#!/bin/sh
for word in "$@"; do
  if [ "$before" = -o ]; then output=$word; fi
  if [ "$word" = -shared ]; then links=yes; fi
  before=$word
done
if [ "$links" ]; then exec cp "{library}" "$output"; fi
exec "{compiler}" -E "$@"
"""
pytestmark = pytest.mark.slow


def platform_tag() -> str:
    return sysconfig.get_platform().replace("-", "_").replace(".", "_")


def succeeds(*command: str | Path, cwd: Path, **environment: str) -> str:
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(NOT_OF_A_USER)}
    done = subprocess.run(
        [*map(str, command)],
        cwd=cwd,
        env=inherited | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the wheel of the source distribution of this tree."""
    home = tmp_path_factory.mktemp("wheel")
    for path in house.files(ROOT):
        copy = home / "tree" / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, copy)
    succeeds(sys.executable, "setup.py", "-q", "sdist", "--dist-dir", home, cwd=home / "tree")
    (source,) = home.glob("*.tar.gz")
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "-q")
    alone = ("--no-deps", "--no-index", "--no-build-isolation")
    reader = home / "reader"
    compiler = shutil.which(os.environ.get("CXX", "g++")) or shutil.which("clang++")
    reader.write_text(READS.format(library=ROOT / "rrgkern" / "_C.so", compiler=compiler))
    reader.chmod(0o755)
    built = {"RRGKERN_BUILD": "cpu", "CXX": str(reader)}
    succeeds(*pip, "wheel", *alone, "-w", home, source, cwd=home, **built)
    (wheel,) = home.glob("*.whl")
    succeeds(*pip, "install", *alone, "--target", home / "site", wheel, cwd=home)
    return home / "site"


def test_a_wheel_runs_a_demo_away_from_the_checkout(site: Path, tmp_path: Path) -> None:
    environment = {"PYTHONPATH": str(site), "XDG_CACHE_HOME": str(tmp_path), "OMP_NUM_THREADS": "1"}
    command = (sys.executable, site / "bin" / "rrgtrain")
    shown = succeeds(*command, "demo", "--out", "run", *TINY_RUN, cwd=tmp_path, **environment)
    assert shown.startswith("SFT, then EditGRPO") and "report: run/report.html" in shown
    assert "</html>" in (tmp_path / "run" / "report.html").read_text()
    told = succeeds(sys.executable, "-c", LISTS, cwd=tmp_path, **environment)
    *paths, name_and_version = told.splitlines()[:3]
    assert [Path(p).parents[1] for p in paths] == [site, site]
    name, version = name_and_version.split()
    assert name == "rrgtrain" and (site / f"rrgkern-{version}.dist-info").is_dir()
    # the recipes of papers.yaml's rule, and the texts beneath the fields, are there too
    assert "`deer_f1` at the size of its paper." in told
    assert "default k3" in told


def test_a_wheel_holds_every_recipe_and_template_of_the_checkout(site: Path) -> None:
    packages = {"rrgkern": "rrgkern", "python/rrgtrain": "rrgtrain", "recipes": "rrgtrain/recipes"}
    wanted = [
        site / package / path.relative_to(ROOT / folder)
        for folder, package in packages.items()
        for path in house.files(ROOT)
        if path.is_relative_to(ROOT / folder)
    ]
    assert len(wanted) > 250
    assert [path for path in wanted if not path.is_file()] == []
    assert (site / "rrgkern" / "_C.so").is_file()
    assert not [*site.rglob("*replicat*")], "experiments stay in the checkout"


def test_a_wheel_is_for_its_platform_and_every_python(site: Path) -> None:
    (about,) = site.glob("rrgkern-*.dist-info/WHEEL")
    (tag,) = [line for line in about.read_text().splitlines() if line.startswith("Tag: ")]
    python, abi, platform = tag.removeprefix("Tag: ").split("-")
    assert (python, abi) == ("py3", "none") and platform == platform_tag()
