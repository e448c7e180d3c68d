"""The update: every member of every group through the shared prefix and the fused loss."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch

from rrgkern import PolicyLoss, linear_token_logps, loss_scale, policy_loss
from rrgtrain.algorithms.group import Group, group_offsets
from rrgtrain.errors import UserError
from rrgtrain.policy.forward import head, hidden_states
from rrgtrain.policy.policy import Policy
from rrgtrain.schema import Rl


@dataclass(frozen=True)
class Update:
    """`loss` of the whole batch; `metrics` of it, however it was cut into micro-batches."""

    loss: float
    metrics: dict[str, float]


def accumulate_gradients(
    policy: Policy,
    reference: Policy | None,
    groups: list[Group],
    advantages: torch.Tensor,
    spec: PolicyLoss,
    settings: Rl,
) -> Update:
    """Adds the gradient of the policy loss over `groups` into the parameters' `.grad`.

    `advantages` holds one value per member [S] or per token [N], in group order. The loss's
    scale is that of the whole batch, so micro-batches add up to the full-batch gradient. With
    no reference model, members of advantage 0 contribute nothing and are left out before the
    forward.
    """
    lengths = torch.tensor([len(m.ids) for g in groups for m in g.members])
    offsets = torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])
    scale = loss_scale(
        settings.aggregation,
        offsets,
        max_length=settings.max_new_tokens if settings.aggregation == "dr_grpo" else None,
        total_tokens=int(offsets[-1]) if settings.aggregation == "dapo" else None,
    )
    if len(advantages) not in (len(lengths), int(offsets[-1])):
        raise UserError(
            f"the algorithm gave {len(advantages)} advantages; wanted {len(lengths)}, one per "
            f"member, or {int(offsets[-1])}, one per token"
        )
    bounds = offsets.tolist()
    tokens = torch.repeat_interleave(torch.arange(len(lengths)), lengths)
    per_token = advantages if len(advantages) == int(offsets[-1]) else advantages[tokens]

    loss, metrics = 0.0, _Metrics(with_reference=reference is not None)
    for chunk in micro_batches(groups, settings.token_budget):
        kept, rows = _needed(chunk, groups, per_token, offsets, keep_all=reference is not None)
        if not rows:
            continue
        index = torch.cat([torch.arange(bounds[s], bounds[s + 1]) for s in rows])
        out, batch = _forward(policy, kept, settings.temperature)
        ref = None
        if reference is not None:
            with torch.no_grad():
                ref = _forward(reference, kept, settings.temperature)[0]
        result = policy_loss(
            out,
            per_token[index].to(out),
            batch.offsets,
            scale=scale[torch.tensor(rows)].to(out),
            ref=ref,
            on_policy=torch.tensor(
                [m.origin != "sampled" for g in kept for m in g.members], device=out.device
            ),
            spec=spec,
        )
        if not torch.isfinite(result.loss):
            raise UserError(
                f"the policy loss is {result.loss.item()}; lower rl.lr or check rewards"
            )
        result.loss.backward()
        loss += result.loss.item()
        metrics.add(result.metrics, len(index))
    return Update(loss, {"loss": loss, **metrics.values()})


class _Metrics:
    """The policy loss's metrics over micro-batches: counts add up, means weigh by tokens.

    What was not computed (entropy, and KL without a reference) is left out: logged as 0 it would
    read as measured.
    """

    def __init__(self, *, with_reference: bool) -> None:
        self._left_out = {"tokens", "entropy"} | (set() if with_reference else {"kl"})
        self._tokens = 0
        self._sums: dict[str, float] = {}

    def add(self, metrics: Mapping[str, torch.Tensor], tokens: int) -> None:
        self._tokens += tokens
        for name in metrics.keys() - self._left_out:
            value, so_far = float(metrics[name]), self._sums.get(name, 0.0)
            if name == "ratio_max":
                self._sums[name] = max(so_far, value)
            else:
                self._sums[name] = so_far + value * (1 if name == "active_tokens" else tokens)

    def values(self) -> dict[str, float]:
        whole = ("ratio_max", "active_tokens")
        means = {k: v if k in whole else v / self._tokens for k, v in sorted(self._sums.items())}
        return {"scored_tokens": float(self._tokens), **means}


def micro_batches(groups: list[Group], token_budget: int) -> list[list[Group]]:
    """Consecutive groups whose packed tokens stay within the budget; never a split group."""
    chunks: list[list[Group]] = []
    used = 0
    for group in groups:
        size = len(group.prompt.input_ids) + sum(len(m.ids) for m in group.members)
        if not chunks or used + size > token_budget:
            chunks.append([])
            used = 0
        chunks[-1].append(group)
        used += size
    return chunks


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
    per_token: torch.Tensor,
    offsets: torch.Tensor,
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
