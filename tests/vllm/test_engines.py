"""vLLM, in process and over HTTP, against the trainer's own sampling: the same tokens, the
log-probs of the training forward, new weights at once."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
import torch

from rrgpolicy.model.forward import head_logps, hidden_states
from rrgpolicy.model.policy import Policy
from rrgpolicy.model.prompt import EncodedPrompt
from rrgpolicy.rollout import (
    Rollout,
    RolloutEngine,
    SamplingRequest,
    VllmEngine,
    VllmServerEngine,
    generate,
)
from rrgpolicy.rollout.policy_sampler import PolicySampler
from rrgreport.run_files import read_metrics
from rrgtrain.algorithms import build_algorithm
from rrgtrain.errors import UserError
from rrgtrain.log.logs import RunLog
from rrgtrain.rewards import RewardService
from rrgtrain.state.rundir import RunDir
from rrgtrain.train.rl import train_rl
from tests.rrgpolicy.model.common import prompts_of, tiny_policy
from tests.rrgtrain.common import policy_and_prompts, recipe, rl_run, studies
from tests.vllm.server import LENGTH, Server

STEPS = 40


@pytest.fixture(scope="module", params=["in process", "server"])
def engine(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RolloutEngine]:
    work = tmp_path_factory.mktemp("weights")
    made: RolloutEngine
    if request.param == "server":
        url = request.getfixturevalue("server").url
        made = VllmServerEngine(url, work, wait=240.0)
    else:
        made = VllmEngine(tiny_policy(), work, max_model_len=LENGTH, memory=0.1)
    yield made
    made.close()


def seeds_for(count: int, group: int) -> list[list[int]]:
    return [[2**63 + 1000 * b + m for m in range(group)] for b in range(count)]


def tokens(rollouts: list[list[Rollout]]) -> list[list[list[int]]]:
    return [[r.ids.tolist() for r in group] for group in rollouts]


def both_greedy(engine: RolloutEngine, policy: Policy) -> tuple[list, list]:
    engine.update(policy)
    request = SamplingRequest(
        prompts_of(policy), group=2, max_new_tokens=STEPS, seeds=seeds_for(4, 2), greedy=True
    )
    theirs = engine.generate(policy, request)
    ours = generate(policy, request)
    assert [[r.finished for r in g] for g in theirs] == [[r.finished for r in g] for g in ours]
    return tokens(theirs), tokens(ours)


def recomputed(
    policy: Policy, prompts: list[EncodedPrompt], rollouts: list[list[Rollout]], temperature: float
) -> torch.Tensor:
    # of what vLLM draws from
    policy = replace(policy, left_out=policy.never_sampled)
    with torch.no_grad():
        hidden, batch = hidden_states(policy, prompts, [[r.ids for r in g] for g in rollouts])
        return head_logps(policy, hidden, batch.targets, temperature)


def test_greedy_tokens_are_the_trainers_and_follow_the_weights(engine: RolloutEngine) -> None:
    policy = tiny_policy()
    theirs, ours = both_greedy(engine, policy)
    assert theirs == ours
    with torch.no_grad():
        for name, weight in policy.backbone.named_parameters():
            if "mlp" in name:
                weight.mul_(-1.5)
    changed, expected = both_greedy(engine, policy)
    assert changed == expected
    assert changed != theirs


def test_where_little_trains_its_neighbours_go_along(engine: RolloutEngine) -> None:
    policy = tiny_policy()
    policy.model.requires_grad_(False)
    said = [both_greedy(engine, policy)[0]]
    for part in ("layers.1.self_attn.q_proj", "embed_tokens", "layers.0.mlp.down_proj", "norm"):
        policy.model.requires_grad_(False)
        with torch.no_grad():
            policy.language_model.get_submodule(part).requires_grad_(True).weight.mul_(-1.5)
        theirs, ours = both_greedy(engine, policy)
        assert theirs == ours, part
        said.append(theirs)
    assert all(a != b for a, b in pairwise(said))


def test_the_vision_tower_is_the_trainers(engine: RolloutEngine) -> None:
    policy = tiny_policy()
    before, _ = both_greedy(engine, policy)
    with torch.no_grad():
        for weight in policy.visual.merger.parameters():
            weight.mul_(-3.0)
    theirs, ours = both_greedy(engine, policy)
    assert theirs == ours
    assert theirs[1] == before[1]  # no image in the second prompt
    assert theirs != before


@pytest.mark.parametrize(("temperature", "top_p"), [(1.0, 1.0), (0.7, 1.0), (1.0, 0.6)])
def test_logps_are_those_of_the_training_forward(
    engine: RolloutEngine, temperature: float, top_p: float
) -> None:
    policy = tiny_policy()
    policy.eos_ids = tuple(range(40, 46))
    engine.update(policy)
    prompts = prompts_of(policy)
    request = SamplingRequest(
        prompts,
        group=3,
        temperature=temperature,
        top_p=top_p,
        max_new_tokens=STEPS,
        seeds=seeds_for(4, 3),
    )
    rollouts = engine.generate(policy, request)
    seen = torch.cat([r.logps for g in rollouts for r in g])
    wanted = recomputed(policy, prompts, rollouts, temperature)
    if top_p < 1:
        # renormalised over the nucleus: never below the log-prob under the whole distribution
        assert (seen >= wanted - 1e-3).all()
        assert (seen > wanted + 1e-3).any()
    else:
        torch.testing.assert_close(seen, wanted, rtol=1e-3, atol=2e-3)
    for r in (r for g in rollouts for r in g):
        ends = torch.isin(r.ids, torch.tensor(policy.eos_ids))
        assert not ends[:-1].any()
        assert r.finished == bool(ends[-1])
        assert r.finished or len(r.ids) == STEPS


def test_a_seed_gives_its_report_in_any_batch(engine: RolloutEngine) -> None:
    policy = tiny_policy()
    engine.update(policy)
    prompts = prompts_of(policy)
    seeds = seeds_for(4, 2)
    together = tokens(
        engine.generate(
            policy, SamplingRequest(prompts, group=2, max_new_tokens=STEPS, seeds=seeds)
        )
    )
    alone = tokens(
        engine.generate(
            policy,
            SamplingRequest(prompts[2:3], group=1, max_new_tokens=STEPS, seeds=[[seeds[2][1]]]),
        )
    )
    assert alone[0][0] == together[2][1]
    assert together[2][0] != together[2][1]


@pytest.mark.parametrize("length", [1, 9, STEPS])
def test_stop_and_length_are_the_trainers_token_by_token(
    engine: RolloutEngine, length: int
) -> None:
    """Ends of turn at the first token, in the middle, at the limit, and nowhere."""
    policy = tiny_policy()
    prompts = prompts_of(policy)
    request = SamplingRequest(
        prompts, group=1, max_new_tokens=length, seeds=seeds_for(4, 1), greedy=True
    )
    policy.eos_ids = (policy.end_of_turn,)
    endless = [g[0].ids for g in generate(policy, replace(request, max_new_tokens=STEPS))]
    policy.eos_ids = (int(endless[0][0]), int(endless[1][8]), int(endless[2][20]))
    engine.update(policy)
    theirs = engine.generate(policy, request)
    ours = generate(policy, request)
    assert tokens(theirs) == tokens(ours)
    finished = [[r.finished for r in g] for g in theirs]
    assert finished == [[r.finished for r in g] for g in ours]
    assert len(theirs[0][0].ids) == 1 and theirs[0][0].finished
    assert all(r.finished or len(r.ids) == length for g in theirs for r in g)


def test_a_report_that_the_engines_own_limit_cuts_is_refused(engine: RolloutEngine) -> None:
    policy = tiny_policy()
    prompts = prompts_of(policy)[:1]
    request = SamplingRequest(prompts, group=1, max_new_tokens=LENGTH, seeds=[[1]], greedy=True)
    policy.eos_ids = (-1,)
    said = set(generate(policy, request)[0][0].ids.tolist())
    policy.eos_ids = (next(i for i in range(len(said) + 1) if i not in said),)
    engine.update(policy)
    with pytest.raises(UserError, match="max_model_len|refused .* status 400"):
        engine.generate(policy, request)


def test_the_loop_trains_on_what_vllm_samples(engine: RolloutEngine, tmp_path: Path) -> None:
    cfg = recipe("rl.algorithm=editgrpo", "rollout.engine=vllm", "eval.best_by=micro_f1")
    policy, prompts = policy_and_prompts()
    before = {n: p.detach().clone() for n, p in policy.model.named_parameters()}
    with RunDir.create(tmp_path / "run") as run, RunLog(run) as log:
        loop = rl_run(
            policy,
            prompts,
            studies(5),
            cfg,
            build_algorithm(cfg),
            RewardService(cfg.reward),
            lambda: {"micro_f1": 0.5},
            run.checkpoints / "rl",
            log,
            sampler=PolicySampler(lambda _: engine),
        )
        train_rl(loop)
    rows = [row for row in read_metrics(run.metrics) if row["phase"] == "editgrpo"]
    assert [row["step"] for row in rows] == [0, 1]
    # in fp32 the two forwards differ by rounding alone, so hardly a token is corrected
    assert all(abs(row["ratio_mean"] - 1) < 1e-6 for row in rows)
    assert any(not torch.equal(p, before[n]) for n, p in policy.model.named_parameters())


def test_a_killed_server_is_waited_for_and_gets_the_weights_again(
    server: Server, tmp_path: Path
) -> None:
    policy = tiny_policy()
    with torch.no_grad():
        for name, weight in policy.backbone.named_parameters():
            if "mlp" in name:
                weight.mul_(-1.5)
    engine = VllmServerEngine(server.url, tmp_path, wait=1.0)
    engine.update(policy)
    prompts = prompts_of(policy)
    many = SamplingRequest(prompts, group=16, max_new_tokens=150, seeds=seeds_for(4, 16))

    def until_it_fails() -> None:
        while True:
            engine.generate(policy, many)

    threading.Timer(0.3, server.kill).start()
    with pytest.raises(UserError, match="no answer from vLLM at .*and resume"):
        until_it_fails()
    threading.Timer(1.0, server.start).start()
    engine._wait = 600.0
    few = SamplingRequest(
        prompts, group=1, max_new_tokens=STEPS, seeds=seeds_for(4, 1), greedy=True
    )
    assert tokens(engine.generate(policy, few)) == tokens(generate(policy, few))
    start = tiny_policy()
    assert tokens(generate(start, few)) != tokens(generate(policy, few))
