"""Sample from a policy's present weights, on every rank, with the engine of a recipe."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from threading import Thread

from rrgclinical.common.errors import UserError
from rrgpolicy.model.policy import Policy
from rrgpolicy.ranks import gathered
from rrgpolicy.rollout import (
    AheadEngine,
    Rollout,
    RolloutEngine,
    SamplingRequest,
    TransformersEngine,
    sampling,
)

Sample = Callable[[SamplingRequest], list[list[Rollout]]]


class PolicySampler:
    """A rollout engine, and the weights that it samples from.

    Rollouts and validations share one: the weights of a step are gathered, or pushed, once,
    whichever comes first. Whoever changes weights calls `release` before.

    step: the optimiser steps behind the policy's weights, None where that is not known.
    """

    def __init__(
        self, start: Callable[[Policy], RolloutEngine] = lambda policy: TransformersEngine()
    ) -> None:
        """start: makes the engine when it is first needed; all ranks call it together."""
        self._start = start
        self._engine: RolloutEngine | None = None
        self.step: int | None = None

    @property
    def own_kernels(self) -> bool:
        """See `RolloutEngine`; False before anything was sampled."""
        return self._engine is not None and self._engine.own_kernels

    def compile_row(self) -> dict[str, float]:
        """Compute a step's row: the seconds that compiling has taken, where it is on."""
        compiled = getattr(self._engine, "compiled", None)
        return {"seconds/compile": compiled.seconds} if compiled else {}

    @contextmanager
    def weights(self, policy: Policy) -> Iterator[Sample]:
        """Sample inside from the weights as they are; all ranks enter together.

        Each rank samples what it likes, and asks the engine nothing by a request without prompts.
        """
        engine = self._engine = self._engine or self._start(policy)
        with sampling(engine, policy, self.step, keep=True) as whole:
            yield partial(self._sample, engine, whole)

    def begin(self, policy: Policy, request: SamplingRequest) -> Callable[[], list[list[Rollout]]]:
        """Let the engine sample from the weights as they are while the policy trains.

        All ranks call it together, and call what it returns, which waits for the rollouts, before
        anything else is sampled. Raises UserError for an engine that is no `AheadEngine`.
        """
        engine = self._engine = self._engine or self._start(policy)
        if not isinstance(engine, AheadEngine):
            raise UserError(
                "rl.ahead=1 samples while the policy trains, and the engine of rollout.engine has "
                "no `prepare`: use rollout.engine=vllm_server, or rl.ahead=0"
            )
        with sampling(engine, policy, self.step, keep=True) as whole:
            draw = engine.prepare(whole, request) if request.prompts else list
        gathered.drop(policy)
        drawn: Future[list[list[Rollout]]] = Future()
        # a daemon: a stop, and the end of the process, do not wait for a request under way
        Thread(target=_settle, args=(drawn, draw), name="rollout", daemon=True).start()
        return lambda: self._checked(policy, drawn.result())

    def _sample(
        self, engine: RolloutEngine, policy: Policy, request: SamplingRequest
    ) -> list[list[Rollout]]:
        groups = engine.generate(policy, request) if request.prompts else []
        return self._checked(policy, groups)

    def _checked(self, policy: Policy, groups: list[list[Rollout]]) -> list[list[Rollout]]:
        never = {*policy.never_sampled}
        for rollout in (rollout for group in groups for rollout in group):
            ids = rollout.ids.tolist()
            # weights that have blown up draw any id, and are told as such
            if not never.isdisjoint(ids) and bool(rollout.logps.isfinite().all()):
                token = policy.tokenizer.convert_ids_to_tokens(min(never.intersection(ids)))
                raise UserError(
                    f"rollout.engine sampled {token}, which stands for an image that is not "
                    "there; leave out the ids of policy.never_sampled in the engine"
                )
        return groups

    def release(self, policy: Policy) -> None:
        """Free what sampling holds in memory: weights are about to change, or it is wanted."""
        if self._engine is not None:
            self._engine.release()
        gathered.drop(policy)

    def close(self) -> None:
        if self._engine is not None:
            self._engine.close()
        self._engine = None


def _settle(drawn: Future[list[list[Rollout]]], draw: Callable[[], list[list[Rollout]]]) -> None:
    try:
        drawn.set_result(draw())
    except BaseException as error:  # raised where the reports are asked for
        drawn.set_exception(error)
