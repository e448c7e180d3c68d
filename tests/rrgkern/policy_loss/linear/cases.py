"""Batches, eager PyTorch and the fp64 truth for the loss from hidden states."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from rrgkern import PolicyLoss, linear_policy_loss
from rrgkern.logps.inputs import FromHidden
from rrgkern.logps.online_softmax import Coefficients
from rrgkern.ops import flatten
from rrgkern.policy_loss.inputs import LogpsInputs, PolicyInputs
from rrgkern.policy_loss.reference import METRICS, policy_loss_reference
from rrgkern.policy_loss.terms import terms
from rrgkern.segments import sequence_of_token
from tests.rrgkern.device import DEVICE
from tests.rrgkern.logps.from_hidden_oracle import (
    head_logits,
    linear_token_logps_reference,
    linear_token_logps_reference_backward,
)
from tests.tolerance import assert_close_to_truth

LENGTHS = (3, 0, 4, 1, 2)
WIDTH, VOCABULARY = 16, 200


class Problem(NamedTuple):
    hidden: Tensor
    weight: Tensor
    bias: Tensor | None
    targets: Tensor
    policy: PolicyInputs
    temperature: float
    softcap: float | None

    def to(self, dtype: torch.dtype) -> Problem:
        """Operands in `dtype`; the numbers of the policy in its statistics' dtype."""
        wide = torch.float64 if dtype == torch.float64 else torch.float32
        cast = [x if x is None else x.to(dtype) for x in self[:3]]
        policy = PolicyInputs(
            *(
                x.to(wide) if isinstance(x, Tensor) and x.is_floating_point() else x
                for x in self.policy
            )
        )
        return self._replace(hidden=cast[0], weight=cast[1], bias=cast[2], policy=policy)

    @property
    def call(self) -> LinearCall:
        return LinearCall(*self[:-1], self.softcap or 0.0)


class Outcome(NamedTuple):
    loss: Tensor
    hidden: Tensor | None
    weight: Tensor | None
    bias: Tensor | None
    metrics: Tensor


def problem(
    spec: PolicyLoss | None = None,
    *,
    lengths: tuple[int, ...] = LENGTHS,
    width: int = WIDTH,
    vocabulary: int = VOCABULARY,
    dtype: torch.dtype = torch.float64,
    given: str = "old ref mask token_weight on_policy",
    bias: bool = False,
    temperature: float = 0.8,
    softcap: float | None = None,
    seed: int = 0,
) -> Problem:
    """Logits of spread 2, ratios that clip on both sides, a sequence without advantage.

    Every number is rounded to `dtype` (fp32 for those of the policy) and then held in fp64, so
    that the truth and every kernel see the same ones.
    """
    spec = PolicyLoss() if spec is None else spec
    generator = torch.Generator().manual_seed(seed)
    n, s = sum(lengths), len(lengths)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    def rounded(x: Tensor) -> Tensor:
        return x.to(dtype).double().to(DEVICE)

    def single(x: Tensor) -> Tensor:
        return x.float().double().to(DEVICE)

    hidden, weight = rounded(normal(n, width)), rounded(normal(vocabulary, width) * 2 / width**0.5)
    offsets = rounded(normal(vocabulary)) if bias else None
    targets = torch.randint(vocabulary, (n,), generator=generator).to(DEVICE)
    logps, _ = linear_token_logps_reference(
        hidden, weight, offsets, targets, temperature, softcap or 0.0
    )
    noise = {name: 0.3 * normal(n).to(DEVICE) for name in ("old", "ref", "sampler")}
    advantages = single(normal(s))
    advantages[-1:] = 0.0
    policy = PolicyInputs(
        advantages=advantages,
        offsets=torch.tensor((0, *lengths)).cumsum(0).to(DEVICE),
        scale=single(normal(s).abs() / max(n, 1)),
        old=single(logps + noise["old"]) if "old" in given else None,
        ref=single(logps + noise["ref"]) if "ref" in given else None,
        sampler=single(logps + noise["sampler"]) if "sampler" in given else None,
        token_weight=single(0.5 + normal(n).abs()) if "token_weight" in given else None,
        on_policy=(torch.arange(s) % 3 == 2).to(DEVICE) if "on_policy" in given else None,
        mask=(torch.rand(n, generator=generator) > 0.25).to(DEVICE) if "mask" in given else None,
        advantage_per_token=False,
        scale_per_token=False,
        spec=spec.encode(),
    )
    return Problem(hidden, weight, offsets, targets, policy, temperature, softcap)


def keywords(given: Problem, **changes: Any) -> dict[str, Any]:
    """Arguments of `linear_policy_loss` for a batch."""
    policy = given.policy
    return {
        **{"hidden": given.hidden, "weight": given.weight, "bias": given.bias},
        **{"targets": given.targets, "advantages": policy.advantages},
        **{"offsets": policy.offsets, "scale": policy.scale, "old": policy.old},
        **{"ref": policy.ref, "sampler": policy.sampler, "token_weight": policy.token_weight},
        **{"on_policy": policy.on_policy, "mask": policy.mask, "spec": policy.variant},
        **{"temperature": given.temperature, "softcap": given.softcap},
        **changes,
    }


def ours(
    given: Problem, mode: str = "auto", *, frozen: bool = False, upstream: float = 1.0, **more: Any
) -> Outcome:
    """The loss and its gradients, which the loss's own gradient `upstream` multiplies."""
    leaves = _leaves(given, frozen)
    called = keywords(given, **leaves, mode=mode, **more)
    out = linear_policy_loss(**called)
    return _outcome(out.loss, torch.stack(list(out.metrics.values())), leaves, upstream)


def eager(given: Problem, *, frozen: bool = False, upstream: float = 1.0) -> Outcome:
    """Compute what one writes without this library: the head in its dtype, log_softmax in fp32."""
    leaves = _leaves(given, frozen)
    hidden, weight, bias = (leaves.get(n, getattr(given, n)) for n in ("hidden", "weight", "bias"))
    policy = given.policy
    rows = torch.arange(len(hidden), device=hidden.device)
    rows = rows if policy.mask is None else rows[policy.mask]
    logits = torch.nn.functional.linear(hidden[rows], weight, bias)
    logits = logits if logits.dtype == torch.float64 else logits.float()
    if given.softcap:
        logits = given.softcap * torch.tanh(logits / given.softcap)
    log_p = torch.log_softmax(logits / given.temperature, -1)
    found = (log_p.gather(-1, given.targets[rows, None])[..., 0], -(log_p.exp() * log_p).sum(-1))
    whole = [x.new_zeros(len(hidden)).index_copy(0, rows, x) for x in found]
    t = terms(*whole, policy)
    loss = (t.scale * t.loss).sum()
    metrics = torch.zeros(len(METRICS), dtype=loss.dtype)
    return _outcome(loss, metrics, leaves, upstream)


def truth(given: Problem, *, frozen: bool = False, upstream: float = 1.0) -> Outcome:
    """The reference in fp64."""
    double = given.to(torch.float64)
    result = forward_and_backward(double.call)
    head = (None, None) if frozen else (result.weight, result.bias)
    grads = [None if g is None else g * upstream for g in (result.hidden, *head)]
    if given.bias is None:
        grads[2] = None
    return Outcome(result.loss, *grads, result.metrics)


def check(actual: Outcome, given: Problem, *, frozen: bool = False, upstream: float = 1.0) -> None:
    """Loss, metrics, and gradients row by row, against fp64: at most twice the error of eager."""
    exact = truth(given, frozen=frozen, upstream=upstream)
    if given.hidden.dtype == torch.float64:
        for name, got, want in zip(Outcome._fields, actual, exact, strict=True):
            if want is None:
                assert got is None
                continue
            if name == "metrics" and not (given.policy.variant.entropy_coef):
                want = want.clone()
                want[METRICS.index("entropy")] = got[METRICS.index("entropy")]
            torch.testing.assert_close(
                got, want, rtol=1e-9, atol=1e-12, msg=lambda m, n=name: n + m
            )
        return
    plain = eager(given, frozen=frozen, upstream=upstream)
    for name, terms_of in _terms(given, upstream)._asdict().items():
        got, want, yardstick = (getattr(o, name) for o in (actual, exact, plain))
        if want is None:
            assert got is None
        elif name != "metrics":
            # Of many rows eager hits some by luck. A sum is known to a rounding of its terms,
            # which are larger than it where they cancel.
            rounding = 4 * torch.finfo(torch.float32).eps * terms_of
            rounding = rounding + torch.finfo(got.dtype).eps * (
                want.norm(dim=-1) if want.ndim > 1 else want.abs()
            )
            assert_close_to_truth(got, yardstick, want, tiny=rounding)


def _leaves(given: Problem, frozen: bool) -> dict[str, Tensor]:
    names = ["hidden"] if frozen else ["hidden", "weight", "bias"]
    found = {name: getattr(given, name) for name in names}
    return {n: x.detach().clone().requires_grad_() for n, x in found.items() if x is not None}


def _outcome(loss: Tensor, metrics: Tensor, leaves: dict[str, Tensor], upstream: float) -> Outcome:
    factor = torch.full_like(loss, upstream)
    gradients = torch.autograd.grad(loss, list(leaves.values()), factor)
    found = dict(zip(leaves, gradients, strict=True))
    return Outcome(
        loss.detach(), *(found.get(n) for n in ("hidden", "weight", "bias")), metrics.detach()
    )


def _terms(given: Problem, upstream: float) -> Outcome:
    """Size of the terms that the loss, and each row of a gradient, is the sum of."""
    double = given.to(torch.float64)
    policy = double.policy
    logps, entropy = logps_and_entropy(double.call)
    t = terms(logps, entropy, policy)
    logits = head_logits(*double[:3], double.softcap or 0.0)
    spread = (logits / double.temperature).abs().nan_to_num(0.0).amax(1)
    spec = policy.variant
    size = t.advantage.abs() * t.sampler_ratio * t.gamma * t.ratio.clamp(min=1)
    size = size + spec.beta * (1 + t.kl_log_ratio.abs()) * (1 + t.kl) * t.ratio.clamp(min=1)
    size = torch.where(t.keep, t.scale * (size + spec.entropy_coef * (1 + t.entropy)), 0.0)
    if spec.ratio_level == "sequence":
        sequence = sequence_of_token(policy.offsets, len(size))
        total = torch.zeros(len(policy.offsets) - 1, dtype=size.dtype, device=size.device)
        size = torch.where(t.keep, total.index_add(0, sequence, size)[sequence], 0.0)
    p = torch.softmax(logits.nan_to_num(0.0) / double.temperature, -1)
    p = p.scatter_add(1, double.targets[:, None], torch.ones_like(p[:, :1]))
    dz = (size * spread * upstream)[:, None].abs() * p / double.temperature
    return Outcome(
        loss=(size * (1 + spread + t.logps.abs())).sum(),
        hidden=(dz @ double.weight.abs()).norm(dim=1),
        weight=(dz.T @ double.hidden.nan_to_num(0.0).abs()).norm(dim=1),
        bias=dz.sum(0),
        metrics=torch.zeros(len(METRICS)),
    )


# Define the loss from hidden states: [N, V] logits, `token_logps`, then `policy_loss`.
class LinearCall(NamedTuple):
    """Arguments of the reference; shapes as in `linear_policy_loss`, `softcap` 0 for none."""

    hidden: Tensor
    weight: Tensor
    bias: Tensor | None
    targets: Tensor
    policy: PolicyInputs
    temperature: float = 1.0
    softcap: float = 0.0


class Result(NamedTuple):
    """Loss 0-d, its gradients, and the metrics in the order of `policy_loss.reference.METRICS`."""

    loss: Tensor
    hidden: Tensor
    weight: Tensor
    bias: Tensor
    metrics: Tensor


def forward_and_backward(call: LinearCall) -> Result:
    """Loss, explicit gradients and metrics; what stands in masked rows is never read."""
    logps, entropy = logps_and_entropy(call)
    loss, coef, coef_entropy, metrics = policy_loss_reference(
        *flatten(LogpsInputs(logps, entropy, call.policy))
    )
    rows = _scored(call)
    coefficients = Coefficients(coef, coef_entropy if len(coef_entropy) else None).rows(rows)
    head = FromHidden(
        *(call.hidden[rows], call.weight, call.bias, call.targets[rows]),
        *(call.temperature, call.softcap),
        entropy=True,
    )
    at_rows, d_weight, d_bias = linear_token_logps_reference_backward(coefficients, head)
    d_hidden = torch.zeros_like(call.hidden).index_copy(0, rows, at_rows)
    return Result(loss, d_hidden, d_weight, d_bias, metrics)


def logps_and_entropy(call: LinearCall) -> tuple[Tensor, Tensor]:
    """Log-probabilities and entropies [N], 0 where masked."""
    rows, n_rows = _scored(call), len(call.hidden)
    of_rows = linear_token_logps_reference(
        *(call.hidden[rows], call.weight, call.bias, call.targets[rows]),
        *(call.temperature, call.softcap),
    )
    logps, entropy = (x.new_zeros(n_rows).index_copy(0, rows, x) for x in of_rows)
    return logps, entropy


def _scored(call: LinearCall) -> Tensor:
    if call.policy.mask is None:
        return torch.arange(len(call.hidden), device=call.policy.offsets.device)
    return call.policy.mask.nonzero().flatten()
