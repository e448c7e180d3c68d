"""Arguments that would be taken for what they are not are refused in one line by every function."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor

import rrgkern
from tests.rrgkern.backends import serve
from tests.rrgkern.device import DEVICE
from tests.rrgkern.test_second_order import (
    ADVANTAGES,
    OFFSETS,
    PAIRS,
    REST,
    ROWS,
    TARGETS,
    VOCABULARY,
    WIDTH,
    drawn,
    leaf,
    said_by,
)


def _of_all() -> dict[str, Callable[..., object]]:
    """Each function of what it takes as a constant, by name."""
    x, z, h = leaf(ROWS), leaf(ROWS, VOCABULARY), leaf(ROWS, WIDTH)
    w = drawn(VOCABULARY, WIDTH)
    return {
        "policy_loss": lambda **rest: rrgkern.policy_loss(x, **REST | rest),
        "policy_loss_from_logits": lambda **rest: rrgkern.policy_loss_from_logits(
            z, TARGETS, **REST | rest
        ),
        "linear_policy_loss": lambda **rest: rrgkern.linear_policy_loss(
            h, w, TARGETS, **REST | rest
        ),
    }


def test_learned_constants_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    if DEVICE == "cpu":
        serve(monkeypatch, "extension")
    wrong = []
    shapes = {"advantages": 2, "scale": 2, "old": ROWS, "ref": ROWS, "sampler": ROWS}
    for name, size in {**shapes, "token_weight": ROWS}.items():
        for door, function in _of_all().items():
            told = said_by(partial(function, **{name: leaf(size)}))
            wanted = f"{name} requires a gradient, which this function does not give it: pass "
            if told != f"{wanted}{name}.detach()":
                wrong.append((door, name, told))
            with torch.no_grad():  # where no gradient is lost
                function(**{name: leaf(size)})
    weighed = PAIRS._replace(weight=leaf(1))
    for ref, pairs in ((leaf(ROWS), PAIRS), (-drawn(ROWS), weighed)):
        told = said_by(partial(rrgkern.preference_loss, leaf(ROWS), ref, OFFSETS, pairs))
        if "requires a gradient, which this function does not give it" not in told:
            wrong.append(("preference_loss", told))
    assert not wrong


def _numbers() -> dict[str, Callable[[object], object]]:
    """Each function of each option that is one number, by the option and the function."""
    x, z, h, w = leaf(ROWS), leaf(ROWS, VOCABULARY), leaf(ROWS, WIDTH), leaf(VOCABULARY, WIDTH)
    ids = torch.zeros(14, dtype=torch.int8, device=DEVICE)
    groups, one = (torch.tensor([0, n], device=DEVICE) for n in (ROWS, 1))
    presence = torch.ones(1, dtype=torch.int8, device=DEVICE)
    of_entities = rrgkern.ReportEntities(one, presence, torch.ones(1, 1, device=DEVICE))
    return {
        "temperature of logits": lambda n: rrgkern.token_logps(z, TARGETS, temperature=n),
        "temperature of a loss of logits": lambda n: rrgkern.policy_loss_from_logits(
            z, TARGETS, **REST, temperature=n
        ),
        "temperature of a loss of a head": lambda n: rrgkern.linear_policy_loss(
            h, w, TARGETS, **REST, temperature=n
        ),
        "temperature of a head": lambda n: rrgkern.linear_token_logps(h, w, TARGETS, temperature=n),
        "softcap": lambda n: rrgkern.linear_token_logps(h, w, TARGETS, softcap=n),
        "tau": lambda n: rrgkern.preference_loss(x, -drawn(ROWS), OFFSETS, PAIRS, tau=n),
        "eps": lambda n: rrgkern.group_advantages(drawn(ROWS), groups, eps=n),
        "share": lambda n: rrgkern.rank_sample(drawn(ROWS), n, seed=1),
        "alpha": lambda n: rrgkern.tfidf_weights(TARGETS, groups, one, alpha=n),
        "margin": lambda n: rrgkern.mccs(ids, ids, margin=n),
        "both_blank": lambda n: rrgkern.mccs(ids, ids, both_blank=n),
        "neg_weight": lambda n: rrgkern.entity_match(of_entities, of_entities, neg_weight=n),
    }


@pytest.mark.parametrize("name", _numbers())
def test_a_number_is_one_number(name: str) -> None:
    function, option = _numbers()[name], name.split()[0]
    for value in ("0.5", [0.5], drawn(ROWS)):
        with pytest.raises(TypeError, match=f"^{option} .*[,;] wanted one number"):
            function(value)
    function(torch.tensor(0.5))
    if option in ("temperature", "softcap"):
        with pytest.raises(TypeError, match="requires a gradient, which it is not given"):
            function(torch.ones((), device=DEVICE, requires_grad=True))


@pytest.mark.parametrize("wrong", [-100, VOCABULARY])
@pytest.mark.parametrize("door", ["logits", "head", "one pass", "composed", "loss of a head"])
def test_a_target_outside_the_vocabulary_is_refused(
    door: str, wrong: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if DEVICE != "cpu":  # a device assertion would end the CUDA context
        monkeypatch.setenv("RRGKERN_CHECK", "1")
    z, h, w = leaf(ROWS, VOCABULARY), leaf(ROWS, WIDTH), drawn(VOCABULARY, WIDTH)
    tied = {**REST, "spec": rrgkern.PolicyLoss(ratio_level="sequence")}
    targets = TARGETS.clone()
    targets[1] = wrong
    doors = {
        "logits": lambda: rrgkern.token_logps(z, targets),
        "head": lambda: rrgkern.linear_token_logps(h, w, targets),
        "one pass": lambda: rrgkern.policy_loss_from_logits(z, targets, **REST),
        "composed": lambda: rrgkern.policy_loss_from_logits(z, targets, **tied),
        "loss of a head": lambda: rrgkern.linear_policy_loss(h, w, targets, **REST),
    }
    with pytest.raises(IndexError, match=rf"targets\[1\] is {wrong}.*0 to {VOCABULARY - 1}"):
        doors[door]()


def test_modes_whose_forward_makes_the_gradient_are_not_mapped() -> None:
    w = leaf(VOCABULARY, WIDTH)

    def loss(hidden: Tensor, mode: str, weight: Tensor = w) -> Tensor:
        return rrgkern.linear_policy_loss(hidden, weight, TARGETS, **REST, mode=mode).loss

    hidden = drawn(2, ROWS, WIDTH)
    mapped = {
        "vmap": lambda mode: torch.vmap(partial(loss, mode=mode))(hidden),
        "functionalize": lambda mode: torch.func.functionalize(partial(loss, mode=mode))(hidden[0]),
    }
    for name, call in mapped.items():
        with pytest.raises(NotImplementedError, match="^mode is 'grad_in_forward' .*'recompute'$"):
            call("grad_in_forward")
        each = torch.stack(
            [loss(h, "recompute") for h in (hidden if name == "vmap" else hidden[:1])]
        )
        torch.testing.assert_close(call("recompute").reshape(-1), each)


def test_a_prompt_weight_is_not_learned() -> None:
    oracle = torch.tensor([True, False], device=DEVICE)
    groups = torch.tensor([0, 2], device=DEVICE)
    with pytest.raises(NotImplementedError, match="prompt_weight requires a gradient"):
        rrgkern.oracle_pairs(oracle, groups, prompt_weight=leaf(1))


def test_a_mask_of_other_tokens_than_the_offsets_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("RRGKERN_CHECK", "1")
    for tokens in (6, 12):
        with pytest.raises(ValueError, match=f"offsets runs from 0 to 8, and there are {tokens} "):
            rrgkern.loss_scale(
                "grpo",
                torch.tensor([0, 4, 8], device=DEVICE),
                mask=torch.ones(tokens, dtype=torch.bool, device=DEVICE),
            )


def test_sharded_tensors_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each tensor of each function; only a head's weight and bias may be sharded."""

    class Sharded(Tensor):
        pass

    monkeypatch.setattr("torch.distributed.tensor.DTensor", Sharded)

    def sharded(values: Tensor) -> Tensor:
        return values.detach().as_subclass(Sharded)

    x, z, h, w = drawn(ROWS), drawn(ROWS, VOCABULARY), drawn(ROWS, WIDTH), drawn(VOCABULARY, WIDTH)
    policy = {**REST, **dict.fromkeys(("old", "ref", "sampler", "token_weight"), x)}
    policy |= {"mask": x < 9, "on_policy": ADVANTAGES < 9}
    pairs = PAIRS._asdict()

    def preferred(**given: Tensor) -> object:
        return rrgkern.preference_loss(
            *(given["logps"], given["ref"], given["offsets"]),
            rrgkern.PreferencePairs(*(given[f"pairs.{name}"] for name in pairs)),
            mask=given["mask"],
        )

    head = {"hidden": h, "weight": w, "targets": TARGETS}
    of_pairs = {f"pairs.{name}": value for name, value in pairs.items()}
    doors = (
        (rrgkern.token_logps, {"logits": z, "targets": TARGETS}),
        (rrgkern.linear_token_logps, head),
        (rrgkern.policy_loss, {"logps": x, "entropy": x, **policy}),
        (rrgkern.policy_loss_from_logits, {"logits": z, "targets": TARGETS, **policy}),
        (rrgkern.linear_policy_loss, {**head, **policy}),
        (preferred, {"logps": x, "ref": x, "offsets": OFFSETS, "mask": x < 9, **of_pairs}),
        (rrgkern.gather_rows, {"values": z, "places": TARGETS.clamp(max=ROWS - 1)}),
    )
    with pytest.raises(TypeError, match="^total_tokens is a DTensor; wanted one number: pass "):
        rrgkern.loss_scale("dapo", OFFSETS, total_tokens=sharded(drawn().abs()))
    for door, given in doors:
        door(**given)
        for name in given.keys() - {"weight"}:
            with pytest.raises(TypeError, match=f"^{name} is a DTensor, wanted this rank's own"):
                door(**given | {name: sharded(given[name])})


def test_a_mask_of_another_device_is_refused_by_the_scale() -> None:
    mask = torch.ones(ROWS, dtype=torch.bool, device="meta")
    with pytest.raises(ValueError, match="^mask is on meta and offsets on .*; move them to one"):
        rrgkern.loss_scale("grpo", OFFSETS, mask=mask)


def test_sparse_and_nested_tensors_are_refused() -> None:
    rows = [drawn(2, VOCABULARY), drawn(3, VOCABULARY)]
    for layout in (torch.strided, torch.jagged):
        nested = torch.nested.nested_tensor(rows, layout=layout)
        with pytest.raises(TypeError, match="^logits is nested, wanted a dense tensor: "):
            rrgkern.token_logps(nested, TARGETS)
    with pytest.raises(TypeError, match=r"^logps is torch\.sparse_coo, wanted a dense tensor: "):
        rrgkern.policy_loss(drawn(ROWS).to_sparse(), **REST)
