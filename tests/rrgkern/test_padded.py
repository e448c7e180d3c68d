"""Padded batches [B, T]: equal to packed ones, whatever stands in the padding, at every door."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from rrgkern import (
    PolicyLoss,
    PreferencePairs,
    linear_policy_loss,
    linear_token_logps,
    loss_scale,
    policy_loss,
    policy_loss_from_logits,
    preference_advantages,
    preference_loss,
    token_logps,
)
from tests.products import every_case, more
from tests.rrgkern.backends import serve
from tests.rrgkern.device import DEVICE

BATCH, LENGTH, VOCABULARY, WIDTH = 4, 5, 37, 8
POISONS = (float("nan"), float("inf"), -float("inf"), 1e30)
BACKENDS = ("as it is", "extension", "reference")
SEQUENCE = PolicyLoss(ratio_level="sequence", beta=0.1)
TOKEN = PolicyLoss(beta=0.1, entropy_coef=0.01)
PER_TOKEN = ("ids", "logps", "old", "ref", "sampler", "token_weight", "entropy", "of_tokens")


@dataclass(frozen=True)
class Case:
    """[B, T] tensors, logits and states [B, T + 1] whose last position predicts nothing."""

    mask: Tensor
    ids: Tensor
    logits: Tensor
    hidden: Tensor
    weight: Tensor
    logps: Tensor
    old: Tensor
    ref: Tensor
    sampler: Tensor
    token_weight: Tensor
    entropy: Tensor
    advantages: Tensor
    of_tokens: Tensor  # advantages per token
    offsets: Tensor | None = None

    def poisoned(self, value: float) -> Case:
        """The same with `value` in every number of the padding, and -100 for labels."""
        out = ~self.mask
        numbers = {n: getattr(self, n).masked_fill(out, value) for n in PER_TOKEN if n != "ids"}
        for name in ("logits", "hidden"):
            rows = getattr(self, name).clone()
            rows[:, :-1][out] = value
            rows[:, -1] = value
            numbers[name] = rows
        return replace(self, ids=self.ids.masked_fill(out, -100), **numbers)

    def packed(self) -> Case:
        """The scored tokens alone, [N] with offsets; the rows are [N, 1, ...], as if padded."""
        tokens = {n: getattr(self, n)[self.mask] for n in PER_TOKEN}
        for name in ("logits", "hidden"):
            tokens[name] = getattr(self, name)[:, :-1][self.mask]
        offsets = F.pad(self.mask.sum(1).cumsum(0), (1, 0))
        return replace(self, offsets=offsets, **tokens)

    def leaf(self, name: str) -> tuple[Tensor, Tensor]:
        """A leaf, and of rows the view whose last position is sliced off."""
        leaf = getattr(self, name).clone().requires_grad_()
        sliced = self.offsets is None and name in ("logits", "hidden")
        return leaf, leaf[:, :-1] if sliced else leaf

    def of_padding(self) -> dict[str, Tensor]:
        """What only a padded call passes."""
        return {"mask": self.mask.int()} if self.offsets is None else {}

    def of_loss(self, *, per_token: bool = False, advantages: bool = True) -> dict[str, object]:
        scale = loss_scale("grpo", self.offsets, mask=self.mask if self.offsets is None else None)
        chosen = self.of_tokens if per_token else self.advantages
        if per_token and self.offsets is not None:
            chosen = chosen[None]
        elif self.offsets is not None:
            chosen = chosen[:, None]
        names = ("old", "ref", "sampler", "token_weight")
        return {n: getattr(self, n) for n in names} | {
            **({"advantages": chosen} if advantages else {}),
            **{"offsets": self.offsets, "scale": scale},
            **self.of_padding(),
        }


def case(seed: int = 0, dtype: torch.dtype = torch.float32) -> Case:
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator).to(DEVICE, dtype)

    mask = torch.rand(BATCH, LENGTH, generator=generator) > 0.4
    mask[1], mask[2, 0] = False, True
    shape = (BATCH, LENGTH)
    logps = -normal(*shape).abs()
    return Case(
        mask=mask.to(DEVICE),
        ids=torch.randint(VOCABULARY, shape, generator=generator).to(DEVICE),
        logits=2 * normal(BATCH, LENGTH + 1, VOCABULARY),
        hidden=normal(BATCH, LENGTH + 1, WIDTH),
        weight=normal(VOCABULARY, WIDTH),
        logps=logps,
        old=logps + 0.1 * normal(*shape),
        ref=logps + 0.1 * normal(*shape),
        sampler=logps + 0.1 * normal(*shape),
        token_weight=normal(*shape).abs(),
        entropy=normal(*shape).abs(),
        advantages=normal(BATCH),
        of_tokens=normal(*shape),
    )


Outcome = list[Tensor]


def of_rows(c: Case, leaf: Tensor) -> Tensor:
    """Gradient of the scored rows; raises unless that of all others is 0."""
    assert leaf.grad is not None
    if c.offsets is not None:
        return leaf.grad
    gradient = leaf.grad[:, :LENGTH]
    assert not leaf.grad[:, LENGTH:].any() and not gradient[~c.mask].any()
    return gradient[c.mask]


def of_logps(c: Case, *results: Tensor | None) -> Outcome:
    """Scored results, after a backward whose upstream gradient is NaN in the padding."""
    total = torch.zeros((), device=DEVICE)
    for result in results:
        assert result is not None
        weight = torch.ones_like(result) if c.offsets is not None else c.mask / c.mask
        assert c.offsets is not None or (result.shape == c.mask.shape and not result[~c.mask].any())
        result.register_hook(lambda g, w=weight: g * w)
        total = total + result.sum()
    total.backward()
    detached = [result.detach() for result in results if result is not None]
    return detached if c.offsets is not None else [values[c.mask] for values in detached]


def from_logits(c: Case) -> Outcome:
    leaf, rows = c.leaf("logits")
    out = token_logps(rows, c.ids, entropy=True, temperature=0.9, **c.of_padding())
    return [*of_logps(c, *out), of_rows(c, leaf)]


def from_hidden(c: Case) -> Outcome:
    leaf, rows = c.leaf("hidden")
    weight, _ = c.leaf("weight")
    out = linear_token_logps(rows, weight, c.ids, entropy=True, **c.of_padding())
    return [*of_logps(c, *out), of_rows(c, leaf), weight.grad]


def loss_of_logps(spec: PolicyLoss, per_token: bool) -> Callable[[Case], Outcome]:
    def door(c: Case) -> Outcome:
        (logps, _), (entropy, _) = c.leaf("logps"), c.leaf("entropy")
        out = policy_loss(logps, entropy=entropy, spec=spec, **c.of_loss(per_token=per_token))
        out.loss.backward()
        bonus = [of_rows(c, entropy)] if spec.entropy_coef else []
        return [out.loss.detach(), *out.metrics.values(), of_rows(c, logps), *bonus]

    return door


def loss_of_logits(spec: PolicyLoss, inplace: bool, per_token: bool) -> Callable[[Case], Outcome]:
    def door(c: Case) -> Outcome:
        leaf, _ = c.leaf("logits")
        whole = leaf * 1
        rows = whole[:, :-1] if c.offsets is None else whole
        out = policy_loss_from_logits(
            rows, c.ids, spec=spec, inplace=inplace, entropy=True, **c.of_loss(per_token=per_token)
        )
        out.loss.backward()
        return [out.loss.detach(), *out.metrics.values(), of_rows(c, leaf)]

    return door


def loss_of_hidden(spec: PolicyLoss, mode: str) -> Callable[[Case], Outcome]:
    def door(c: Case) -> Outcome:
        leaf, rows = c.leaf("hidden")
        weight = c.weight.clone().requires_grad_(mode != "frozen_head")
        out = linear_policy_loss(rows, weight, c.ids, spec=spec, mode=mode, **c.of_loss())
        out.loss.backward()
        grads = [weight.grad] if weight.grad is not None else []
        return [out.loss.detach(), *out.metrics.values(), of_rows(c, leaf), *grads]

    return door


def preference(c: Case) -> Outcome:
    leaf, _ = c.leaf("logps")
    pairs = PreferencePairs(
        torch.tensor([0, 2], device=DEVICE),
        torch.tensor([3, 0], device=DEVICE),
        torch.tensor([1.0, 0.5], device=DEVICE),
    )
    out = preference_loss(leaf, c.ref, c.offsets, pairs, **c.of_padding())
    out.loss.backward()
    advantages = preference_advantages(leaf, c.ref, c.offsets, pairs, **c.of_padding())
    return [out.loss.detach(), *out.metrics.values(), advantages, of_rows(c, leaf)]


DOORS: dict[str, Callable[[Case], Outcome]] = {
    "token_logps": from_logits,
    "linear_token_logps": from_hidden,
    "policy_loss": loss_of_logps(TOKEN, per_token=False),
    "policy_loss, sequences": loss_of_logps(SEQUENCE, per_token=True),
    "from logits, one pass": loss_of_logits(TOKEN, inplace=False, per_token=False),
    "from logits, in place": loss_of_logits(TOKEN, inplace=True, per_token=True),
    "from logits, composed": loss_of_logits(SEQUENCE, inplace=False, per_token=False),
    "from logits, composed in place": loss_of_logits(SEQUENCE, inplace=True, per_token=False),
    "recompute": loss_of_hidden(TOKEN, "recompute"),
    "grad_in_forward": loss_of_hidden(TOKEN, "grad_in_forward"),
    "frozen_head": loss_of_hidden(SEQUENCE, "frozen_head"),
    "preference_loss": preference,
}


@pytest.mark.parametrize("backend", BACKENDS)
def test_padded_is_packed_whatever_stands_in_the_padding(
    monkeypatch: pytest.MonkeyPatch, backend: str
) -> None:
    serve(monkeypatch, backend)
    plain = case()
    for name, door in DOORS.items():
        padded = door(plain)
        for ours, theirs in zip(padded, door(plain.packed()), strict=True):
            torch.testing.assert_close(ours, theirs, rtol=2e-6, atol=1e-8, msg=name)
        for value in POISONS[:1] if backend == "as it is" and not every_case() else POISONS:
            for ours, theirs in zip(padded, door(plain.poisoned(value)), strict=True):
                assert torch.equal(ours, theirs), (name, value)


@pytest.mark.parametrize("backend", [*BACKENDS[1:], *more(BACKENDS[0])])
def test_log_probabilities_are_the_packed_bits(
    monkeypatch: pytest.MonkeyPatch, backend: str
) -> None:
    serve(monkeypatch, backend)
    for dtype in (torch.float32, torch.bfloat16, torch.float64):
        plain = case(1, dtype).poisoned(float("nan"))
        for door in (from_logits, from_hidden):
            for ours, theirs in zip(door(plain), door(plain.packed()), strict=True):
                assert torch.equal(ours, theirs), (door.__name__, dtype)
        one_pass = DOORS["from logits, one pass"]
        assert torch.equal(one_pass(plain)[-1], one_pass(plain.packed())[-1]), dtype


def test_a_mask_is_bool_or_integers() -> None:
    plain = case()
    results = []
    for dtype in (torch.bool, torch.uint8, torch.int32, torch.int64):
        mask = plain.mask.to(dtype) * (1 if dtype == torch.bool else 3)
        token = token_logps(plain.logits[:, :-1], plain.ids, mask=mask).logps
        scale = loss_scale("bnpo", mask=mask)
        loss = policy_loss(token, plain.advantages, scale=scale, mask=mask).loss
        results.append(torch.stack([token.sum(), loss, scale.sum()]).detach())
    assert all(torch.equal(results[0], other) for other in results[1:])


def calls(c: Case) -> Iterator[tuple[str, Callable[..., object]]]:
    """Each door of [B, T], open to other arguments."""
    rows, states = c.logits[:, :-1], c.hidden[:, :-1]
    loss = {"scale": loss_scale("grpo", mask=c.mask), "mask": c.mask}
    pairs = PreferencePairs(*(torch.zeros(1, dtype=torch.int64, device=DEVICE),) * 2, torch.ones(1))
    yield "token_logps", lambda **k: token_logps(rows, c.ids, **{"mask": c.mask} | k)
    yield (
        "linear_token_logps",
        lambda **k: linear_token_logps(states, c.weight, c.ids, **{"mask": c.mask} | k),
    )
    yield (
        "preference_loss",
        lambda **k: preference_loss(c.logps, k.pop("ref", c.ref), None, pairs, **k),
    )
    yield "policy_loss", lambda **k: policy_loss(c.logps, **{"advantages": c.advantages} | loss | k)
    yield (
        "policy_loss_from_logits",
        lambda **k: policy_loss_from_logits(rows, c.ids, **{"advantages": c.advantages} | loss | k),
    )
    yield (
        "linear_policy_loss",
        lambda **k: linear_policy_loss(
            states, c.weight, c.ids, **{"advantages": c.advantages} | loss | k
        ),
    )


def refusal(call: Callable[..., object], **arguments: Tensor) -> str:
    with pytest.raises((TypeError, ValueError, NotImplementedError)) as error:
        call(**arguments)
    return str(error.value)


def test_another_shape_is_refused_in_one_line() -> None:
    c = case()
    for name, call in calls(c):
        for wrong in (c.mask[:, :-1], c.mask[:-1], c.mask.T, c.mask[..., None]):
            line = refusal(call, mask=wrong)
            assert "mask has shape" in line and "\n" not in line, (name, line)
        assert "mask is torch.float32" in refusal(call, mask=c.mask.float()), name
        if "logps" in name:
            continue
        wrong = ["ref"] if name == "preference_loss" else ["old", "ref", "sampler", "token_weight"]
        for argument in wrong:
            line = refusal(call, **{argument: c.ref[:, 1:]})
            assert line.startswith(f"{argument} has shape (4, 4)") and "\n" not in line, line
    for name, call in list(calls(c))[3:]:
        for argument in ("advantages", "scale"):
            line = refusal(call, **{argument: c.of_tokens[:, 0].repeat(5)})
            assert line.startswith(f"{argument} has shape (20,)") and "[B, T]" in line, (name, line)
    assert "offsets is None; wanted a torch.Tensor [S+1]" in refusal(
        lambda: policy_loss(c.logps[0], c.advantages, scale=c.advantages)
    )


def test_a_square_batch_leaves_nothing_to_guess() -> None:
    """B = T, T = 1, and as many sequences as scored tokens."""
    spec = PolicyLoss(surrogate="reinforce")
    for batch, length in ((3, 3), (3, 1), (1, 3)):
        logps = torch.randn(batch, length, device=DEVICE)
        ones = torch.ones(batch, device=DEVICE)
        advantages = torch.arange(1.0, batch * length + 1, device=DEVICE).view(batch, length)
        for own in (advantages[:, 0], advantages[:, :1]):
            loss = policy_loss(logps, own, scale=ones, spec=spec).loss
            torch.testing.assert_close(loss, -(advantages[:, :1] * logps).sum())
        for scale in (ones, ones[:, None], torch.ones_like(logps)):
            loss = policy_loss(logps, advantages, scale=scale, spec=spec).loss
            torch.testing.assert_close(loss, -(advantages * logps).sum())


def test_rows_without_a_feature_are_told() -> None:
    weight, targets = torch.zeros(5, 0), torch.tensor([[0, 1, 2]])
    packed = {"hidden": torch.zeros(3, 0), "targets": targets[0]}
    padded = {"hidden": torch.zeros(1, 3, 0), "targets": targets, "mask": targets >= 0}
    for rows in (packed, padded):
        with pytest.raises(ValueError, match="hidden has shape .*0.; wanted a feature in each row"):
            linear_token_logps(weight=weight, **rows)
