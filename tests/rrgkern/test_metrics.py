"""A mapping of metrics that makes its tensors when somebody looks."""

from __future__ import annotations

import copy
import io
import pickle
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.utils import _pytree as pytree

import rrgkern
from rrgkern.metrics import Metrics
from tests.rrgkern.device import DEVICE
from tests.rrgkern.test_second_order import DOORS, TARGETS, drawn

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
    "reversed": lambda metrics: list(reversed(metrics)),
    "dict": dict,
    "unpacked": lambda metrics: {"own": 1, **metrics},
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
}


def metrics() -> Metrics:
    return Metrics(NAMES, torch.tensor([1.0, 2.0, 3.0]))


@pytest.mark.parametrize("name", LOOKS)
def test_looks_like_a_dict(name: str) -> None:
    got, want = LOOKS[name](metrics()), LOOKS[name](dict(WANTED))
    assert type(got) is type(want)
    assert repr(got) == repr(want)


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
    [lambda given: given["kl"] + given["tokens"], lambda given: {**given, "own": 1}["ratio"]],
)
def test_compilation_reads_it(look: Callable[[Any], Any]) -> None:
    compiled = torch.compile(look, backend="aot_eager", fullgraph=True)
    other = Metrics(NAMES, torch.tensor([4.0, 5.0, 6.0]))
    for given in (metrics(), other):
        assert compiled(given) == look(given)


# Losses and log-probabilities refuse forward mode and torch.func, which have no rule for them.
def of_input(name: str, at: int) -> tuple[Callable[[Tensor], Tensor], tuple[int, ...]]:
    """A public function of one of its inputs, and the shape of that."""
    function, shapes = DOORS[name]
    rest = [drawn(*shape) for shape in shapes]
    return lambda x: function(*rest[:at], x, *rest[at + 1 :]), shapes[at]


FUNCTIONS = {
    **{f"{name}, input {at}": of_input(name, at)
       for name, (_, shapes) in DOORS.items() if "strided" not in name
       for at in range(1 if "frozen" in name else len(shapes))},
    "gather_rows": (lambda x: rrgkern.gather_rows(x, TARGETS), (7, 3)),
}  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("requires_grad", [False, True])
def test_a_tangent_is_refused(name: str, requires_grad: bool) -> None:
    function, shape = FUNCTIONS[name]
    x = -torch.rand(shape, device=DEVICE)
    expected = function(x)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x.requires_grad_(requires_grad), torch.ones_like(x))
        with pytest.raises(NotImplementedError, match="carries a tangent"):
            function(dual)
        # What has none is served all the same.
        assert torch.equal(function(x), expected)
    with pytest.raises(NotImplementedError, match="carries a tangent"):
        torch.func.jvp(function, (x,), (torch.ones_like(x),))


def test_torch_func_is_refused_and_vmap_served() -> None:
    func = torch.func
    wrong = {}
    for name, (function, shape) in FUNCTIONS.items():

        def scalar(x: Tensor, function: Callable[[Tensor], Tensor] = function) -> Tensor:
            return function(x).sum()

        x = -torch.rand(shape, device=DEVICE)
        batched = torch.stack([x, x / 2])
        ways = {
            "grad": lambda: func.grad(scalar)(x),  # noqa: B023
            "vjp": lambda: func.vjp(function, x),  # noqa: B023
            "jacrev": lambda: func.jacrev(function)(x),  # noqa: B023
            "jacfwd": lambda: func.jacfwd(scalar)(x),  # noqa: B023
            "hessian": lambda: func.hessian(scalar)(x),  # noqa: B023
            "vmap of grad": lambda: func.vmap(func.grad(scalar))(batched),  # noqa: B023
            "grad of vmap": lambda: func.grad(lambda x: func.vmap(scalar)(x).sum())(batched),  # noqa: B023
        }
        for way, call in ways.items():
            try:
                wrong[name, way] = call()
            except NotImplementedError as error:
                if "\n" in str(error) or "torch.autograd.grad" not in str(error):
                    wrong[name, way] = error
            except Exception as error:
                wrong[name, way] = error
    assert not wrong, "\n".join(f"{case}: {said}" for case, said in wrong.items())
    # Under torch.vmap autograd gives every gradient, that of the one pass too.
    one_pass, shape = FUNCTIONS["from logits, one pass, input 0"]
    logits = torch.rand(2, *shape, device=DEVICE, requires_grad=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch tells that it goes sample by sample
        mapped = torch.vmap(one_pass)(logits).sum()
    (found,) = torch.autograd.grad(mapped, logits)
    (wanted,) = torch.autograd.grad(one_pass(logits[0]) + one_pass(logits[1]), logits)
    torch.testing.assert_close(found, wanted)
