"""A mapping of metrics that makes its tensors when somebody looks."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils import _pytree as pytree

from rrgkern.metrics import Metrics

NAMES = ("kl", "ratio", "tokens")
WANTED = {"kl": torch.tensor(1.0), "ratio": torch.tensor(2.0), "tokens": torch.tensor(3.0)}


def saved(value: Any) -> Any:
    """Save and load again, as a checkpoint's reader does who trusts no code."""
    file = io.BytesIO()
    torch.save({"step": 1, "metrics": value}, file)
    file.seek(0)
    return torch.load(file, weights_only=True)["metrics"]


LOOKS: dict[str, Callable[[Any], Any]] = {
    "item": lambda metrics: metrics["ratio"],
    "missing": lambda metrics: metrics.get("none", 5),
    "in": lambda metrics: "kl" in metrics,
    "length": len,
    "truth": bool,
    "list": list,
    "reversed": lambda metrics: list(reversed(metrics)),
    "values": lambda metrics: list(metrics.values()),
    "items": lambda metrics: list(metrics.items()),
    "dict": dict,
    "unpacked": lambda metrics: {"own": 1, **metrics},
    "arguments": lambda metrics: (lambda **given: given)(**metrics),
    "updated": lambda metrics: {"own": 1} | metrics,
    "or": lambda metrics: metrics | {"own": 1},
    "copy": lambda metrics: metrics.copy(),
    "shallow": lambda metrics: dict(copy.copy(metrics)),
    "deep": lambda metrics: dict(copy.deepcopy(metrics)),
    "pickle": lambda metrics: dict(pickle.loads(pickle.dumps(metrics))),
    "saved": lambda metrics: dict(saved(metrics)),
    "repr": repr,
    "equal": lambda metrics: metrics == WANTED,
    "pop": lambda metrics: (metrics.pop("kl"), list(metrics)),
    "set": lambda metrics: (metrics.__setitem__("own", 1), list(metrics)),
    "delete": lambda metrics: (metrics.__delitem__("kl"), list(metrics)),
    "update": lambda metrics: (metrics.update(own=1), list(metrics)),
    "clear": lambda metrics: (metrics.clear(), list(metrics)),
}


def metrics() -> Metrics:
    return Metrics(NAMES, torch.tensor([1.0, 2.0, 3.0]))


@pytest.mark.parametrize("name", LOOKS)
def test_looks_like_a_dict(name: str) -> None:
    got, want = LOOKS[name](metrics()), LOOKS[name](dict(WANTED))
    assert type(got) is type(want)
    assert repr(got) == repr(want)


def test_has_the_methods_of_a_dict() -> None:
    for name in set(dir(dict)) - set(dir(object)) - {"__class_getitem__", "fromkeys"}:
        assert hasattr(Metrics, name), name


def test_nothing_is_made_before_and_no_gradient_flows() -> None:
    vector = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    made = Metrics(NAMES, vector)
    assert made._made is None
    assert not made["kl"].requires_grad and made["kl"].ndim == 0
    assert made._made is not None and made["kl"] is made["kl"]


def test_libraries_that_rebuild_mappings_rebuild_it() -> None:
    operations = pytest.importorskip("accelerate.utils.operations")
    for given in (metrics(), Metrics(WANTED)):
        doubled = operations.recursively_apply(lambda x: 2 * x, given)
        assert type(doubled) is Metrics
        assert doubled == {name: 2 * value for name, value in WANTED.items()}
        assert list(operations.send_to_device(given, "meta")) == list(NAMES)


def test_pytree_sees_the_tensors() -> None:
    assert pytree.tree_map(float, metrics()) == {"kl": 1.0, "ratio": 2.0, "tokens": 3.0}


@pytest.mark.parametrize(
    "look",
    [
        lambda given: given["kl"] + given["tokens"],
        lambda given: sum(given.values()),
        lambda given: dict(given)["ratio"],
        lambda given: {**given, "own": 1}["ratio"],
    ],
)
def test_compilation_reads_it(look: Callable[[Any], Any]) -> None:
    compiled = torch.compile(look, backend="aot_eager", fullgraph=True)
    other = Metrics(NAMES, torch.tensor([4.0, 5.0, 6.0]))
    for given in (metrics(), other):
        assert compiled(given) == look(given)
