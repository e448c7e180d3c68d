"""The update: every member of every group through the shared prefix and the fused losses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from rrgkern import (
    PolicyLoss,
    PreferencePairs,
    linear_token_logps,
    loss_scale,
    policy_loss,
    preference_loss,
)
from rrgtrain.algorithms.base import as_objective
from rrgtrain.algorithms.group import Group, competing, group_offsets, token_offsets
from rrgtrain.algorithms.objective import Objective
from rrgtrain.engine.reference import computing
from rrgtrain.errors import NotFinite, UserError
from rrgtrain.policy.forward import head, hidden_states
from rrgtrain.policy.policy import Policy
from rrgtrain.schema import Rl


@dataclass(frozen=True)
class Update:
    """`loss` of the whole batch; `metrics` of it, however it was cut into micro-batches; `tokens`
    that went through the model, prompts included."""

    loss: float
    metrics: dict[str, float]
    tokens: int = 0


def accumulate_gradients(
    policy: Policy,
    reference: Policy | None,
    groups: list[Group],
    advantages: Tensor | Objective,
    spec: PolicyLoss,
    settings: Rl,
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
    batch = _Batch(groups, as_objective(advantages), settings)
    keep_all = reference is not None and spec.beta > 0
    loss, tokens, metrics = 0.0, 0, _Metrics(with_reference=reference is not None)
    for chunk in micro_batches(groups, settings.token_budget):
        kept, rows = _needed(chunk, groups, batch.needed, batch.offsets, keep_all=keep_all)
        if not rows:
            continue
        part = batch.part(rows)
        out, packed = _forward(policy, kept, settings.temperature)
        old = ref = None
        if fixed is not None:
            old = fixed.old[part.index].to(out)
        if reference is not None and (keep_all or part.pairs is not None):
            ref = _reference_logps(reference, kept, part, fixed, settings.temperature).to(out)
        value = _chunk_loss(
            out, old, ref, packed.offsets, kept, part, spec, batch.objective, metrics
        )
        if not torch.isfinite(value):
            raise NotFinite(f"the policy loss is {value.item()}; lower rl.lr or check rewards")
        value.backward()
        loss += value.item()
        tokens += sum(map(_size, kept))
    return Update(loss, {"loss": loss, **metrics.values(), **batch.objective.metrics}, tokens)


def _reference_logps(
    reference: Policy,
    kept: list[Group],
    part: _Part,
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
    settings: Rl,
) -> FixedLogps:
    """One pass of the policy, in evaluation mode as when it sampled, and one of the reference."""
    batch = _Batch(groups, as_objective(advantages), settings)
    keep_all = reference is not None and spec.beta > 0
    old = torch.zeros(
        int(batch.offsets[-1]), dtype=torch.promote_types(policy.dtype, torch.float32)
    )
    ref = None if reference is None else torch.zeros_like(old)
    was_training = policy.model.training
    for chunk in micro_batches(groups, settings.token_budget):
        kept, rows = _needed(chunk, groups, batch.needed, batch.offsets, keep_all=keep_all)
        if not rows:
            continue
        index = batch.part(rows).index
        policy.model.eval()
        old[index] = _forward(policy, kept, settings.temperature)[0].cpu().to(old)
        if reference is not None and ref is not None:
            with computing(reference):
                ref[index] = _forward(reference, kept, settings.temperature)[0].cpu().to(ref)
    policy.model.train(was_training)
    return FixedLogps(old, ref)


@dataclass(frozen=True)
class _Part:
    """What `_Batch` says of the members of one micro-batch, whose T tokens stand in a row.

    index [T]: their places among the N tokens of the batch; advantages [T]; scale [members];
    weight, mask [T] or None; likelihood [members] or None; pairs of the members as they are
    counted here, or None.
    """

    index: Tensor
    advantages: Tensor
    scale: Tensor
    weight: Tensor | None
    mask: Tensor | None
    pairs: PreferencePairs | None
    likelihood: Tensor | None


class _Batch:
    """The objective of a whole batch, laid out by token, to be asked for parts of it."""

    def __init__(self, groups: list[Group], objective: Objective, settings: Rl) -> None:
        self.objective = objective
        self.offsets = token_offsets(groups)
        self._bounds = self.offsets.tolist()
        count, tokens = len(self._bounds) - 1, self._bounds[-1]
        given = objective.advantages
        if len(given) not in (count, tokens):
            raise UserError(
                f"the algorithm gave {len(given)} advantages; wanted {count}, one per "
                f"member, or {tokens}, one per token"
            )
        self._check("weight", objective.weight, tokens, "token")
        self._check("mask", objective.mask, tokens, "token")
        self._check("group_weight", objective.group_weight, len(groups), "group")
        self._check("likelihood", objective.likelihood, count, "member")

        member = torch.repeat_interleave(torch.arange(count), self.offsets.diff())
        compete = competing(groups)
        self._mask = objective.mask
        if not bool(compete.all()):
            own = compete[member]
            self._mask = own if objective.mask is None else objective.mask & own
        per_token = given if len(given) == tokens else given[member]
        if self._mask is not None:
            per_token = torch.where(self._mask, per_token, 0.0)
        self._advantages = per_token
        self._scale = _scale(compete, self.offsets, objective.mask, settings)
        if objective.group_weight is not None:
            sizes = group_offsets(groups).diff()
            self._scale = self._scale * objective.group_weight.repeat_interleave(sizes)
        self.needed = self._needed(member, count)

    def part(self, rows: list[int]) -> _Part:
        """What concerns the members `rows`."""
        index = torch.cat([torch.arange(self._bounds[s], self._bounds[s + 1]) for s in rows])
        chosen = torch.tensor(rows)
        objective = self.objective
        return _Part(
            index,
            self._advantages[index],
            self._scale[chosen],
            None if objective.weight is None else objective.weight[index],
            None if self._mask is None else self._mask[index],
            self._pairs(chosen),
            None if objective.likelihood is None else objective.likelihood[chosen],
        )

    def _needed(self, member: Tensor, count: int) -> Tensor:
        """[N], not 0 at the tokens of members that carry gradient even without a KL term."""
        extra = torch.zeros(count, dtype=torch.bool)
        if self.objective.preference is not None:
            pairs = self.objective.preference.pairs
            extra[pairs.positive[pairs.weight != 0]] = True
            extra[pairs.negative[pairs.weight != 0]] = True
        if self.objective.likelihood is not None:
            extra |= self.objective.likelihood != 0
        return (self._advantages != 0) | extra[member]

    def _pairs(self, rows: Tensor) -> PreferencePairs | None:
        """The pairs among `rows`, by their place there; None without any."""
        if self.objective.preference is None:
            return None
        pairs = self.objective.preference.pairs
        place = torch.full((len(self._bounds) - 1,), -1)
        place[rows] = torch.arange(len(rows))
        positive, negative = place[pairs.positive], place[pairs.negative]
        active = pairs.weight != 0
        inside = active & (positive >= 0) & (negative >= 0)
        if bool((active & ~inside & ((positive >= 0) | (negative >= 0))).any()):
            raise UserError("a preference pair names members of two groups; keep it within one")
        if not bool(inside.any()):
            return None
        return PreferencePairs(positive[inside], negative[inside], pairs.weight[inside])

    @staticmethod
    def _check(name: str, given: Tensor | None, wanted: int, each: str) -> None:
        if given is not None and given.shape != (wanted,):
            raise UserError(
                f"the algorithm gave {name} of shape {tuple(given.shape)}; wanted ({wanted},), "
                f"one per {each}"
            )


def _scale(compete: Tensor, offsets: Tensor, mask: Tensor | None, settings: Rl) -> Tensor:
    """[S] scale of each member's tokens among those that compete; 0 for the others."""
    lengths = offsets.diff()
    own = torch.cat([lengths.new_zeros(1), lengths[compete].cumsum(0)])
    if mask is not None:
        mask = mask[compete.repeat_interleave(lengths)]
    total = int(own[-1]) if mask is None else int(mask.sum())
    scale = loss_scale(
        settings.aggregation,
        own,
        max_length=settings.max_new_tokens if settings.aggregation == "dr_grpo" else None,
        total_tokens=total if settings.aggregation == "dapo" else None,
        mask=mask,
    )
    return scale.new_zeros(len(compete)).masked_scatter(compete, scale)


def _chunk_loss(
    out: Tensor,
    old: Tensor | None,
    ref: Tensor | None,
    offsets: Tensor,
    kept: list[Group],
    part: _Part,
    spec: PolicyLoss,
    objective: Objective,
    metrics: _Metrics,
) -> Tensor:
    """The loss of one micro-batch, differentiable in the log-probabilities `out` [T]."""
    result = policy_loss(
        out,
        part.advantages.to(out),
        offsets,
        scale=part.scale.to(out),
        old=old,
        ref=ref,
        weight=None if part.weight is None else part.weight.to(out),
        on_policy=torch.tensor(
            [m.origin != "sampled" for g in kept for m in g.members], device=out.device
        ),
        mask=None if part.mask is None else part.mask.to(out.device),
        spec=spec,
    )
    tokens = len(out) if part.mask is None else int(part.mask.sum())
    metrics.add(result.metrics, tokens)
    total = result.loss
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
        total = total + preferred.loss
        metrics.add_preference(preferred.loss, preferred.metrics)
    if part.likelihood is not None:
        lengths = offsets.diff()
        share = part.likelihood.to(out) / lengths.clamp(min=1)
        total = total - (share.repeat_interleave(lengths) * out).sum()
    return total


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
    chunks: list[list[Group]] = []
    used = 0
    for group in groups:
        size = _size(group)
        if not chunks or used + size > token_budget:
            chunks.append([])
            used = 0
        chunks[-1].append(group)
        used += size
    return chunks


def _size(group: Group) -> int:
    """Tokens of a group in the packed forward, its prompt once."""
    return len(group.prompt.input_ids) + sum(len(m.ids) for m in group.members)


def _forward(policy: Policy, groups: list[Group], temperature: float) -> tuple:
    hidden, batch = hidden_states(
        policy, [g.prompt for g in groups], [[m.ids for m in g.members] for g in groups]
    )
    weight, bias = head(policy)
    logps = linear_token_logps(hidden, weight, batch.targets, bias=bias, temperature=temperature)
    return logps.logps, batch


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
