"""Choose by validations the weights that a training ends with, and save them."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from torch import Tensor

from rrgclinical.common.files import atomic_directory
from rrgclinical.common.shown import hidden
from rrgpolicy.model.adapters import adapter_state, is_adapted
from rrgpolicy.model.policy import Policy
from rrgpolicy.ranks import ranks
from rrgpolicy.ranks.sharding import full_state_dict, is_sharded, load_weights
from rrgreport.names import changes_reward
from rrgtrain.schema import EvalSettings, RewardSettings, SftSettings
from rrgtrain.state.identity import code_files, digest_of, leaves
from rrgtrain.state.null_checkpointer import NullCheckpointer, Weights
from rrgtrain.state.remembered import base_files, write_remembered
from rrgtrain.train.evaluate import beside

Judged = dict[str, Any]
"""What the value of a validation depends on: settings and their values, see `judged_settings`."""
BY = "eval.best_by"
NEVER = -1
"""Step of the best validation where there was none."""
_JUDGED = "eval.limit eval.max_new_tokens eval.truth reward.labeller reward.against reward.blocks"

_DIGEST = "digest "


class Best:
    """Remember the best validation, see `judged_settings`, and restore its weights.

    They are in a checkpoint that stays as long as they are wanted. Outside a run directory
    they are copies in memory.
    """

    def __init__(self, policy: Policy, judged: Judged, checkpointer: NullCheckpointer) -> None:
        self.policy, self._checkpointer = policy, checkpointer
        self.judged = json.loads(json.dumps(judged))
        self.value, self.step = -math.inf, NEVER
        _, *others = [self.judged[BY]] if isinstance(self.judged[BY], str) else self.judged[BY]
        self._others = dict.fromkeys(others, (-math.inf, NEVER))
        self._copies: dict[int, Weights] = {}

    def offer(self, step: int, value: float, others: Sequence[float] = ()) -> None:
        """A validation after `step` steps, which the loop's state holds.

        `others` are its values by the other metrics of `eval.best_by`. Ties keep the earlier, but
        for the start: what was trained is kept unless it is worse."""
        before = [self.value, self.step, self._others]
        self.value, self.step = _better((self.value, self.step), (value, step))
        self._offer_others(step, others)
        if before != [self.value, self.step, self._others]:
            self._keep(step)

    def _offer_others(self, step: int, values: Sequence[float]) -> None:
        rows = zip(self._others.items(), values, strict=True)
        self._others = {name: _better(best, (value, step)) for (name, best), value in rows}

    def state_dict(self) -> dict[str, Any]:
        """For a checkpoint; the tensors are not copied, since they never change."""
        values = {"by": json.dumps(self.judged), "value": self.value, "step": self.step}
        return {**values, "others": dict(self._others), "copies": dict(self._copies)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Puts back what `state_dict` gave.

        Values of another metric, or of other reports or terms, are not comparable: `value` is then
        minus infinity, with a warning, and the kept weights stay until the next validation.
        """
        before = json.loads(state["by"])
        changed = [k for k, v in before.items() if self.judged.get(k) != v]
        self.value, self.step, self._copies = state["value"], state["step"], dict(state["copies"])
        self._others |= {name: tuple(best) for name, best in state.get("others", {}).items()}
        for step in self._wanted():
            self._require(step)
        if changed:
            self.value = -math.inf
            self._others = {name: (-math.inf, step) for name, (_, step) in self._others.items()}
        if changed and self.step != NEVER:
            told = ", ".join(_other(k, before[k], self.judged.get(k)) for k in changed)
            warnings.warn(
                f"the checkpoint chose its best weights by validations with {told}; they are "
                "chosen anew from the next validation on",
                stacklevel=2,
            )

    def restore(self) -> None:
        """Put the chosen weights into the policy; nothing where there was no validation."""
        self._restore(self.step)

    def save(self, directory: Path, trained_as: Mapping[str, Any]) -> None:
        """Write the best by each metric, see `beside`; the policy ends as the first."""
        for name, (_, step) in self._others.items():
            self._restore(step)
            save_policy(self.policy, beside(directory, name), trained_as)
        self.restore()
        save_policy(self.policy, directory, trained_as)

    def _restore(self, step: int) -> None:
        if step in self._copies:
            load_weights(self.policy, self._copies[step])
        elif step != NEVER:
            self._checkpointer.restore(step)

    def _require(self, step: int) -> None:
        if step != NEVER and step not in self._copies:
            self._checkpointer.require(step)

    def _keep(self, step: int) -> None:
        """Keep the weights of now as those after `step` steps, and of others what is wanted."""
        wanted = self._wanted()
        self._copies = {s: w for s, w in self._copies.items() if s in wanted}
        if not self._checkpointer.keep(step, wanted):
            trained = self.policy.model.named_parameters()
            self._copies[step] = {n: p.detach().clone() for n, p in trained if p.requires_grad}

    def _wanted(self) -> set[int]:
        return {self.step, *(step for _, step in self._others.values())} - {NEVER}


class BeforeConvergence(Best):
    """The validation before the one at which training had converged.

    Converged is the last validation that brought more than `min_delta`; with one validation an
    epoch, RL then starts from the epoch before convergence, so that it still has something to
    sample (EditGRPO, appendix E). Where the first validation is the last to bring anything, it is
    kept itself: nothing came before it.
    """

    def __init__(
        self, policy: Policy, judged: Judged, checkpointer: NullCheckpointer, min_delta: float
    ) -> None:
        super().__init__(policy, judged, checkpointer)
        self._min_delta, self._plateau = min_delta, -math.inf
        self._last: tuple[int, float] | None = None

    def offer(self, step: int, value: float, others: Sequence[float] = ()) -> None:
        self._offer_others(step, others)
        if value > self._plateau + self._min_delta:
            self._plateau = value
            self.step, self.value = self._last or (step, value)
        self._last = step, value
        self._keep(step)

    def state_dict(self) -> dict[str, Any]:
        last = None if self._last is None else list(self._last)
        return {**super().state_dict(), "plateau": self._plateau, "last": last}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        if math.isinf(self.value):  # chosen by another metric: what follows is judged anew
            return
        # neither is there where `sft.choose` was "best"
        self._plateau = state.get("plateau", self.value)
        last = state.get("last", [self.step, self.value])
        self._last = None if last is None else (last[0], last[1])
        if self._last is not None:
            self._require(self._last[0])

    def _wanted(self) -> set[int]:
        return super()._wanted() | ({self._last[0]} if self._last else set())


def _better(best: tuple[float, int], now: tuple[float, int]) -> tuple[float, int]:
    """Choose between two (value, step); the start gives way to its equal."""
    return now if now[0] > best[0] or (best[1] == 0 and now[0] == best[0]) else best


def judged_settings(evaluation: EvalSettings, reward: RewardSettings) -> Judged:
    """Read what the values of validations depend on."""
    values = dict(leaves({"eval": asdict(evaluation), "reward": asdict(reward)}))
    keys, options = f"{BY} {_JUDGED}".split(), reward.options
    if any(by.startswith("reward") for by in evaluation.chosen_by):
        keys += [key for key in values if changes_reward(key)]
    else:
        options = {k: v for k, v in options.items() if k == reward.labeller}
    # no values that `${oc.env:KEY}` stands for, but digests
    judged = {key: values[key] for key in keys}
    secret = [k for k, v in judged.items() if hidden(f"{v}") != f"{v}"]
    digests = {k: f"{_DIGEST}{digest_of(judged[k])}" for k in secret} | code_files(judged)
    return {**judged, **digests, "reward.options": digest_of(options)}


def _other(key: str, before: Any, now: Any) -> str:
    """Say that a setting is another one than before; of a digest without it."""
    if key == "reward.options" or ": " in key or f"{before}".startswith(_DIGEST):
        return f"another {key.rpartition(': ')[2]}"
    return f"{key}={before} (now {now})"


def chosen_of(
    policy: Policy, settings: SftSettings, judged: Judged, checkpointer: NullCheckpointer
) -> Best:
    """Return the keeper of the checkpoint that `sft.choose` asks for, see `judged_settings`."""
    if settings.choose == "before_convergence":
        return BeforeConvergence(policy, judged, checkpointer, settings.min_delta)
    return Best(policy, judged, checkpointer)


def save_policy(policy: Policy, directory: Path, trained_as: Mapping[str, Any]) -> None:
    """Write the policy as a checkpoint directory, whole or not at all.

    Rank 0 writes it, with `trained_as`, see `to_remember`. It holds the masters, in fp32: a
    training that starts from it starts where this one has ended.
    """
    weights = full_state_dict(_weights(policy)) if is_sharded(policy) else None
    if ranks.is_main():
        with atomic_directory(directory) as partial:
            policy.save(partial, weights)
            write_remembered(partial, {**trained_as, **base_files(partial)})
    ranks.barrier()


def _weights(policy: Policy) -> dict[str, Tensor]:
    """The sharded model's state that is written; a tied weight is one tensor."""
    tensors: dict[str, Tensor] = dict(policy.model.named_parameters(remove_duplicate=False))
    tensors.update(policy.model.named_buffers(remove_duplicate=False))
    state = {name: tensors[name] for name in policy.model.state_dict()}
    if is_adapted(policy.model):  # without its base, which rank 0 might not hold
        own = {id(w) for w in adapter_state(policy.model, state).values()}
        state = {name: weight for name, weight in state.items() if id(weight) in own}
    return state
