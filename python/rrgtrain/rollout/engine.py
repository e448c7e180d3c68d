"""The interface of rollout engines: a request, its rollouts, and the protocol between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Protocol, TypeVar

from torch import Tensor

from rrgtrain.policy.forward import VisionCache
from rrgtrain.policy.policy import Policy
from rrgtrain.policy.prompt import EncodedPrompt
from rrgtrain.rollout.pushed import Pushed

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
    t alone, so a report is the same in any batch, up to floating point."""
    temperature: float = 1.0
    """Positive; divides the logits."""
    top_p: float = 1.0
    """Nucleus sampling below 1; `Rollout.logps` are then renormalised over the nucleus."""
    greedy: bool = False
    """The likeliest token instead of a draw; seeds are not used."""
    vision_cache: VisionCache | None = None
    """See `hidden_states`."""

    def __post_init__(self) -> None:
        if self.group < 1 or self.max_new_tokens < 1:
            sizes = f"group={self.group}, max_new_tokens={self.max_new_tokens}"
            raise ValueError(f"{sizes}: give at least 1 of each")
        if not self.temperature > 0:
            raise ValueError(
                f"temperature={self.temperature}: give a positive number, or greedy=True"
            )
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
    """fp32 [T], log-probs of `ids` under the distribution that they were drawn from."""
    finished: bool
    """The end of turn was sampled."""


class RolloutEngine(Protocol):
    """Samples reports from the weights that `update` gave it last.

    Every engine reads the same prompts token by token, and a report ends with the first of
    `policy.eos_ids` (included) or at `max_new_tokens` (unfinished). A member's draws depend on its
    own seed; engines with the same seed draw different reports. `own_kernels`: the log-probs are
    not the trainer's own to the bit, and may be corrected for.
    """

    own_kernels: bool

    def update(self, policy: Policy, step: int = 0) -> Pushed | None:
        """Take over the policy's present weights; before each batch of rollouts.

        Returns what was pushed, None where the policy itself samples. From then on `generate`
        raises UserError where another push, or none, is what the engine samples from.
        """
        ...

    def follow(self, pushed: Pushed | None) -> None:
        """Note that another process called `update` with these weights, for a shared engine."""
        ...

    def generate(self, policy: Policy, request: SamplingRequest) -> list[list[Rollout]]:
        """Sample `request.group` reports for each prompt, in the order of the prompts."""
        ...

    def release(self) -> None:
        """Give back what the update needs (vLLM's cache and weights); the next call wakes it."""
        ...

    def close(self) -> None:
        """End what the engine started."""
        ...
