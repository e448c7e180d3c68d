"""Sample the groups of a step, in it or, with `rl.ahead=1`, one before.

One step ahead, the engine draws batch k + 1 from the weights before update k while batch k is
trained on. Those reports are there before update k changes a weight, so that trainer and sampler
are compared at the weights that drew them (`SamplerWatch`): one update is no gap. What they are
trained on is one update newer, so their `old` are the sampler's own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import torch

from rrgkern import philox_seed
from rrgpolicy.model.prompt import EncodedPrompt
from rrgpolicy.ranks import ranks
from rrgpolicy.rollout import Rollout, SamplingRequest
from rrgtrain.algorithms import Group, Member
from rrgtrain.algorithms.group import drawn_logps, members
from rrgtrain.errors import NotFinite
from rrgtrain.train.batch import Batch
from rrgtrain.train.rl_run import Ahead, RlRun


def sample_groups(
    run: RlRun, indices: Sequence[int], prompts: list[EncodedPrompt], step: int, again: int = 0
) -> list[Group]:
    """Groups of `algorithm.sampled` members for the studies `indices`, each from its own seed.

    Of several ranks, each draws its share of the batch; `prompts` are those of its share. `again`
    counts the further prompts of a step, see `resample`. Raises NotFinite where the policy's
    log-probabilities are not finite.
    """
    with run.sampler.weights(run.policy) as draw:
        rollouts = draw(_request(run, indices, prompts, step, again))
    if not run.settings.resample:  # further prompts are drawn from the same weights
        run.sampler.release(run.policy)
    run.policy.model.train()
    return _groups(run, indices, prompts, step, rollouts)


def take_ahead(run: RlRun, step: int) -> list[Group]:
    """This rank's groups of a step, with `rl.ahead=1`; begins to draw those of the next.

    The first batch is drawn here, from the same weights as the second.
    """
    batch = run.ahead.batch or _begin(run, step)()
    run.ahead = Ahead()
    if step + 1 < run.settings.steps:
        run.ahead.under_way = _begin(run, step + 1)
    return [group for group in batch.groups if group.rank == ranks.rank()]


def arrive(run: RlRun) -> dict[str, float]:
    """Wait for the next batch, before weights change; the gap of its log-probabilities.

    All ranks call it together. Raises UserError as `SamplerWatch`, and a stop that has come.
    """
    if run.ahead.under_way is None:
        return {}
    run.step_log.lap("update")
    with run.phase("rollout"):
        run.ahead = Ahead(run.ahead.under_way())
    assert run.ahead.batch is not None
    return run.watch(run.ahead.batch, ())


def _begin(run: RlRun, step: int) -> Callable[[], Batch]:
    indices, saved = run.indices(step), run.ahead.saved
    prompts = next(run.prompts_ahead)
    if saved is None:
        draw = run.sampler.begin(run.policy, _request(run, indices, prompts, step))
        run.policy.model.train()
    else:
        own = [[Rollout(*member) for member in group] for group in saved["drawn"]]
        draw = partial(ranks.shard, own)

    def batch() -> Batch:
        groups = _groups(run, indices, prompts, step, draw())
        return Batch(groups, groups).of_all_ranks()

    return batch


def with_old_of_sampler(batch: Batch) -> Batch:
    """The batch with the sampler's own log-probabilities as `old` [N].

    NaN at members that it did not draw: they have no older weights, and stay at ratio 1.
    """
    return replace(batch, old=drawn_logps(members(batch.groups)))


def member_seeds(run: RlRun, indices: Sequence[int], step: int, again: int = 0) -> list[list[int]]:
    """A seed for every member, by run, step, study and place.

    A study that comes twice in a batch (few studies, the border of an epoch) draws new reports. An
    edit has a seed of its own kind: sampling and editing never share a draw.
    """
    turns: Counter[int] = Counter()
    seeds = []
    count = run.algorithm.sampled
    step += again * run.settings.steps  # past the last step: draws of its own
    for i in indices:
        places = range(turns[i] * count, (turns[i] + 1) * count)
        seeds.append([philox_seed(~run.seed, step, i, k) for k in places])
        turns[i] += 1
    return seeds


def _request(
    run: RlRun, indices: Sequence[int], prompts: list[EncodedPrompt], step: int, again: int = 0
) -> SamplingRequest:
    settings = run.settings
    return SamplingRequest(
        prompts,
        group=run.algorithm.sampled,
        temperature=settings.temperature,
        top_p=settings.top_p,
        max_new_tokens=settings.max_new_tokens,
        seeds=ranks.shard(member_seeds(run, indices, step, again)),
    )


def _groups(
    run: RlRun,
    indices: Sequence[int],
    prompts: list[EncodedPrompt],
    step: int,
    rollouts: list[list[Rollout]],
) -> list[Group]:
    """This rank's groups of what was drawn."""
    if not all(torch.isfinite(r.logps).all() for group in rollouts for r in group):
        cause = "its weights have blown up; lower rl.lr"
        if step == 0:
            cause = f"the checkpoint {run.start.path} is broken; name another one"
        raise NotFinite(f"the policy gives no finite log-probability at step {step}: {cause}")
    return [
        Group(index, run.studies[index], prompt, tuple(_member(run, r) for r in group))
        for index, prompt, group in zip(ranks.shard(indices), prompts, rollouts, strict=True)
    ]


def _member(run: RlRun, rollout: Rollout) -> Member:
    # one step ahead the sampler is not the policy, whatever its kernels are
    apart = run.sampler.own_kernels or bool(run.settings.ahead)
    return Member(
        rollout.ids,
        run.policy.codec.decode(rollout.ids),
        finished=rollout.finished,
        sampler_logps=rollout.logps,
        scored=rollout.finished or run.settings.truncated == "score",
        corrected=apart and run.rollout.correction != "none",
    )
