"""The update: every member of every group through the shared prefix and the fused losses.

On several ranks the groups are those of all, and each rank computes its own: normalisers are those
of the whole batch, and losses and gradients add up to what one process has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from rrgkern import PolicyLoss, PreferencePairs, linear_token_logps, policy_loss, preference_loss
from rrgtrain.algorithms.base import as_objective
from rrgtrain.algorithms.group import Group, group_offsets
from rrgtrain.algorithms.objective import Objective
from rrgtrain.dist import ranks, sharding
from rrgtrain.errors import NotFinite
from rrgtrain.policy.forward import head, hidden_states
from rrgtrain.policy.policy import Policy
from rrgtrain.schema import RlSettings
from rrgtrain.train.apart import measured_apart
from rrgtrain.train.layout import Layout, Part
from rrgtrain.train.micro import idle_chunk, with_images, within_budget
from rrgtrain.train.reference import computing


@dataclass(frozen=True)
class Update:
    """`loss` of the whole batch; `metrics` of it, however it was cut into micro-batches; `tokens`
    that went through the model, prompts included; `seen`: this rank's micro-batches, groups with
    the members that carried gradient and the log-probabilities [T] of their tokens."""

    loss: float
    metrics: dict[str, float]
    tokens: int = 0
    seen: tuple[tuple[list[Group], Tensor], ...] = ()


def accumulate_gradients(
    policy: Policy,
    reference: Policy | None,
    groups: list[Group],
    advantages: Tensor | Objective,
    spec: PolicyLoss,
    settings: RlSettings,
    *,
    fixed: FixedLogps | None = None,
) -> Update:
    """Adds the gradient of the objective over `groups` into the parameters' `.grad`.

    `advantages` holds one value per member [S] or per token [N], in group order, or an
    `Objective`. The loss's scale is that of the whole batch, so micro-batches add up to the
    full-batch gradient. Members of advantage 0 that neither KL, preference nor likelihood needs
    contribute nothing and are left out before the forward. `fixed` holds what several updates on
    one batch share; without it the policy is the one that sampled, and every ratio is 1.
    """
    batch = Layout(groups, as_objective(advantages), settings)
    keep_all = reference is not None and spec.beta > 0
    loss, tokens, metrics = 0.0, 0, _Metrics(with_reference=reference is not None)
    chunks = _chunks(groups, batch, settings, keep_all=keep_all)
    images = any(with_images(g.prompt for g in kept) for kept, _ in chunks)
    seen: list[tuple[list[Group], Tensor]] = []
    refs: dict[int, Tensor] = {}

    def add_gradients(*, injected_alone: bool) -> float:
        """Goes through the micro-batches; returns the loss of this rank's."""
        nonlocal tokens
        total = 0.0
        stepped = sharding.pad_to_lockstep(policy, chunks, idle_chunk(groups))
        for place, (kept, rows) in enumerate(stepped):
            part = batch.part(rows)
            out, offsets = _forward(policy, kept, settings.temperature)
            old = None if fixed is None else fixed.old[part.index].to(out)
            asked = reference is not None and (keep_all or batch.asks_reference(part, reference))
            if asked and reference is not None and place not in refs:
                found = _reference_logps(reference, kept, part, fixed, settings.temperature)
                refs[place] = found.to(out)
            ref = refs.get(place)
            losses: list[Tensor] = []
            if rows and not injected_alone:
                losses.append(_policy_loss(out, old, ref, offsets, kept, part, spec, metrics))
                tokens += sum(map(_size, kept))
                seen.append((kept, out.detach()))
            if rows:
                told = None if injected_alone else metrics
                losses += _injected_losses(out, ref, offsets, part, batch.objective, told)
            value = sum(losses[1:], losses[0]) if losses else 0.0 * out.sum()
            if not torch.isfinite(value):
                raise NotFinite(f"the policy loss is {value.item()}; lower rl.lr or check rewards")
            sharding.backward(policy, value)
            total += value.item()
        sharding.drop_unused_gradients(policy, images=images)
        return total

    alone = partial(add_gradients, injected_alone=True) if batch.objective.measured_apart else None
    with measured_apart(policy, alone) as compared:
        loss = add_gradients(injected_alone=False)
    everywhere = ranks.gather((loss, tokens, metrics))
    loss, tokens = sum(e[0] for e in everywhere), sum(e[1] for e in everywhere)
    values = _Metrics.of_all([e[2] for e in everywhere]).values()
    measured = {"loss": loss, **values, **compared, **batch.objective.metrics}
    return Update(loss, measured, tokens, tuple(seen))


def _reference_logps(
    reference: Policy,
    kept: list[Group],
    part: Part,
    fixed: FixedLogps | None,
    temperature: float,
) -> Tensor:
    if fixed is not None and fixed.ref is not None:
        return fixed.ref[part.index]
    with torch.no_grad(), computing(reference):
        return _forward(reference, kept, temperature)[0]


@dataclass(frozen=True)
class FixedLogps:
    """Log-probabilities [N] that stay the same over several updates on one batch.

    old: of the policy that sampled; ref: of the reference, None without one. At members that no
    update needs they are 0.
    """

    old: Tensor
    ref: Tensor | None


@torch.no_grad()
def fixed_logps(
    policy: Policy,
    reference: Policy | None,
    groups: list[Group],
    advantages: Tensor | Objective,
    spec: PolicyLoss,
    settings: RlSettings,
) -> FixedLogps:
    """One pass of the policy, in evaluation mode as when it sampled, and one of the reference."""
    batch = Layout(groups, as_objective(advantages), settings)
    keep_all = reference is not None and spec.beta > 0
    old = torch.zeros(
        int(batch.offsets[-1]), dtype=torch.promote_types(policy.dtype, torch.float32)
    )
    ref = None if reference is None else torch.zeros_like(old)
    was_training = policy.model.training
    chunks = _chunks(groups, batch, settings, keep_all=keep_all)
    for kept, rows in sharding.pad_to_lockstep(policy, chunks, idle_chunk(groups)):
        index = batch.part(rows).index
        policy.model.eval()
        found = _forward(policy, kept, settings.temperature)[0].cpu()
        old[index] = found[: len(index)].to(old)
        if reference is not None and ref is not None:
            with computing(reference):
                found = _forward(reference, kept, settings.temperature)[0].cpu()
            ref[index] = found[: len(index)].to(ref)
    policy.model.train(was_training)
    return FixedLogps(old, ref)


def _not_sampled(groups: list[Group]) -> Tensor:
    """[S] bool, the members that the policy did not draw."""
    return torch.tensor([m.origin != "sampled" for g in groups for m in g.members])


def _any_sampler(groups: list[Group]) -> bool:
    """Whether another engine than the policy drew some member, whose ratio to it is corrected."""
    return any(m.corrected for g in groups for m in g.members)


def _sampler_logps(groups: list[Group], out: Tensor) -> Tensor:
    """[T] as `out`; NaN, which weighs 1, at members that nobody drew."""
    parts = [
        m.sampler_logps
        if m.corrected and m.sampler_logps is not None
        else torch.full((len(m.ids),), torch.nan)
        for g in groups
        for m in g.members
    ]
    return torch.cat(parts).to(out)


def _policy_loss(
    out: Tensor,
    old: Tensor | None,
    ref: Tensor | None,
    offsets: Tensor,
    kept: list[Group],
    part: Part,
    spec: PolicyLoss,
    metrics: _Metrics,
) -> Tensor:
    """The policy loss of one micro-batch, differentiable in the log-probabilities `out` [T]."""
    result = policy_loss(
        out,
        part.advantages.to(out),
        offsets,
        scale=part.scale.to(out),
        old=old,
        ref=ref,
        sampler=_sampler_logps(kept, out) if _any_sampler(kept) else None,
        weight=None if part.weight is None else part.weight.to(out),
        # In a single update every ratio is 1. In later ones that of an edited or injected member is
        # against its log-probability at rollout, and clipped as any other's.
        on_policy=None if old is not None else _not_sampled(kept).to(out.device),
        mask=None if part.mask is None else part.mask.to(out.device),
        spec=spec,
    )
    tokens = len(out) if part.mask is None else int(part.mask.sum())
    metrics.add(result.metrics, tokens)
    return result.loss


def _injected_losses(
    out: Tensor,
    ref: Tensor | None,
    offsets: Tensor,
    part: Part,
    objective: Objective,
    metrics: _Metrics | None,
) -> list[Tensor]:
    """Preference and likelihood of one micro-batch, if any, differentiable in `out` [T]."""
    losses = []
    if part.pairs is not None and objective.preference is not None:
        if ref is None:
            raise ValueError("a preference needs the reference policy's log-probabilities")
        preferred = preference_loss(
            out,
            ref,
            offsets,
            PreferencePairs(*(t.to(out.device) for t in part.pairs)),
            tau=objective.preference.tau,
            length_normalized=objective.preference.length_normalized,
        )
        losses.append(preferred.loss)
        if metrics is not None:
            metrics.add_preference(preferred.loss, preferred.metrics)
    if part.likelihood is not None:
        lengths = offsets.diff()
        share = part.likelihood.to(out) / lengths.clamp(min=1)
        losses.append(-(share.repeat_interleave(lengths) * out).sum())
    return losses


class _Metrics:
    """The losses' metrics over micro-batches: counts add up, means weigh by tokens or pairs.

    What was not computed (entropy, and KL without a reference) is left out: logged as 0 it would
    read as measured.
    """

    def __init__(self, *, with_reference: bool) -> None:
        self._left_out = {"tokens", "entropy"} | (set() if with_reference else {"kl"})
        self._tokens = 0
        self._sums: dict[str, float] = {}
        self._pairs, self._preference = 0.0, {"loss": 0.0}

    def add(self, metrics: Mapping[str, Tensor], tokens: int) -> None:
        if tokens == 0:
            return
        self._tokens += tokens
        for name in metrics.keys() - self._left_out:
            value, so_far = float(metrics[name]), self._sums.get(name, 0.0)
            if name == "ratio_max":
                self._sums[name] = max(so_far, value)
            else:
                self._sums[name] = so_far + value * (1 if name == "active_tokens" else tokens)

    def add_preference(self, loss: Tensor, metrics: Mapping[str, Tensor]) -> None:
        pairs = float(metrics["pairs"])
        self._pairs += pairs
        self._preference["loss"] += float(loss.detach())
        for name in metrics.keys() - {"pairs"}:
            so_far = self._preference.get(name, 0.0)
            self._preference[name] = so_far + float(metrics[name]) * pairs

    @classmethod
    def of_all(cls, parts: Sequence[_Metrics]) -> _Metrics:
        """What one process would have counted, from what each rank has."""
        whole, *others = parts
        for other in others:
            whole._tokens += other._tokens
            whole._pairs += other._pairs
            for name, value in other._sums.items():
                so_far = whole._sums.get(name, 0.0)
                both = (so_far, value)
                whole._sums[name] = max(both) if name == "ratio_max" else sum(both)
            for name, value in other._preference.items():
                whole._preference[name] = whole._preference.get(name, 0.0) + value
        return whole

    def values(self) -> dict[str, float]:
        whole = ("ratio_max", "active_tokens")
        means = {k: v if k in whole else v / self._tokens for k, v in sorted(self._sums.items())}
        preference = {
            f"preference/{k}": v if k == "loss" else v / self._pairs
            for k, v in sorted(self._preference.items())
            if self._pairs
        }
        return {"scored_tokens": float(self._tokens), **means, **preference}


def micro_batches(groups: list[Group], token_budget: int) -> list[list[Group]]:
    """Consecutive groups whose packed tokens stay within the budget; never a split group."""
    return within_budget(groups, list(map(_size, groups)), token_budget)


def _size(group: Group) -> int:
    """Tokens of a group in the packed forward, its prompt once."""
    return len(group.prompt.input_ids) + sum(len(m.ids) for m in group.members)


def _forward(policy: Policy, groups: list[Group], temperature: float) -> tuple[Tensor, Tensor]:
    """Log-probabilities [T] of the members' tokens, and where each member's begin."""
    prompts, offsets = [g.prompt for g in groups], []

    def compute() -> Tensor:
        hidden, batch = hidden_states(policy, prompts, [[m.ids for m in g.members] for g in groups])
        offsets.append(batch.offsets)
        weight, bias = head(policy)
        return linear_token_logps(
            hidden, weight, batch.targets, bias=bias, temperature=temperature
        ).logps

    return sharding.forward(policy, compute, images=with_images(prompts)), offsets[0]


def _chunks(
    groups: list[Group], batch: Layout, settings: RlSettings, *, keep_all: bool
) -> list[tuple[list[Group], list[int]]]:
    """This rank's micro-batches, of groups with the members that are needed, and their rows."""
    own = [g for g in groups if g.rank == ranks.rank()] if ranks.size() > 1 else groups
    found = (
        _needed(chunk, groups, batch.needed, batch.offsets, keep_all=keep_all)
        for chunk in micro_batches(own, settings.token_budget)
    )
    return [(kept, rows) for kept, rows in found if rows]


def _needed(
    chunk: list[Group],
    groups: list[Group],
    per_token: Tensor,
    offsets: Tensor,
    *,
    keep_all: bool,
) -> tuple[list[Group], list[int]]:
    """The chunk's groups with the members that carry gradient, and those members' rows."""
    first = dict(zip([id(g) for g in groups], group_offsets(groups).tolist(), strict=False))
    kept: list[Group] = []
    rows: list[int] = []
    for group in chunk:
        begin = first[id(group)]
        needed = [
            k
            for k in range(len(group.members))
            if keep_all or bool(per_token[offsets[begin + k] : offsets[begin + k + 1]].any())
        ]
        if needed:
            kept.append(replace(group, members=tuple(group.members[k] for k in needed)))
            rows.extend(begin + k for k in needed)
    return kept, rows
