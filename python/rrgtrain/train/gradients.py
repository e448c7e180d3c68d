"""Compute the gradients of a batch: forward of the shared prefix, losses, backward.

On several ranks the groups are those of all, and each rank computes its own: normalisers are those
of the whole batch, and losses and gradients add up to what one process has.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from rrgkern import (
    PolicyLoss,
    PolicyLossOutput,
    PreferencePairs,
    linear_policy_loss,
    off_policy_weight,
    policy_loss,
    preference_loss,
    top_entropy_weight,
)
from rrgpolicy.model.forward import head_logps, hidden_states
from rrgpolicy.model.policy import Policy
from rrgpolicy.ranks import ranks, sharding
from rrgtrain.algorithms.group import Group, Objective
from rrgtrain.errors import NotFinite
from rrgtrain.schema import RlSettings
from rrgtrain.train.batch import Batch
from rrgtrain.train.micro_batch import MicroBatch, group_size, idle_micro_batch, with_images
from rrgtrain.train.reference import computing
from rrgtrain.train.step_log import LossMetrics

Computed = tuple[MicroBatch, Tensor]
RATIO = "oracle/gradient_ratio"


@dataclass(frozen=True)
class Gradients:
    """Hold the numbers of a whole batch's gradients, on the host.

    loss: of the batch; metrics: of it, however it was cut into micro-batches; tokens: what went
    through the model, prompts included; computed: this rank's micro-batches with the
    log-probabilities [T] of their tokens, nothing where those were not asked for; norm: of the
    gradients before clipping, if it was given.
    """

    loss: float
    metrics: dict[str, float]
    tokens: int = 0
    computed: tuple[Computed, ...] = ()
    norm: float = math.nan


@dataclass
class Accumulated:
    """Hold what a batch's backward left on the device, until it is read at once.

    losses: one of each of this rank's forwards. micros: those that have members, with
    policy_metrics and logps, their log-probabilities (of none, or of all). preferences: losses and
    metrics of those that have pairs. squares: of those that are `logs_gradient_ratio`, see
    `_squared_slopes`. threshold: of `off_policy_weight`.
    """

    objective: Objective
    threshold: float | None = None
    losses: list[Tensor] = field(default_factory=list)
    micros: list[MicroBatch] = field(default_factory=list)
    logps: list[Tensor] = field(default_factory=list)
    policy_metrics: list[dict[str, Tensor]] = field(default_factory=list)
    preferences: list[dict[str, Tensor]] = field(default_factory=list)
    squares: list[Tensor] = field(default_factory=list)

    def add(
        self, micro: MicroBatch, policy: PolicyLossOutput, logps: Tensor | None = None
    ) -> Tensor:
        """Take the policy loss of a micro-batch; returns the loss."""
        self.micros.append(micro)
        row = dict(policy.metrics)
        if micro.ref is None:
            del row["kl"]  # logged as 0 it would read as measured
        self.policy_metrics.append(row)
        if logps is not None:
            self.logps.append(logps.detach())
        return policy.loss

    def read(self, norm: Tensor | None = None) -> Gradients:
        """Read all numbers at once, and add up those of the ranks.

        norm: that of the gradients. The host waits for the device here and nowhere else. All ranks
        call it. Raises NotFinite.
        """
        losses, logps, squares, norms, *others = read_at_once(
            self.losses,
            self.logps,
            self.squares,
            [] if norm is None else [norm],
            *(list(row.values()) for row in (*self.policy_metrics, *self.preferences)),
        )
        for value in losses:
            if not torch.isfinite(value):
                raise NotFinite(f"the policy loss is {value.item()}; lower rl.lr or check rewards")
        micros = self.micros
        rows = [*self.policy_metrics, *self.preferences]
        named = [
            # plain numbers: a view would carry all that was read with it to the other ranks
            dict(zip(row, map(float, values), strict=True))
            for row, values in zip(rows, others, strict=True)
        ]
        counts = (len(m.index) if m.mask is None else int(m.mask.sum()) for m in micros)
        counted = list(zip(named[: len(micros)], counts, strict=True))
        loss = sum((value.item() for value in losses), 0.0)
        tokens = sum(group_size(group) for micro in micros for group in micro.groups)
        own = sum(squares, torch.zeros(2, dtype=torch.float64)).tolist()
        of_ranks = ranks.gather((loss, tokens, counted, own, named[len(micros) :]))
        metrics = LossMetrics()
        for _, _, rows_of_losses, _, preferred in of_ranks:
            for row, count in rows_of_losses:
                metrics.add(row, count)
            for row in preferred:
                metrics.add_preference(row)
        loss, tokens = sum(part[0] for part in of_ranks), sum(part[1] for part in of_ranks)
        values = metrics.values()
        injected, of_policy = (sum(part[3][k] for part in of_ranks) for k in (0, 1))
        apart = {RATIO: math.sqrt(injected / of_policy)} if of_policy > 0 else {}
        return Gradients(
            loss,
            {"loss": loss, **values, **apart, **self.objective.metrics},
            tokens,
            tuple(zip(micros, logps, strict=True)) if logps else (),
            math.nan if norm is None else norms[0].item(),
        )


def accumulate_gradients(
    policy: Policy,
    reference: Policy | None,
    batch: Batch,
    loss: PolicyLoss,
    settings: RlSettings,
    *,
    read_logps: bool = True,
) -> Accumulated:
    """Adds the gradient of the batch's objective into the parameters' `.grad`.

    The loss's scale is that of the whole batch, so micro-batches add up to the full-batch
    gradient. Members that carry no gradient are left out before the forward. Without `batch.old`
    the policy is the one that sampled, and every ratio is 1. Nothing is read from the device; see
    `Accumulated.read`.

    read_logps: whether the log-probabilities are wanted beside the loss. Where they are not, and
    the policy loss through a frozen head is all there is, both are computed in one.
    """
    keep_all = reference is not None and loss.beta > 0
    if settings.top_entropy_quantile < 1:
        batch = _with_top_entropy(policy, batch, settings)
    done = Accumulated(batch.objective, settings.off_policy_mask_threshold)
    micros = batch.micro_batches(settings.token_budget, keep_all=keep_all)
    images = any(with_images(g.prompt for g in micro.groups) for micro in micros)
    # for all micro-batches or none: the KL that is logged is that of the batch, however it is cut
    compared = reference if keep_all or batch.objective.preference is not None else None
    read_logps = read_logps or done.threshold is not None
    in_one = not read_logps and is_loss_of_frozen_head(policy, batch.objective)

    def with_ref(micro: MicroBatch) -> MicroBatch:
        """Adds the reference's log-probabilities, once."""
        if compared is None or batch.ref is not None or micro.ref is not None:
            return micro
        with torch.no_grad(), computing(compared):
            return replace(micro, ref=_forward(compared, micro.groups, settings.temperature)[0])

    for micro in _in_step(policy, batch, micros):
        if in_one:  # also on a rank that keeps others company: all gather in one order
            micro = with_ref(micro)
        if in_one and micro.rows:
            value = done.add(micro, _loss_of_hidden(policy, micro, loss, settings))
        else:
            logps, offsets = _forward(policy, micro.groups, settings.temperature)
            micro = with_ref(micro)
            value = 0.0 * logps.sum()
            if micro.rows:
                value = _add_losses(done, micro, logps.view_as(logps), offsets, loss)
        done.losses.append(value.detach())
        sharding.backward(policy, value)
    sharding.drop_unused_gradients(policy, images=images)
    return done


def _add_losses(
    done: Accumulated, micro: MicroBatch, logps: Tensor, offsets: Tensor, loss: PolicyLoss
) -> Tensor:
    """Sum the losses of one micro-batch; `done` takes their numbers.

    logps: a view of the model's, so that no hook on those sees what is taken apart here.
    """
    inputs = _policy_inputs(micro, logps)
    sampled = inputs["old"] if inputs["sampler"] is None else inputs["sampler"]
    if done.threshold is not None and sampled is not None:
        both = {"threshold": done.threshold, "mask": inputs["mask"]}
        weight = off_policy_weight(logps, sampled, inputs["advantages"], offsets, **both)
        inputs["advantages"] = inputs["advantages"] * weight
    own = done.add(micro, policy_loss(logps, offsets=offsets, spec=loss, **inputs), logps)
    preferred, injected = _injected_losses(logps, offsets, micro, done.objective)
    if preferred:
        done.preferences.append(preferred)
    if done.objective.logs_gradient_ratio:
        done.squares.append(torch.stack([_squared_slopes(p, logps) for p in (injected, [own])]))
    return sum(injected, own)


def _squared_slopes(parts: list[Tensor], logps: Tensor) -> Tensor:
    """Σ_t (∂part/∂logp_t)² in fp64.

    A loss makes its slopes with its value (SPEC 7's closed form), and nothing goes through the
    model. Over the tokens of all members these squares add up, however a batch is cut.
    """
    if not parts:
        return torch.zeros((), dtype=torch.float64, device=logps.device)
    (slopes,) = torch.autograd.grad(sum(parts[1:], parts[0]), logps, retain_graph=True)
    return slopes.double().square().sum()


@torch.no_grad()
def _with_top_entropy(policy: Policy, batch: Batch, settings: RlSettings) -> Batch:
    """Leave an advantage to the tokens of most entropy among those of all ranks."""
    was_training, parts = policy.model.training, list[Tensor]()
    micros = batch.micro_batches(settings.token_budget, keep_all=True)
    for micro in _in_step(policy, batch, micros):
        policy.model.eval()
        parts.append(_forward(policy, micro.groups, settings.temperature, entropy=True)[0])
    policy.model.train(was_training)
    entropy = torch.zeros(len(batch.member_of_token), dtype=torch.float64)
    for micro, values in zip(micros, read_at_once(parts)[0], strict=False):
        entropy[micro.index] = values.double()
    whole = sum(ranks.gather(entropy), torch.zeros_like(entropy))  # 0 at tokens of other ranks
    weight = top_entropy_weight(whole, settings.top_entropy_quantile, batch.mask)
    return replace(batch, advantages=batch.advantages * weight.to(batch.advantages))


@torch.no_grad()
def with_rollout_logps(
    policy: Policy, reference: Policy | None, batch: Batch, loss: PolicyLoss, settings: RlSettings
) -> Batch:
    """Return the batch with `old` and `ref` [N].

    They stay the same over several updates on it.

    One pass of the policy, in evaluation mode as when it sampled, and one of the reference. At
    members that no update needs they are 0.
    """
    keep_all = reference is not None and loss.beta > 0
    old = torch.zeros(len(batch.member_of_token), dtype=_wide(policy.dtype))
    ref = None if reference is None else torch.zeros_like(old)
    was_training = policy.model.training
    micros = batch.micro_batches(settings.token_budget, keep_all=keep_all)
    of_policy: list[Tensor] = []
    of_reference: list[Tensor] = []
    for micro in _in_step(policy, batch, micros):
        policy.model.eval()
        of_policy.append(_forward(policy, micro.groups, settings.temperature)[0])
        if reference is not None:
            with computing(reference):
                of_reference.append(_forward(reference, micro.groups, settings.temperature)[0])
    policy.model.train(was_training)
    for whole, parts in zip((old, ref), read_at_once(of_policy, of_reference), strict=True):
        if whole is not None:
            for micro, logps in zip(micros, parts, strict=False):  # then what kept others company
                whole[micro.index] = logps.to(whole)
    return replace(batch, old=old, ref=ref)


def _in_step(policy: Policy, batch: Batch, micros: list[MicroBatch]) -> Iterator[MicroBatch]:
    return sharding.pad_to_lockstep(policy, micros, idle_micro_batch(batch.groups))


def is_loss_of_frozen_head(policy: Policy, objective: Objective) -> bool:
    """Tell whether the objective is the policy loss alone, through a frozen head.

    Then `linear_policy_loss` takes two products with the head's weight for three."""
    head = policy.backbone.get_output_embeddings()
    frozen = not any(p.requires_grad for p in head.parameters())
    alone = objective.preference is None and objective.likelihood is None
    return frozen and alone


def _loss_of_hidden(
    policy: Policy, micro: MicroBatch, loss: PolicyLoss, settings: RlSettings
) -> PolicyLossOutput:
    """The policy loss of one micro-batch from hidden states and head; no log-probabilities."""
    prompts, metrics = [g.prompt for g in micro.groups], dict[str, Tensor]()

    def compute() -> Tensor:
        members = [[m.ids for m in g.members] for g in micro.groups]
        hidden, packed = hidden_states(policy, prompts, members)
        head = policy.head()
        wide = torch.empty(0, device=hidden.device, dtype=_wide(hidden.dtype))
        result = linear_policy_loss(
            *(hidden, head.weight, packed.targets),
            offsets=packed.offsets,
            bias=head.bias,
            softcap=head.softcap,
            temperature=settings.temperature,
            spec=loss,
            **_policy_inputs(micro, wide),
        )
        metrics.update(result.metrics)
        return result.loss

    out = sharding.forward(policy, compute, images=with_images(prompts))
    return PolicyLossOutput(out, metrics)


def _wide(dtype: torch.dtype) -> torch.dtype:
    return torch.promote_types(dtype, torch.float32)


def _policy_inputs(micro: MicroBatch, like: Tensor) -> dict[str, Any]:
    """The arguments of both doors to the policy loss, in the dtype and on the device of `like`."""
    given = {
        "advantages": micro.advantages[None],  # one per token, also where there are S tokens
        "scale": micro.scale,
        "old": micro.old,
        "ref": micro.ref,
        "sampler": micro.sampler,
        "token_weight": micro.weight,
    }
    # In a single update the ratio of an edited or injected member is 1. In later ones it is against
    # its log-probability at rollout, and clipped as any other's.
    flags = {"on_policy": micro.at_ratio_one, "mask": micro.mask}
    return {
        **{name: None if values is None else values.to(like) for name, values in given.items()},
        **{name: None if flag is None else flag.to(like.device) for name, flag in flags.items()},
    }


def _injected_losses(
    logps: Tensor, offsets: Tensor, micro: MicroBatch, objective: Objective
) -> tuple[dict[str, Tensor], list[Tensor]]:
    """Preference and likelihood of one micro-batch, if any, differentiable in `logps` [T].

    Before them the preference's "loss" and metrics, without gradient; none without pairs.
    """
    losses: list[Tensor] = []
    row: dict[str, Tensor] = {}
    if micro.pairs is not None and objective.preference is not None:
        if micro.ref is None:
            raise ValueError("a preference needs the reference policy's log-probabilities")
        preferred = preference_loss(
            logps,
            micro.ref.to(logps),
            offsets,
            PreferencePairs(*(t.to(logps.device) for t in micro.pairs)),
            tau=objective.preference.tau,
            length_normalized=objective.preference.length_normalized,
        )
        losses.append(preferred.loss)
        row = {"loss": preferred.loss.detach(), **preferred.metrics}
    if micro.likelihood is not None:
        lengths = offsets.diff()
        share = micro.likelihood.to(logps) / lengths.clamp(min=1)
        spread = share.repeat_interleave(lengths, output_size=len(logps))
        losses.append(-(spread * logps).sum())
    return row, losses


def _forward(
    policy: Policy, groups: list[Group], temperature: float, entropy: bool = False
) -> tuple[Tensor, Tensor]:
    """Log-probabilities [T] of the members' tokens, or entropies; and where each member begins."""
    prompts, offsets = [g.prompt for g in groups], []

    def compute() -> Tensor:
        hidden, packed = hidden_states(
            policy, prompts, [[m.ids for m in g.members] for g in groups]
        )
        offsets.append(packed.offsets)
        return head_logps(policy, hidden, packed.targets, temperature, entropy=entropy)

    return sharding.forward(policy, compute, images=with_images(prompts)), offsets[0]


def read_at_once(*lists: Sequence[Tensor]) -> list[list[Tensor]]:
    """Copy the floating-point tensors of all lists to the host in one transfer.

    A read waits until the device has done all that it was given, and then the device waits for the
    host: so the numbers of a step are read together. Shapes stay; values come in the widest dtype
    among them, in which each is exact.
    """
    flat = [tensor.detach().flatten() for each in lists for tensor in each]
    if not flat:
        return [[] for _ in lists]
    parts = iter(torch.cat(flat).cpu().split([len(values) for values in flat]))
    return [[next(parts).view(tensor.shape) for tensor in each] for each in lists]
