"""The hub's own files through vLLM: weights pushed in process and over HTTP, penalty and all."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from rrgtrain.cli import main
from rrgtrain.policy.load import load_policy
from rrgtrain.policy.lora import add_lora
from rrgtrain.policy.policy import Policy
from rrgtrain.rollout import RolloutEngine, SamplingRequest, VllmEngine, VllmServerEngine, generate
from rrgtrain.schema import LoraSettings
from tests.rrgtrain.hub import hub_directory
from tests.rrgtrain.policy.common import prompt
from tests.vllm.server import LENGTH, Server, engine_of
from tests.vllm.test_engines import seeds_for, tokens

STEPS = 24


def policy_of_the_hub() -> Policy:
    return load_policy(hub_directory(), freeze_vision=True)


def request_of(policy: Policy, group: int = 2, **options: object) -> SamplingRequest:
    prompts = [prompt(policy, "s" * (b + 1), views) for b, views in enumerate((1, 0, 2))]
    return SamplingRequest(
        prompts, group=group, max_new_tokens=STEPS, seeds=seeds_for(3, group), **options
    )


@pytest.fixture(scope="module", params=["in process", "server"])
def engine(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RolloutEngine]:
    work = tmp_path_factory.mktemp("weights")
    home = tmp_path_factory.mktemp("server")

    def by_hand() -> Server:
        """Leave what the hub's generation_config.json says as the server's default."""
        server = Server(home, hub_directory())
        server.command = server.command.replace(" --generation-config vllm", "")
        return server

    with engine_of(request.param, work, policy_of_the_hub(), by_hand) as engine:
        yield engine


def test_greedy_tokens_are_the_trainers_whatever_the_hub_says_of_penalties(
    engine: RolloutEngine,
) -> None:
    policy, said = policy_of_the_hub(), []
    for _ in range(2):
        engine.update(policy)
        asked = request_of(policy, greedy=True)
        theirs = tokens(engine.generate(policy, asked))
        assert theirs == tokens(generate(policy, asked))
        said.append(theirs)
        with torch.no_grad():
            for name, weight in policy.backbone.named_parameters():
                if "mlp" in name or "embed_tokens" in name:
                    weight.mul_(-1.5)
    assert said[0] != said[1]


def test_what_a_policy_is_shown_is_never_sampled(engine: RolloutEngine) -> None:
    """The rows of the embedding, which is the head, are those of the likeliest ids."""
    policy = policy_of_the_hub()
    never = set(policy.never_sampled)
    greedy = request_of(policy, greedy=True)
    likely = generate(policy, greedy)[0][0].ids[0]
    with torch.no_grad():
        weight = policy.backbone.lm_head.weight
        weight[list(never)] = 1.5 * weight[likely]
    engine.update(policy)
    for asked in (greedy, request_of(policy, group=6)):
        ids = {i for g in engine.generate(policy, asked) for r in g for i in r.ids.tolist()}
        assert not never & ids
    assert tokens(engine.generate(policy, greedy)) == tokens(generate(policy, greedy))


def test_an_adapter_goes_over(engine: RolloutEngine) -> None:
    policy = policy_of_the_hub()
    add_lora(policy, LoraSettings(rank=4, alpha=8.0, dropout=0.0), 0)
    with torch.no_grad():
        for name, weight in policy.model.named_parameters():
            if "lora_B" in name:
                weight.normal_(std=0.05)
    if isinstance(engine, VllmServerEngine):
        engine._adapter = False  # this server takes none; merged it goes
    else:
        engine._lora = engine._outbox.adapter = False
    engine.update(policy)
    asked = request_of(policy, greedy=True)
    assert tokens(engine.generate(policy, asked)) == tokens(generate(policy, asked))


def test_an_export_is_served_as_it_was_judged(tmp_path: Path) -> None:
    out = tmp_path / "export"
    assert main(["export", str(hub_directory()), "--out", str(out), "--dtype", "fp32"]) == 0
    policy = load_policy(out, freeze_vision=True)
    made = VllmEngine(policy, tmp_path / "work", max_model_len=LENGTH, memory=0.1)
    made.update(policy)
    asked = request_of(policy, greedy=True)
    assert tokens(made.generate(policy, asked)) == tokens(generate(policy, asked))
    made.close()
