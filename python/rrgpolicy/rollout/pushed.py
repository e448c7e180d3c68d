"""A push of weights to a sampler, and what the sampler must say of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rrgclinical.common.errors import UserError
from rrgpolicy.ranks import ranks


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
