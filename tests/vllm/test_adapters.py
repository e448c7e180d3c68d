"""vLLM with adapters, with text alone and with the hub's own files: the trainer's tokens."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from urllib.request import Request, urlopen

import pytest
import torch

from rrgdata.load import load_studies
from rrgdata.study import Study
from rrgpolicy.model.load import load_policy
from rrgpolicy.model.policy import Policy, add_lora
from rrgpolicy.model.prompt import prompt_text
from rrgpolicy.rollout import RolloutEngine, SamplingRequest, VllmEngine, generate, sampling
from rrgtrain.cli import main
from rrgtrain.schema import LoraSettings
from tests.rrgpolicy.hub import hub_directory
from tests.rrgpolicy.model.common import grow, prompt, text_policy, tiny_policy
from tests.rrgtrain.common import phantoms
from tests.vllm.server import LENGTH, Server, engine_of
from tests.vllm.test_engines import STEPS, prompts_of, recomputed, seeds_for, tokens


def adapted(dtype: torch.dtype) -> Policy:
    policy = tiny_policy(dtype=dtype)
    add_lora(policy, LoraSettings(rank=4, alpha=8.0, dropout=0.0), 0)
    return grow(policy, 0.05, only="lora_B")


def test_the_gap_in_bf16(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    policy = adapted(torch.bfloat16)
    engine = VllmEngine(policy, tmp_path, max_model_len=LENGTH, memory=0.1)
    prompts = prompts_of(policy)
    asked = SamplingRequest(prompts, group=8, max_new_tokens=STEPS, seeds=seeds_for(4, 8))
    with sampling(engine, policy, 0):
        rollouts = engine.generate(policy, asked)
    seen = torch.cat([r.logps for g in rollouts for r in g])
    gap = float((seen - recomputed(policy, prompts, rollouts, 1.0)).abs().mean())
    engine.close()
    with capsys.disabled():
        print(f"\nmean gap of a merged adapter in bf16: {gap:.4f} nats")
    assert 0 < gap < 0.1


@pytest.fixture(scope="module", params=["in process", "server"])
def engine(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RolloutEngine]:
    work = tmp_path_factory.mktemp("weights")
    home = tmp_path_factory.mktemp("server")
    served = lambda: Server(home, text_policy())  # noqa: E731
    with engine_of(request.param, work, text_policy(), served) as engine:
        yield engine


def test_greedy_tokens_are_the_trainers_and_follow_the_weights(engine: RolloutEngine) -> None:
    policy = text_policy()
    found = []
    for _ in range(2):
        engine.update(policy)
        prompts = [prompt(policy, "s" * (b + 1), 0, indication="dyspnea" * b) for b in range(3)]
        asked = {"group": 2, "max_new_tokens": STEPS, "seeds": seeds_for(3, 2), "greedy": True}
        theirs = tokens(engine.generate(policy, SamplingRequest(prompts, **asked)))
        assert theirs == tokens(generate(policy, SamplingRequest(prompts, **asked)))
        found.append(theirs)
        with torch.no_grad():
            for name, weight in policy.backbone.named_parameters():
                if "mlp" in name or "lm_head" in name:
                    weight.mul_(-1.5)
    assert found[0] != found[1]


HUB_STEPS = 24


def policy_of_the_hub() -> Policy:
    return load_policy(hub_directory(), freeze_vision=True)


def request_of(policy: Policy, group: int = 2, **options: object) -> SamplingRequest:
    prompts = [prompt(policy, "s" * (b + 1), views) for b, views in enumerate((1, 0, 2))]
    return SamplingRequest(
        prompts, group=group, max_new_tokens=HUB_STEPS, seeds=seeds_for(3, group), **options
    )


def by_hand(home: Path, checkpoint: Path) -> Server:
    """Leave what the checkpoint's generation_config.json says as the server's default."""
    server = Server(home, checkpoint)
    server.command = server.command.replace(" --generation-config vllm", "")
    return server


@pytest.fixture(scope="module", params=["in process", "server"])
def hub_engine(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RolloutEngine]:
    work = tmp_path_factory.mktemp("weights")
    home = tmp_path_factory.mktemp("server")

    served = partial(by_hand, home, hub_directory())
    with engine_of(request.param, work, policy_of_the_hub(), served) as hub_engine:
        yield hub_engine


def test_greedy_tokens_are_the_trainers_whatever_the_hub_says_of_penalties(
    hub_engine: RolloutEngine,
) -> None:
    policy, said = policy_of_the_hub(), []
    for _ in range(2):
        hub_engine.update(policy)
        asked = request_of(policy, greedy=True)
        theirs = tokens(hub_engine.generate(policy, asked))
        assert theirs == tokens(generate(policy, asked))
        said.append(theirs)
        with torch.no_grad():
            for name, weight in policy.backbone.named_parameters():
                if "mlp" in name or "embed_tokens" in name:
                    weight.mul_(-1.5)
    assert said[0] != said[1]


def test_what_a_policy_is_shown_is_never_sampled(hub_engine: RolloutEngine) -> None:
    """The rows of the embedding, which is the head, are those of the likeliest ids."""
    policy = policy_of_the_hub()
    never = set(policy.never_sampled)
    greedy = request_of(policy, greedy=True)
    likely = generate(policy, greedy)[0][0].ids[0]
    with torch.no_grad():
        weight = policy.backbone.lm_head.weight
        weight[list(never)] = 1.5 * weight[likely]
    hub_engine.update(policy)
    for asked in (greedy, request_of(policy, group=6)):
        ids = {i for g in hub_engine.generate(policy, asked) for r in g for i in r.ids.tolist()}
        assert not never & ids
    assert tokens(hub_engine.generate(policy, greedy)) == tokens(generate(policy, greedy))


def test_an_adapter_goes_over(hub_engine: RolloutEngine) -> None:
    policy = policy_of_the_hub()
    add_lora(policy, LoraSettings(rank=4, alpha=8.0, dropout=0.0), 0)
    with torch.no_grad():
        for name, weight in policy.model.named_parameters():
            if "lora_B" in name:
                weight.normal_(std=0.05)
    hub_engine.update(policy)
    asked = request_of(policy, greedy=True)
    assert tokens(hub_engine.generate(policy, asked)) == tokens(generate(policy, asked))


def test_an_export_is_served_over_http_as_it_was_evaluated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Asked as anybody asks it: pictures and words in a chat, no ids.

    But for the ids of images, which no report of ours holds and weights drawn at random may prefer.
    """
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    out = tmp_path / "export"
    assert main(["export", str(hub_directory()), "--out", str(out), "--dtype", "fp32"]) == 0
    words = ["eval", "--from", str(out), "--out", str(tmp_path / "eval"), "data.source=iu_xray"]
    words += [f"data.root={phantoms()}", "eval.limit=3", "eval.max_new_tokens=10"]
    words += ["policy.prompt=short", "eval.bootstrap=20", "eval.meteor=false"]
    assert main(words) == 0
    rows = map(json.loads, (tmp_path / "eval/predictions.jsonl").open())
    wanted = {row["id"]: row["report"] for row in rows if row["system"] != "constant template"}
    never = load_policy(out).never_sampled
    server, said = by_hand(tmp_path, out), {}
    server.start()
    try:
        server.wait()
        for study in load_studies("iu_xray", phantoms()).studies["test"]:
            if study.id in wanted:
                said[study.id] = asked_by_anybody(server, out, study, never)
    finally:
        server.kill()
    assert said == wanted and len(set(said.values())) > 1


def asked_by_anybody(server: Server, model: Path, study: Study, never: Iterable[int]) -> str:
    content: list[dict[str, object]] = []
    for image in study.images:
        data = base64.b64encode(Path(image.path).read_bytes()).decode()
        content.append({"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}})
    content.append({"type": "text", "text": prompt_text(study, style="short")})
    turns = [{"role": "user", "content": content}]
    body = {"model": str(model), "messages": turns, "temperature": 0, "max_tokens": 10}
    body["logit_bias"] = dict.fromkeys(map(str, never), -100)
    request = Request(
        f"{server.url}/v1/chat/completions",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    with urlopen(request, timeout=300) as answer:
        return str(json.load(answer)["choices"][0]["message"]["content"])
