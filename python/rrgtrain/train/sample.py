"""Draw the groups of a step from the policy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import torch

from rrgkern import philox_seed
from rrgpolicy.model.prompt import EncodedPrompt
from rrgpolicy.ranks import ranks
from rrgpolicy.rollout import Rollout, SamplingRequest
from rrgtrain.algorithms import Group, Member
from rrgtrain.errors import NotFinite
from rrgtrain.train.rl_run import RlRun


def sample_groups(
    run: RlRun, indices: Sequence[int], prompts: list[EncodedPrompt], step: int, again: int = 0
) -> list[Group]:
    """Groups of `algorithm.sampled` members for the studies `indices`, each from its own seed.

    Of several ranks, each draws its share of the batch; `prompts` are those of its share. `again`
    counts the further prompts of a step, see `resample`. Raises NotFinite where the policy's
    log-probabilities are not finite.
    """
    settings, sampler = run.settings, run.sampler
    own = ranks.shard(indices)
    request = SamplingRequest(
        prompts,
        group=run.algorithm.sampled,
        temperature=settings.temperature,
        top_p=settings.top_p,
        max_new_tokens=settings.max_new_tokens,
        seeds=ranks.shard(member_seeds(run, indices, step, again)),
    )
    with sampler.weights(run.policy) as draw:
        rollouts = draw(request)
    if not settings.resample:  # further prompts are drawn from the same weights
        sampler.release(run.policy)
    run.policy.model.train()
    if not all(torch.isfinite(r.logps).all() for group in rollouts for r in group):
        cause = "its weights have blown up; lower rl.lr"
        if step == 0:
            cause = f"the checkpoint {run.start.path} is broken; name another one"
        raise NotFinite(f"the policy gives no finite log-probability at step {step}: {cause}")
    return [
        Group(index, run.studies[index], prompt, tuple(_member(run, r) for r in group))
        for index, prompt, group in zip(own, prompts, rollouts, strict=True)
    ]


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


def _member(run: RlRun, rollout: Rollout) -> Member:
    corrected = run.sampler.own_kernels and run.rollout.correction != "none"
    return Member(
        rollout.ids,
        run.policy.codec.decode(rollout.ids),
        finished=rollout.finished,
        sampler_logps=rollout.logps,
        scored=rollout.finished or run.settings.truncated == "score",
        corrected=corrected,
    )
