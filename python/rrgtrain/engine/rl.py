"""Reinforcement learning: roll out, complete the groups, reward, weigh, update."""

from __future__ import annotations

import copy
import itertools
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from rrgkern import philox_seed
from rrgtrain.algorithms import Algorithm, Group, Member, group_offsets
from rrgtrain.algorithms.group import members
from rrgtrain.data.study import Study
from rrgtrain.engine.best import Best
from rrgtrain.engine.encode import PromptCache
from rrgtrain.engine.logs import RunLog
from rrgtrain.engine.optim import adamw, apply_step, learning_rate
from rrgtrain.engine.order import batch_indices
from rrgtrain.engine.progress import progress
from rrgtrain.engine.update import accumulate_gradients
from rrgtrain.errors import UserError
from rrgtrain.policy.policy import Policy
from rrgtrain.rewards import RewardService
from rrgtrain.rollout import generate
from rrgtrain.schema import Recipe

Validate = Callable[[], dict[str, float]]


@dataclass(frozen=True)
class RlResult:
    """`best` is the checkpoint with the best validation micro-F1.

    `seconds` is the whole wall time and `phases` where it went; `edits` counts the edits by
    rule; `zero_variance` is the mean share of groups whose members all earned the same;
    `rollouts` is how many reports were sampled.
    """

    best: Path
    best_f1: float
    best_step: int
    steps: int
    seconds: float
    phases: dict[str, float]
    zero_variance: float
    edits: dict[str, float]
    rollouts: int


def sample_groups(
    policy: Policy,
    prompts: PromptCache,
    studies: Sequence[Study],
    indices: Sequence[int],
    algorithm: Algorithm,
    recipe: Recipe,
    step: int,
) -> list[Group]:
    """Groups of `algorithm.sampled` members drawn from the policy, each from its own seed.

    Raises UserError where the policy's log-probabilities are not finite.
    """
    settings = recipe.rl
    encoded = [prompts(studies[i]) for i in indices]
    # A study that comes twice in a batch (few studies, the border of an epoch) draws new reports.
    turns: Counter[int] = Counter()
    seeds = []
    for i in indices:
        places = range(turns[i] * algorithm.sampled, (turns[i] + 1) * algorithm.sampled)
        # An edit has a seed of its own kind: sampling and editing never share a draw.
        seeds.append([philox_seed(~recipe.seed, step, i, k) for k in places])
        turns[i] += 1
    policy.model.eval()
    with torch.no_grad():
        rollouts = generate(
            policy,
            encoded,
            group=algorithm.sampled,
            temperature=settings.temperature,
            top_p=settings.top_p,
            max_new_tokens=settings.max_new_tokens,
            seeds=seeds,
        )
    policy.model.train()
    if not all(torch.isfinite(r.logps).all() for group in rollouts for r in group):
        raise UserError(
            f"the policy gives no finite log-probability at step {step}: its weights have blown "
            "up; lower rl.lr"
        )
    return [
        Group(
            index,
            studies[index],
            prompt,
            tuple(
                Member(r.ids, policy.codec.decode(r.ids), "sampled", r.finished, r.logps)
                for r in group
            ),
        )
        for index, prompt, group in zip(indices, encoded, rollouts, strict=True)
    ]


def run_rl(
    policy: Policy,
    prompts: PromptCache,
    studies: Sequence[Study],
    recipe: Recipe,
    algorithm: Algorithm,
    rewards: RewardService,
    validate: Validate,
    out: Path,
    log: RunLog,
    *,
    record: Callable[[int, list[Group], torch.Tensor], None] | None = None,
) -> RlResult:
    """Trains `policy` in place for `rl.steps` steps; keeps the best by micro-F1 in `out`.

    One update per batch of rollouts, so the behaviour policy is the policy itself and the
    ratio is exactly 1. `record(step, groups, rewards)` sees every batch before its update.
    """
    settings = recipe.rl
    require_reports(algorithm, studies)
    reference = None
    if settings.beta > 0:
        reference = replace(policy, model=copy.deepcopy(policy.model).requires_grad_(False).eval())
    optimizer = adamw(policy.model, settings.lr, settings.weight_decay)
    seconds = dict.fromkeys(("rollout", "edit", "reward", "update", "validate"), 0.0)
    edits: dict[str, float] = {}
    best = Best(policy)
    started = time.perf_counter()
    flat_groups, all_groups, rollouts = 0, 0, 0

    def timed(phase: str, begin: float) -> float:
        now = time.perf_counter()
        seconds[phase] += now - begin
        return now

    bar = progress(range(settings.steps), algorithm.name)
    for step in bar:
        clock = time.perf_counter()
        indices = batch_indices(len(studies), settings.prompts, step, recipe.seed)
        sampled = sample_groups(policy, prompts, studies, indices, algorithm, recipe, step)
        rollouts += len(members(sampled))
        clock = timed("rollout", clock)
        groups, counts = algorithm.complete(sampled, step, policy.codec.reencode_from)
        clock = timed("edit", clock)
        flat = [(group.study, member) for group in groups for member in group.members]
        scores = rewards([m.text for _, m in flat], [s for s, _ in flat])
        total = torch.as_tensor(scores["total"])
        advantages = algorithm.advantages(groups, total)
        clock = timed("reward", clock)
        if record is not None:
            record(step, groups, total)
        update = accumulate_gradients(
            policy, reference, groups, advantages, algorithm.loss, settings
        )
        lr = learning_rate(step, settings.steps, settings.lr, settings.warmup, settings.schedule)
        norm = apply_step(optimizer, policy.model.parameters(), lr, settings.clip)
        clock = timed("update", clock)

        zero = zero_variance(groups, total)
        flat_groups, all_groups = flat_groups + zero, all_groups + len(groups)
        for name, value in counts.items():
            edits[name] = edits.get(name, 0.0) + value
        log.write(
            algorithm.name,
            step,
            {
                **_reward_rows(groups, scores),
                **counts,
                **update.metrics,
                "zero_variance": zero / len(groups),
                "unfinished": sum(not m.finished for m in members(groups)) / len(flat),
                "lr": lr,
                "grad_norm": norm,
            },
        )
        bar.show(reward=float(scores["total"].mean()))
        if (step + 1) % settings.eval_every == 0 or step + 1 == settings.steps:
            values = validate()
            best.offer(step + 1, values["micro_f1"])
            log.write(f"{algorithm.name}_val", step, values)
            bar.show(reward=float(scores["total"].mean()), f1=values["micro_f1"])
            clock = timed("validate", clock)
    best.restore()
    policy.save(out)
    return RlResult(
        out,
        best.f1,
        best.step,
        settings.steps,
        time.perf_counter() - started,
        seconds,
        flat_groups / all_groups,
        edits,
        rollouts,
    )


def require_reports(algorithm: Algorithm, studies: Sequence[Study]) -> None:
    """UserError where the algorithm needs reference reports and a study has none."""
    bare = next((study.id for study in studies if not study.report), None)
    if algorithm.needs_reports and bare is not None:
        raise UserError(
            f"rl.algorithm={algorithm.name} works towards reference reports, but study {bare} has "
            "none; use rl.algorithm=dr_grpo with reward.against=labels, as the recipe nih does"
        )


def zero_variance(groups: list[Group], total: torch.Tensor) -> int:
    """How many groups have members that all earn the same reward."""
    offsets = group_offsets(groups).tolist()
    parts = [total[a:b] for a, b in itertools.pairwise(offsets)]
    return sum(bool((part == part[0]).all()) for part in parts)


def _reward_rows(groups: list[Group], scores: dict) -> dict[str, float]:
    origins = [member.origin for member in members(groups)]
    rows = {f"reward/{name}": float(value.mean()) for name, value in scores.items()}
    for origin in sorted(set(origins)):
        chosen = [v for v, o in zip(scores["total"], origins, strict=True) if o == origin]
        rows[f"reward_{origin}"] = float(sum(chosen) / len(chosen))
    rows["report_tokens"] = float(sum(len(m.ids) for m in members(groups)) / len(origins))
    return rows
