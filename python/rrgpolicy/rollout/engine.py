"""Define rollout engines: a request, its rollouts, the protocol, and a push of weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, Protocol, TypeVar, runtime_checkable

import torch
from torch import Tensor

from rrgclinical.common.errors import UserError
from rrgpolicy.model.policy import Policy
from rrgpolicy.model.prompt import EncodedPrompt
from rrgpolicy.ranks import gathered, ranks
from rrgpolicy.ranks.layout import Layout


@dataclass(frozen=True)
class Pushed:
    """Weights that were pushed before the rollouts of `step`.

    digest: of all that the sampler then holds, an adapter merged or beside the base.

    held: what each worker then reported of its own parameters; see `PushedWeights`.
    """

    step: int
    digest: str
    held: tuple[str | None, ...] = ()


def require_taken(
    pushed: Pushed, reports: Sequence[Mapping[str, Any]], before: Pushed | None, sampler: str
) -> Pushed:
    """`pushed` with what the workers hold of it, from their reports right after the push.

    Raises UserError where a worker read other weights, or where they differ from those of the push
    `before` and a worker's parameters do not.
    """
    _require_same(pushed, reports, sampler)
    held = tuple(report["held"] for report in reports)
    if before is not None and before.digest != pushed.digest:
        for was, now in zip(before.held, held, strict=False):
            if now is not None and was == now:
                raise UserError(
                    f"{sampler} was given the weights of step {pushed.step} and computes with "
                    f"those of step {before.step} still; restart it, then resume"
                )
    return Pushed(pushed.step, pushed.digest, held)


def require_equal_weights(pushed: Pushed, sampler: str) -> None:
    """Raise UserError where the ranks' own samplers hold different weights; all ranks call it."""
    digests = ranks.gather(pushed.digest)
    odd = next((rank for rank, digest in enumerate(digests) if digest != digests[0]), None)
    if odd is not None:
        raise UserError(
            f"{sampler} has other weights on rank {odd} (digests {', '.join(digests)}); "
            "resume the run"
        )


def require_kept(pushed: Pushed, reports: Sequence[Mapping[str, Any]], sampler: str) -> None:
    """UserError where, after rollouts, a worker no longer holds what was pushed before them."""
    _require_same(pushed, reports, sampler)
    if tuple(report["held"] for report in reports) != pushed.held:
        raise UserError(
            f"the weights of {sampler} have changed while it sampled for step {pushed.step}; let "
            "nothing else write to them, then resume"
        )


def _require_same(pushed: Pushed, reports: Sequence[Mapping[str, Any]], sampler: str) -> None:
    for report in reports:
        if (report["step"], report["digest"]) != (pushed.step, pushed.digest):
            raise UserError(
                f"{sampler} has weights of step {report['step']} (digest {report['digest']}), "
                f"pushed were those of step {pushed.step} (digest {pushed.digest}); give every run "
                "a sampler and a run directory of its own that both machines see, then resume"
            )
    if not reports:
        raise UserError(f"{sampler} does not report which weights it took; use vLLM as tested")


T = TypeVar("T")


@dataclass(frozen=True)
class SamplingRequest:
    """A batch of prompts, and how `group` reports of each are drawn.

    Raises:
        ValueError: sizes that do not fit, a temperature or top_p out of range.
    """

    prompts: Sequence[EncodedPrompt]
    """B encoded prompts; each is prefilled once."""
    _: KW_ONLY
    group: int
    """Members per prompt."""
    max_new_tokens: int
    """A report that long without an end of turn is left unfinished."""
    seeds: Sequence[Sequence[int]]
    """`[B][group]` non-negative ints below 2**128. Token t of a member depends on its own seed and
    t alone, so a report is the same in any batch, up to floating point. A vLLM server is asked for
    a whole group at once: there member m depends on the group's first seed + m."""
    temperature: float = 1.0
    """Positive; divides the logits."""
    top_p: float = 1.0
    """Nucleus sampling below 1; `Rollout.logps` are then renormalised over the nucleus."""
    greedy: bool = False
    """The likeliest token instead of a draw; seeds are not used."""

    def __post_init__(self) -> None:
        if self.group < 1 or self.max_new_tokens < 1:
            sizes = f"group={self.group}, max_new_tokens={self.max_new_tokens}"
            raise ValueError(f"{sizes}: give at least 1 of each")
        if not self.temperature > 0:
            raise ValueError(f"temperature={self.temperature}: give a positive one, or greedy=True")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p={self.top_p}: give a number above 0 and at most 1")
        members = sorted({len(member_seeds) for member_seeds in self.seeds})
        if len(self.seeds) != len(self.prompts) or members not in ([], [self.group]):
            raise ValueError(
                f"seeds for {len(self.seeds)} prompts with {members} members: give "
                f"{len(self.prompts)} lists of {self.group}"
            )

    def member_seeds(self) -> list[int]:
        """List the seeds of all members, group after group."""
        return [seed for group in self.seeds for seed in group]

    def grouped(self, members: Sequence[T]) -> list[list[T]]:
        """Split what B * group members have, group after group, into B lists of `group`."""
        size = self.group
        return [list(members[b * size : (b + 1) * size]) for b in range(len(self.prompts))]


@dataclass(frozen=True)
class Rollout:
    """One sampled report; both tensors are on the CPU."""

    ids: Tensor
    """int64 [T], the end-of-turn token included if it was sampled."""
    logps: Tensor
    """fp32 [T], log-probs of `ids` in the softmax of logits / temperature, renormalised over the
    nucleus. `Policy.never_sampled` keep their share, as in the trainer's log-probs; of vLLM they
    are those of what it draws from, in which such ids have none."""
    finished: bool
    """The end of turn was sampled."""


@runtime_checkable
class RolloutEngine(Protocol):
    """Samples reports from the weights that `update` gave it last.

    Every engine reads the same prompts token by token, and a report ends with the first of
    `policy.eos_ids` (included) or at `max_new_tokens` (unfinished). A member's draws depend on its
    own seed; engines with the same seed draw different reports. `own_kernels`: it samples with
    weights and kernels of its own, so the log-probs are not the trainer's to the bit and may be
    corrected for.

    Loops use an engine through `sampling`, which all ranks enter and leave together:

        with sampling(engine, policy, step) as gathered:
            groups = engine.generate(gathered, request)    # as often as a rank likes
    """

    own_kernels: bool

    def update(self, policy: Policy, step: int | None = None) -> Pushed | None:
        """Take over the policy's present weights. All ranks call it together.

        It gathers what it sends by itself. The weights of a `step` are sent once: a second call
        for it does nothing. Without a step they are always sent. Returns what was pushed, None
        where the policy itself samples. From then on `generate` raises UserError where another
        push, or none, is what the engine samples from.
        """
        return None

    def generate(self, policy: Policy, request: SamplingRequest) -> list[list[Rollout]]:
        """Sample `request.group` reports for each prompt, in the order of the prompts.

        Nothing is exchanged between ranks: each calls it for its own prompts.
        """
        ...

    def release(self) -> None:
        """Give back what the update needs (vLLM's cache and weights); the next call wakes it."""
        return

    def close(self) -> None:
        """End what the engine started."""
        return


@runtime_checkable
class AheadEngine(RolloutEngine, Protocol):
    """An engine with weights and devices of its own, which samples while the policy trains."""

    def prepare(
        self, policy: Policy, request: SamplingRequest
    ) -> Callable[[], list[list[Rollout]]]:
        """Read all that `request` needs of the policy; what it returns is `generate`'s rest.

        It is called once, in a thread beside the main one, while the policy's weights change, and
        samples from those of the last `update`. Until it has returned only `release` and `close`
        are called.
        """
        ...


@contextmanager
def sampling(
    engine: RolloutEngine, policy: Policy, step: int | None = None, *, keep: bool = False
) -> Iterator[Policy]:
    """Yield the policy that `engine.generate` samples with, of the weights of `step`.

    All ranks enter and leave together. Its weights are the gathered copy: all of them, or the
    vision tower's where the engine has weights of its own. Afterwards copy and engine have given
    their memory back, unless `keep` says that more will be sampled from these weights.
    """
    with torch.no_grad():
        engine.update(policy, step)
        yield whole_policy(policy, tower=engine.own_kernels)
    if not keep:
        engine.release()
        gathered.drop(policy)


def whole_policy(policy: Policy, *, tower: bool = False) -> Policy:
    """Return the policy with the gathered copy of its weights; see `gathered.gathered`."""
    model = gathered.gathered(policy, tower=tower)
    if model is policy.model:
        return policy
    found = replace(policy, model=model, compute_dtype=policy.dtype, layout=Layout())
    found.__dict__["codec"] = policy.codec
    return found
