"""vLLM with a policy of text alone, in process and over HTTP: tokens and log-probs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from rrgpolicy.model.prompt import EncodedPrompt
from rrgpolicy.rollout import RolloutEngine, SamplingRequest, generate
from tests.rrgpolicy.model.common import Policy, prompt, text_policy
from tests.vllm.server import Server, engine_of
from tests.vllm.test_engines import STEPS, recomputed, seeds_for, tokens


@pytest.fixture(scope="module", params=["in process", "server"])
def engine(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RolloutEngine]:
    work = tmp_path_factory.mktemp("weights")
    home = tmp_path_factory.mktemp("server")
    served = lambda: Server(home, text_policy())  # noqa: E731
    with engine_of(request.param, work, text_policy(), served) as engine:
        yield engine


def prompts_of(policy: Policy) -> list[EncodedPrompt]:
    return [prompt(policy, "s" * (b + 1), 0, indication="dyspnea" * b) for b in range(3)]


def test_greedy_tokens_are_the_trainers_and_follow_the_weights(engine: RolloutEngine) -> None:
    policy = text_policy()
    found = []
    for _ in range(2):
        engine.update(policy)
        prompts = prompts_of(policy)
        asked = {"group": 2, "max_new_tokens": STEPS, "seeds": seeds_for(3, 2), "greedy": True}
        theirs = tokens(engine.generate(policy, SamplingRequest(prompts, **asked)))
        assert theirs == tokens(generate(policy, SamplingRequest(prompts, **asked)))
        found.append(theirs)
        with torch.no_grad():
            for name, weight in policy.backbone.named_parameters():
                if "mlp" in name or "lm_head" in name:
                    weight.mul_(-1.5)
    assert found[0] != found[1]


def test_logps_are_those_of_the_training_forward(engine: RolloutEngine) -> None:
    policy = text_policy()
    policy.eos_ids = tuple(range(40, 46))
    engine.update(policy)
    prompts = prompts_of(policy)
    asked = {"group": 3, "temperature": 0.7, "max_new_tokens": STEPS, "seeds": seeds_for(3, 3)}
    rollouts = engine.generate(policy, SamplingRequest(prompts, **asked))
    seen = torch.cat([r.logps for g in rollouts for r in g])
    wanted = recomputed(policy, prompts, rollouts, 0.7)
    torch.testing.assert_close(seen, wanted, rtol=1e-3, atol=2e-3)
