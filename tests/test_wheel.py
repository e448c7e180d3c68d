"""A wheel made from the source distribution and installed away from the checkout runs a demo."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
from importlib.metadata import PathDistribution
from pathlib import Path

import pytest
from tvm_ffi.libinfo import find_libtvm_ffi

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


PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check", "-q")
ALONE = ("--no-deps", "--no-index", "--no-build-isolation")


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pack the source distribution of this tree."""
    home = tmp_path_factory.mktemp("wheel")
    for path in house.files(ROOT):
        copy = home / "tree" / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, copy)
    succeeds(sys.executable, "setup.py", "-q", "sdist", "--dist-dir", home, cwd=home / "tree")
    (path,) = home.glob("*.tar.gz")
    return path


def installed(source: Path, home: Path, **environment: str) -> Path:
    """Make the wheel of a source distribution, and install it into a folder of its own."""
    succeeds(*PIP, "wheel", *ALONE, "-w", home, source, cwd=home, **environment)
    (wheel,) = home.glob("*.whl")
    succeeds(*PIP, "install", *ALONE, "--target", home / "site", wheel, cwd=home)
    return home / "site"


@pytest.fixture(scope="module")
def site(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the wheel, its sources read by the compiler."""
    home = tmp_path_factory.mktemp("compiled")
    reader = home / "reader"
    compiler = shutil.which(os.environ.get("CXX", "g++")) or shutil.which("clang++")
    reader.write_text(READS.format(library=ROOT / "rrgkern" / "_C.so", compiler=compiler))
    reader.chmod(0o755)
    return installed(source, home, RRGKERN_BUILD="cpu", CXX=str(reader))


def test_a_source_says_what_it_is_and_how_to_cite_it(source: Path) -> None:
    with tarfile.open(source) as packed:
        names = {Path(*Path(name).parts[1:]).as_posix() for name in packed.getnames()}
    assert names >= {"README.md", "LICENSE", "CHANGELOG.md", "CITATION.cff", "constraints.txt"}
    assert not [name for name in names if name.startswith(("tests/", "experiments/"))]


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
    packages = {"rrgkern": "rrgkern", "recipes": "rrgtrain/recipes"}
    packages |= {f"python/{name}": name for name in ("rrgpolicy", "rrgtrain")}
    wanted = [
        site / package / path.relative_to(ROOT / folder)
        for folder, package in packages.items()
        for path in house.files(ROOT)
        if path.is_relative_to(ROOT / folder)
    ]
    assert len(wanted) > 250
    assert [path for path in wanted if not path.is_file()] == []
    assert (site / "rrgkern" / "_C.so").is_file() and [*site.glob("rrgtrain/measured/nvidia-*")]
    assert not [*site.rglob("*iu_evidence*")], "experiments stay in the checkout"


def test_a_wheel_is_for_every_python_and_has_the_extras_that_are_named(site: Path) -> None:
    (about,) = site.glob("rrgkern-*.dist-info/WHEEL")
    (tag,) = [line for line in about.read_text().splitlines() if line.startswith("Tag: ")]
    python, abi, platform = tag.removeprefix("Tag: ").split("-")
    assert (python, abi) == ("py3", "none") and platform == re.sub(
        "[-.]", "_", sysconfig.get_platform()
    )
    typed = {path.parent.name for path in site.glob("*/py.typed")}
    extras = set(PathDistribution(about.parent).metadata.get_all("Provides-Extra") or ())
    texts = [p.read_text() for p in house.files(ROOT) if p.suffix in (".py", ".md")]
    named = set(re.findall(r"(?:rrgkern|constraints.txt '\.)\[([\w-]+)\]'", "".join(texts)))
    assert {"serve", "trl", "vllm", "gpu", "flash-attn", "dicom", "meteor"} <= named <= extras
    assert typed == {"rrgkern", "rrgtrain", "rrgclinical", "rrgdata", "rrgpolicy", "rrgreport"}


# What a wheel installed with --no-deps has beside it, and what torch itself imports.
ONE_LOSS = """
import json, sys
import torch
ABSENT = ("transformers", "peft", "accelerate", "pydantic", "omegaconf", "yaml", "rich", "PIL",
          "pydicom", "triton", "nltk", "regex", "openai", "safetensors", "tokenizers")
sys.modules.update(dict.fromkeys(ABSENT))  # None: as if it were not installed
from rrgkern import policy_loss
from rrgkern.__main__ import report
logps = torch.tensor([-1.0, -2.0, -0.5], requires_grad=True)
out = policy_loss(logps, torch.tensor([1.0, -0.5]), torch.tensor([0, 2, 3]), scale=torch.ones(2))
out.loss.backward()
facts = report()
print(json.dumps([logps.grad.tolist(), {op: by["cpu"] for op, by in facts["ops"].items()},
                  facts["extension"]["state"]]))
"""


def one_loss(site: Path, home: Path) -> tuple[list[float], dict[str, str], str]:
    environment = {"PYTHONPATH": str(site), "OMP_NUM_THREADS": "1"}
    gradient, served, state = json.loads(
        succeeds(sys.executable, "-W", "ignore", "-c", ONE_LOSS, cwd=home, **environment)
    )
    assert gradient == [-1.0, -1.0, 0.5]
    return gradient, served, state


def test_without_dependencies_a_loss_runs(site: Path, tmp_path: Path) -> None:
    _, served, state = one_loss(site, tmp_path)
    assert state == "CPU only" and served["rrgkern::mccs"] == "csrc mccs"


def test_without_a_compiler_nothing_is_compiled_and_plain_pytorch_serves(
    source: Path, tmp_path: Path
) -> None:
    without = installed(source, tmp_path, RRGKERN_BUILD="none", CXX="no-such-compiler")
    (wheel,) = tmp_path.glob("*.whl")
    assert not [*without.rglob("*.so")] and wheel.name.endswith("-py3-none-any.whl")
    _, served, state = one_loss(without, tmp_path)
    assert state.startswith("the compiled extension is missing: build it with")
    assert {name.split(" ")[0] for name in served.values()} == {"reference"}, served


# By the C interface that the extension and libtvm_ffi share; another Python has no torch here.
CALL = """
import ctypes, sys
ctypes.CDLL(sys.argv[1], ctypes.RTLD_GLOBAL)
extension = ctypes.CDLL(sys.argv[2])
class Any(ctypes.Structure):
    _fields_ = [("type_index", ctypes.c_int32), ("size", ctypes.c_uint32),
                ("value", ctypes.c_int64)]
out = Any()
assert extension.__tvm_ffi_build_info(None, None, 0, ctypes.byref(out)) == 0
print(sys.version_info[1], out.type_index)
"""


def test_it_runs_on_another_python_than_it_was_built_on(site: Path, tmp_path: Path) -> None:
    minors = [minor for minor in range(11, 16) if minor != sys.version_info[1]]
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    for minor in minors:
        paths = [shutil.which(f"python3.{minor}"), *pyenv.glob(f"3.{minor}.*/bin/python")]
        for python in filter(None, paths):
            library = Path(find_libtvm_ffi())
            if subprocess.run([python, "-c", ""], capture_output=True, check=False).returncode:
                continue  # a shim of a version that is not installed
            command = (python, "-c", CALL, library, site / "rrgkern" / "_C.so")
            ran, kind = succeeds(*command, cwd=tmp_path).split()
            assert int(ran) == minor and int(kind) > 0
            return
    pytest.skip("no other Python 3.11 or newer on this machine")
