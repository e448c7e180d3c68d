"""`RRGTrainer` beside TRL's trainer, where all is off, and beside ours; the Lightning example."""

from __future__ import annotations

import os
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

from bench.ports import free_port
from rrgpolicy.model.load import load_policy
from rrgpolicy.model.prompt import encode_prompt
from rrgtrain.algorithms import Group, Member, build_algorithm
from rrgtrain.integrations import trl as integration
from rrgtrain.rewards import RewardService
from rrgtrain.schema import Recipe
from rrgtrain.train import Batch, accumulate_gradients
from rrgtrain.train.reference import reference_of
from tests.examples.contracts import EXAMPLES, load, record_gradients
from tests.parity.padded import peer
from tests.parity.trl_tiny import (
    GROUP,
    SAMPLED,
    backward,
    extras,
    fixed,
    of_letters,
    pictures,
    recipe,
    studies,
    trainer_of,
    wakened,
)

peer("pytorch_lightning")  # which leaves a variable behind where it is imported

peer("trl")


def words(completions: list[Any], **_: Any) -> list[float]:
    return [len(c[0]["content"]) / 8 for c in completions]


def test_with_all_off_it_is_trls_to_the_last_bit(place: Path, tmp_path: Path) -> None:
    from trl import GRPOTrainer

    policy, outcomes = load_policy(place), []
    off = integration.RRGTrainer, {"extras": extras(share=False, alarm=False)}
    for kind, more in ((GRPOTrainer, {}), off):
        made = trainer_of(kind, place, tmp_path, torch.float32, reward_funcs=words, **more)
        fixed(made, policy)
        outcomes.append(backward(made))
        made.train()
        outcomes[-1] += ([p.detach().clone() for p in made.model.parameters()],)
    (loss, gradients, weights), (own, ours, trained) = outcomes
    assert own == loss and ours.keys() == gradients.keys()
    assert all(torch.equal(ours[name], gradients[name]) for name in gradients)
    assert all(torch.equal(a, b) for a, b in zip(weights, trained, strict=True))


def test_what_no_step_moves_is_told_before_the_first(place: Path, tmp_path: Path) -> None:
    more = {"reward_funcs": words, "extras": extras(share=False, alarm=False)}
    made = trainer_of(integration.RRGTrainer, place, tmp_path, torch.bfloat16, **more)
    fixed(made, load_policy(place))
    with pytest.warns(UserWarning, match="bf16 under a large beta2"):
        made.train()
    assert made.preflown and made.state.global_step == 2


def test_the_example_trains_on_edits_with_images() -> None:
    first, *_ = load("trl_rrg").main(1)
    edits = [value for name, value in first.items() if name.startswith("edits/")]
    assert sum(edits) == 8 and first["grad_norm"] > 0 and "rrgtrain/entity_f1" in first


def ours(place: Path, cfg: Recipe, change: Callable[[Any], None]) -> tuple[float, dict]:
    policy = load_policy(place, dtype=torch.float64)
    policy.model.train()
    change(policy.model)
    reference = reference_of(policy)
    algorithm, service = build_algorithm(cfg), RewardService(cfg.reward)
    groups = []
    for b, (study, image) in enumerate(zip(studies(), pictures(), strict=True)):
        prompt = encode_prompt(policy, study, [image], style="short")
        texts = [SAMPLED[(3 * b + k) % 6] for k in range(algorithm.sampled)]
        drawn = tuple(Member(policy.codec.encode(text), text) for text in texts)
        groups.append(Group(b, study, prompt, drawn))
    groups, _ = algorithm.complete(groups, 0, policy.codec.reencode_from)
    every = [(g, m) for g in groups for m in g.members]
    scored = [(g, m) for g, m in every if m.scored]
    total = service([m.text for _, m in scored], [g.study for g, _ in scored])["total"]
    rewards = torch.full((len(every),), torch.nan, dtype=torch.float64)
    rewards[[m.scored for _, m in every]] = torch.tensor(total).float().double()
    assert any(m.origin == "edited" for _, m in every)
    assert any(m.origin == "oracle" for _, m in every) == ("orapo" in cfg.rl.algorithm)
    batch = Batch.of(groups, algorithm.advantages(groups, rewards), cfg.rl)
    work = policy, reference, batch, algorithm.loss, cfg.rl
    loss = accumulate_gradients(*work).read().loss
    named = policy.backbone.named_parameters()
    return loss, {n: p.grad for n, p in named if p.grad is not None}


CASES = [
    ([], {}),
    (["oracle.loss=sft", "rl.aggregation=grpo"], {"loss_type": "grpo"}),
    (["rl.aggregation=dapo", "rl.std=sample"], {"loss_type": "dapo", "scale_rewards": "group"}),
    (["rl.algorithm=editgrpo"], {}),
    # a bound that no token lies on, as those that edits share would: TRL rounds it to fp32
    (["rl.algorithm=editgrpo", "rl.top_entropy_quantile=0.3"], {"top_entropy_quantile": 0.3}),
]


@pytest.mark.parametrize(("settings", "arguments"), CASES, ids=str)
def test_with_all_on_a_step_is_ours(
    settings: list[str], arguments: dict[str, Any], place: Path, tmp_path: Path
) -> None:
    cfg = recipe(*settings)
    loss, gradients = ours(place, cfg, wakened)
    for share in (True, False):
        made = trainer_of(
            integration.RRGTrainer,
            place,
            tmp_path,
            arguments=arguments,
            extras=extras(recipe=cfg, share=share),
        )
        wakened(made.model)
        wakened(made.ref_model)
        fixed(made, load_policy(place))
        own, grads = backward(made)
        assert own == pytest.approx(loss, rel=1e-6)
        logged = {name: made._metrics["train"].get(name) for name in ("kl", "entropy")}
        assert logged["kl"] and bool(logged["entropy"]) == ("top_entropy_quantile" in arguments)
        assert not logged["entropy"] or min(logged["entropy"]) > 0
        assert grads.keys() == gradients.keys()
        for name, gradient in gradients.items():
            assert (grads[name] - gradient).norm() <= 1e-6 * gradient.norm() + 1e-12, name


def test_what_the_policy_has_moved_away_from_earns_nothing(place: Path, tmp_path: Path) -> None:
    """A sampled report with a negative advantage; an edit has no log-probs of the sampler."""
    cfg, found = recipe("rl.algorithm=editgrpo"), []
    for limit in (None, 0.1):
        made = trainer_of(
            integration.RRGTrainer,
            place,
            tmp_path,
            arguments={"off_policy_mask_threshold": limit, "beta": 0.0},
            extras=extras(recipe=cfg, alarm=False, preflight=False),
        )
        fixed(made, load_policy(place), lambda _, ids: [[0.0] * len(each) for each in ids])
        prepare = made._prepare_inputs

        def prepared(batch: Any, prepare: Any = prepare, limit: Any = limit) -> Any:
            inputs = prepare(batch)
            far = ~inputs["sampling_per_token_logps"].isnan() & (inputs["rrg_advantages"] < 0)
            assert far.any()
            if limit is None:
                inputs["rrg_advantages"] = inputs["rrg_advantages"].masked_fill(far, 0.0)
            return inputs

        made._prepare_inputs = prepared
        found.append(backward(made)[1])
        assert not {"kl", "entropy"} & made._metrics["train"].keys()
    one, two = found
    assert all(torch.equal(one[name], two[name]) for name in one)


def two_ranks(rank: int, port: int, place: str, out: str, mode: str) -> None:
    """What a rank does: one group of the two, or half a group, a step of RRGTrainer."""
    from accelerate.state import AcceleratorState, GradientState, PartialState

    for state in (AcceleratorState, GradientState, PartialState):
        state._reset_state()
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2"}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    torch.set_num_threads(1)
    made = stepped(Path(place), Path(out), GROUP // (1 + (mode == "share")), mode)
    weights = {n: full(p).detach().cpu() for n, p in made.model.named_parameters()}
    torch.save(weights, f"{out}/{mode}{rank}.pt")


def full(parameter: torch.Tensor) -> torch.Tensor:
    return parameter.full_tensor() if isinstance(parameter, DTensor) else parameter


def stepped(place: Path, out: Path, rows: int, mode: str = "ddp") -> Any:
    """A trainer with all on after one step of plain SGD, `rows` completions a process."""
    sgd = {"optim": "sgd", "max_grad_norm": 0.0, "max_steps": 1}
    sgd |= {"per_device_train_batch_size": rows, "learning_rate": 0.1}
    if "WORLD_SIZE" in os.environ:
        sgd["ddp_backend"] = "gloo"
    made = trainer_of(
        integration.RRGTrainer,
        place,
        out,
        arguments=sgd | {"lr_scheduler_type": "constant"},
        extras=extras(recipe=None if mode == "share" else recipe("oracle.loss=sft"), alarm=False),
        reward_funcs=of_letters,
    )
    wakened(made.model)
    wakened(made.ref_model)
    single = load_policy(place)

    def single_turn(prompt_ids: list[Any], *rest: Any, **named: Any) -> Any:
        before, drawn = made.accelerator.process_index * len(prompt_ids), range(len(prompt_ids))
        if mode == "share":
            return [single.codec.encode(SAMPLED[before + r]).tolist() for r in drawn], None
        first = before // (GROUP // 2)
        texts = [SAMPLED[(3 * (first + r // (GROUP // 2)) + r % (GROUP // 2)) % 6] for r in drawn]
        return [single.codec.encode(text).tolist() for text in texts], None

    made._generate_single_turn = single_turn
    if mode == "fsdp2":
        made._probe()
        for layer in made.model.model.language_model.layers:
            fully_shard(layer)
        for model in (made.model, made.ref_model):
            fully_shard(model)
        backward(made)
        with torch.no_grad():
            for parameter in made.model.parameters():
                if parameter.grad is not None:
                    parameter -= 0.1 * parameter.grad
    else:
        made.train()
    return made


@pytest.mark.parametrize("mode", ["ddp", "fsdp2", "share"])
def test_two_ranks_are_one(mode: str, place: Path, tmp_path: Path) -> None:
    """In "share" without a recipe, each rank has a half of one group."""
    one = (GROUP, mode) if mode == "share" else (2 * GROUP, "ddp")
    alone = {n: p.detach() for n, p in stepped(place, tmp_path, *one).model.named_parameters()}
    arguments = (free_port(), str(place), str(tmp_path), mode)
    torch.multiprocessing.start_processes(two_ranks, arguments, nprocs=2, start_method="fork")
    for rank in range(2):
        for name, weight in torch.load(tmp_path / f"{mode}{rank}.pt").items():
            assert (weight - alone[name]).abs().max() <= 1e-8, name


@pytest.mark.filterwarnings("ignore")
def test_the_lightning_loop_updates_its_policy(monkeypatch, tmp_path) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.chdir(tmp_path)
    for name in ("PL_GLOBAL_SEED", "PL_SEED_WORKERS"):  # seed_everything leaves them behind
        monkeypatch.setenv(name, "0")
    gradients = record_gradients(monkeypatch)
    options = dict(accelerator="cpu", enable_progress_bar=False, enable_model_summary=False)
    with torch.random.fork_rng():
        main = runpy.run_path(str(EXAMPLES / "lightning_loop.py"))["main"]
        means = main(2, **options)
    assert len(means) == len(gradients) == 2
    assert all(0.0 < mean < 1.0 for mean in means) and min(gradients) > 0.0
