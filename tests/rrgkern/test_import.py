"""Modules behind the public functions that have their package's name."""

from __future__ import annotations

import copy
import functools
import importlib.util
import inspect
import pickle
import pkgutil
import pydoc
import sys
import types
from pathlib import Path

import pytest
import torch

import rrgkern

ROOM = Path(rrgkern.__file__).parent
SHARED_NAMES = [name for name in rrgkern.__all__ if (ROOM / name).is_dir()]
needs_triton = pytest.mark.skipif(not importlib.util.find_spec("triton"), reason="needs Triton")
SUBMODULES = [
    pytest.param(path, marks=needs_triton if "triton" in path else ())
    for name in SHARED_NAMES
    for _, path, _ in pkgutil.walk_packages([str(ROOM / name)], f"rrgkern.{name}.")
]


def test_functions_share_the_name_of_their_package():
    shared = {"edit_plan", "entity_match", "mccs", "policy_loss", "preference_loss"}
    assert shared <= set(SHARED_NAMES)


@pytest.mark.parametrize("path", SUBMODULES)
def test_each_form_of_import_finds_the_submodule(path):
    package, _, module = path.rpartition(".")
    names: dict[str, types.ModuleType] = {}
    exec(f"import {path} as by_alias; import {path}; from {package} import {module}", names)
    for imported in (names["by_alias"], names[module], eval(path, names)):
        assert imported is sys.modules[path]


@pytest.mark.parametrize("name", SHARED_NAMES)
def test_the_function_stays_a_plain_function(name):
    function = getattr(rrgkern, name)
    assert type(function) is types.FunctionType
    assert inspect.getsourcefile(function) == str(ROOM / name / "api.py")
    assert inspect.signature(function).return_annotation
    assert inspect.getdoc(function) in pydoc.render_doc(function, renderer=pydoc.plaintext).replace(
        "\n    ", "\n"
    )
    assert pickle.loads(pickle.dumps(function)) is function
    assert copy.deepcopy(function) is function


def test_a_wrapper_looks_like_the_function():
    @functools.wraps(rrgkern.policy_loss)
    def wrapper(*args, **kwargs):
        return rrgkern.policy_loss(*args, **kwargs)

    assert inspect.signature(wrapper) == inspect.signature(rrgkern.policy_loss)
    assert (wrapper.__name__, wrapper.__doc__) == ("policy_loss", rrgkern.policy_loss.__doc__)


def test_torch_compile_takes_the_function_and_its_caller_without_a_break():
    package = dict(vars(sys.modules["rrgkern.mccs"]))
    pred, truth = torch.randint(0, 4, (2, 5, 14), dtype=torch.int8)

    def caller(pred):
        return 2 * rrgkern.mccs(pred, truth)

    compiled = [torch.compile(f, fullgraph=True, backend="eager") for f in (caller, rrgkern.mccs)]
    assert torch.equal(compiled[0](pred), caller(pred))
    assert torch.equal(compiled[1](pred, truth), rrgkern.mccs(pred, truth))
    assert package == vars(sys.modules["rrgkern.mccs"])
