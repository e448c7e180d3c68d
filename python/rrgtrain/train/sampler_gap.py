"""The gap between the sampler's log-probabilities and the trainer's: logged at every step, bounded.

`rrgpolicy.sampler_alarm` names the fault; here is what a run can play of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from rrgpolicy.model.adapters import is_adapted
from rrgpolicy.model.policy import Policy
from rrgpolicy.model.prompt import placed
from rrgpolicy.ranks import ranks
from rrgpolicy.sampler_alarm import ROUNDING, Run, gap_row, mean_gap, sampler_alarm
from rrgtrain.algorithms import Algorithm, Group
from rrgtrain.algorithms.group import Member, members
from rrgtrain.errors import UserError
from rrgtrain.schema import RlSettings
from rrgtrain.train.batch import Batch
from rrgtrain.train.gradients import Computed, with_rollout_logps
from rrgtrain.train.micro_batch import with_images
from rrgtrain.train.reference import computing

# Groups of a batch that are computed anew where the update's own forward cannot be compared.
FEW = 8
# Log-probs fp64 [N] of trainer and sampler, and bool [N]: the prompt has images.
Compared = tuple[Tensor, Tensor, Tensor]


class SamplerWatch:
    """Compares what the sampler said of its tokens with the trainer, before weights change.

    The update's own forward serves where it is deterministic: all members that carry gradient, at
    no cost. With dropout, or where no member carries gradient, `FEW` groups are computed anew in
    evaluation mode.

    compares_updates: whether the log-probabilities of an update serve, without dropout.
    """

    def __init__(
        self,
        policy: Policy,
        algorithm: Algorithm,
        settings: RlSettings,
        max_gap: float | None,
        reference: Policy | None = None,
    ) -> None:
        """The limit is `rollout.max_gap`, else what is `ROUNDING` in the policy's dtype.

        reference: the policy as it was at step 0, where it is kept.
        """
        self._policy, self._algorithm, self._settings = policy, algorithm, settings
        self._start = reference
        self._limit = ROUNDING[policy.dtype] if max_gap is None else max_gap
        self.compares_updates = not any(
            isinstance(module, torch.nn.Dropout) and module.p > 0
            for module in policy.model.modules()
        )
        self._agreed = False

    def __call__(self, batch: Batch, computed: Sequence[Computed]) -> dict[str, float]:
        """The step's row, empty where the engine reports no log-probabilities.

        computed: this rank's micro-batches with the log-probabilities [T] of all their tokens, on
            the host.
        Raises UserError where the mean gap is above the limit; the line names the likely cause.
        """
        groups, top_p = batch.groups, self._settings.top_p
        pairs = [(micro.groups, logps) for micro, logps in computed]
        compared = _of_all_ranks(pairs) if self.compares_updates else None
        if compared is None or not len(compared[0]):
            compared = self._anew(_few(groups))
        if not len(compared[0]):
            return {}
        row = gap_row(*compared[:2], top_p)
        if not row["sampler/gap_mean"] <= self._limit:
            # vLLM's log-probs are those of what it draws from. A trained policy gives images' ids
            # nothing, a random one of few tokens does.
            policy = replace(self._policy, left_out=self._policy.never_sampled)
            without = self._anew(_drawn(groups), policy)
            if mean_gap(*without[:2], top_p) <= self._limit:
                row = gap_row(*without[:2], top_p)
        gap = row["sampler/gap_mean"]
        if not gap <= self._limit:
            raise UserError(
                f"trainer and sampler differ by {gap:.3g} nats a token on average, "
                f"{row['sampler/gap_p99']:.3g} at the 99th percentile, more than "
                f"rollout.max_gap={self._limit:g}; likely {self._cause(groups)}"
            )
        self._agreed = True
        return row

    def _cause(self, groups: list[Group]) -> str:
        few, policy, reference = _few(groups), self._policy, self._start
        trainer, sampler, images = self._anew(few)
        plays: dict[str, Callable[[], Tensor]] = {}
        if is_adapted(policy.model):
            plays["adapter"] = lambda: self._without_adapter(few)
        if bool(images.any()):
            plays["images"] = lambda: self._anew([_blind(policy, group) for group in few])[0]
        if reference is not None:
            plays["step 0"] = lambda: self._anew(few, reference)[0]
        facts = Run(
            self._limit,
            self._settings.top_p,
            images,
            self._settings.temperature,
            "rl.temperature",
            plays,
            lambda temperature: self._anew(few, temperature=temperature)[0],
            self._agreed,
        )
        fault = sampler_alarm(trainer, sampler, facts)
        return fault.line if fault else "single groups, since the first few agree"

    def _without_adapter(self, few: list[Group]) -> Tensor:
        model: Any = self._policy.model
        with model.disable_adapter():
            return self._anew(few)[0]

    def _anew(
        self, few: list[Group], policy: Policy | None = None, *, temperature: float | None = None
    ) -> Compared:
        settings = self._settings
        if temperature is not None:
            settings = replace(settings, temperature=temperature)
        policy = policy or self._policy
        batch = Batch.of(few, torch.ones(len(members(few))), settings)
        with computing(policy):
            logps = with_rollout_logps(policy, None, batch, self._algorithm.loss, settings).old
        assert logps is not None
        own = [(group, part) for group, part in _by_group(few, logps) if _is_own(group)]
        return _of_all_ranks([([group], part) for group, part in own])


def _of_all_ranks(pairs: Sequence[tuple[list[Group], Tensor]]) -> Compared:
    """The sampled tokens of all ranks' micro-batches."""
    none = torch.zeros(0, dtype=torch.float64)
    trainer, sampler, images = [none], [none], [none.bool()]
    for groups, out in pairs:
        for group, part in _by_group(groups, out.double()):
            sees = with_images([group.prompt])
            lengths = [len(m.ids) for m in group.members]
            for member, logps in zip(group.members, part.split(lengths), strict=True):
                if _was_drawn(member) and member.sampler_logps is not None:
                    trainer.append(logps)
                    sampler.append(member.sampler_logps.double())
                    images.append(torch.full((len(logps),), sees))
    parts = ranks.gather((torch.cat(trainer), torch.cat(sampler), torch.cat(images)))
    first, second, third = (torch.cat(values) for values in zip(*parts, strict=True))
    return first, second, third


def _blind(policy: Policy, group: Group) -> Group:
    """The group with its prompt as one reads it who sees no image."""
    prompt = group.prompt
    ids = prompt.input_ids
    text = ~torch.isin(ids, torch.tensor(policy.never_sampled))
    of_tokens = {**prompt.per_token, "input_ids": prompt.inputs["input_ids"]}
    inputs = {name: values[:, text] for name, values in of_tokens.items()}
    return replace(group, prompt=placed(policy, inputs))


def _by_group(groups: list[Group], out: Tensor) -> list[tuple[Group, Tensor]]:
    sizes = [sum(len(m.ids) for m in group.members) for group in groups]
    return list(zip(groups, out.split(sizes), strict=True))


def _few(groups: list[Group]) -> list[Group]:
    """The first groups of a batch, which is in random order, with what was sampled for them.

    Half of them have images, where there are as many."""
    drawn = _drawn(groups)
    having = [any(bool(v.any()) for v in g.prompt.per_token.values()) for g in drawn]
    places = sorted(range(len(drawn)), key=lambda k: (having[:k].count(having[k]), k))
    return [drawn[k] for k in sorted(places[:FEW])]


def _drawn(groups: list[Group]) -> list[Group]:
    """Keep what was sampled, what the loss masks included."""
    drawn = [
        replace(g, members=tuple(replace(m, scored=True) for m in g.members if _was_drawn(m)))
        for g in groups
    ]
    return [group for group in drawn if group.members]


def _was_drawn(member: Member) -> bool:
    return member.origin == "sampled" and member.sampler_logps is not None


def _is_own(group: Group) -> bool:
    return ranks.size() == 1 or group.rank == ranks.rank()
