"""The learning rate by hand, decay of matrices only, clipping, gradients that are not finite."""

from __future__ import annotations

import copy
from contextlib import nullcontext
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from rrgpolicy.model.policy import Policy
from rrgpolicy.ranks import ranks
from rrgpolicy.ranks.sharding import as_parameter, load_optimizer, load_weights
from rrgtrain.config import load_config
from rrgtrain.errors import UserError
from rrgtrain.schema import Recipe
from rrgtrain.state.store import load_checkpoint, write_checkpoint
from rrgtrain.train.loader import PromptLoader
from rrgtrain.train.optim import adamw, apply_step, clip_gradients, learning_rate, optimizer_of
from rrgtrain.train.sft import sft_loss
from tests.rrgpolicy.model.common import tiny_policy
from tests.rrgtrain.common import groups_of, recipe, studies
from tests.rrgtrain.recipes.loaded import PAPER
from tests.rrgtrain.train.loops import SAMPLED, backward, whole, whole_gradients, with_masters


@pytest.mark.parametrize(
    ("step", "schedule", "wanted"),
    [
        (0, "constant", 0.25),
        (1, "constant", 0.5),
        (3, "constant", 1.0),
        (4, "constant", 1.0),
        (11, "constant", 1.0),
        (3, "cosine", 1.0),
        (4, "cosine", 1.0),
        (8, "cosine", 0.5),
        (6, "cosine", 0.5 + 0.5**1.5),
        (12, "cosine", 0.0),
        (40, "cosine", 0.0),
    ],
)
def test_four_steps_of_warmup_then_the_schedule(step: int, schedule: str, wanted: float) -> None:
    assert learning_rate(step, 12, 2.0, 4, schedule) == pytest.approx(2.0 * wanted, abs=1e-12)


def model() -> torch.nn.Module:
    torch.manual_seed(0)
    made = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.LayerNorm(3), torch.nn.Linear(3, 2))
    made[2].requires_grad_(False)
    return made


def test_only_matrices_decay_and_only_what_trains_is_there() -> None:
    net = model()
    before = copy.deepcopy(net.state_dict())
    optimizer = adamw(net, 0.1, 0.5)
    assert [g["weight_decay"] for g in optimizer.param_groups] == [0.5, 0.0]
    for p in net.parameters():
        if p.requires_grad:
            p.grad = torch.zeros_like(p)
    apply_step(optimizer, clip_gradients(net.parameters(), 1.0), 0.1)
    after = net.state_dict()
    torch.testing.assert_close(after["0.weight"], before["0.weight"] * (1 - 0.1 * 0.5))
    for name in set(before) - {"0.weight"}:
        assert torch.equal(after[name], before[name]), name
    assert len(adamw(torch.nn.Linear(2, 2, bias=False), 0.1, 0.5).param_groups) == 1


def test_a_resume_takes_its_moments_and_the_settings_of_its_recipe() -> None:
    net = model()
    first = adamw(net, 0.1, 0.5)
    for p in net.parameters():
        p.grad = torch.ones_like(p) if p.requires_grad else None
    apply_step(first, 1.0, 0.1)
    again = adamw(net, 0.1, 0.0, (0.8, 0.95))
    load_optimizer(again, first.state_dict())
    assert [(g["weight_decay"], g["betas"]) for g in again.param_groups] == 2 * [(0.0, (0.8, 0.95))]
    assert torch.equal(again.state[net[0].weight]["exp_avg"], torch.full((3, 4), 0.1))


@pytest.mark.parametrize(("clip", "scale"), [(0.5, 0.1), (5.0, 1.0), (100.0, 1.0), (0.0, 1.0)])
def test_clipping_returns_the_norm_before_it(clip: float, scale: float) -> None:
    weight = torch.nn.Parameter(torch.zeros(2))
    optimizer = torch.optim.SGD([weight], lr=123.0)
    weight.grad = torch.tensor([3.0, 4.0])
    assert apply_step(optimizer, clip_gradients([weight], clip), 1.0) == pytest.approx(5.0)
    torch.testing.assert_close(weight.data, torch.tensor([-3.0, -4.0]) * scale, rtol=1e-5, atol=0)
    assert weight.grad is None
    assert optimizer.param_groups[0]["lr"] == 1.0


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_gradient_that_is_not_finite_stops_and_changes_no_weight(bad: float) -> None:
    net = model()
    before = copy.deepcopy(net.state_dict())
    optimizer = adamw(net, 0.1, 0.5)
    for p in net.parameters():
        if p.requires_grad:
            p.grad = torch.ones_like(p)
    next(net.parameters()).grad[0, 0] = bad
    with pytest.raises(UserError, match=r"norm of the gradient is (nan|inf); lower") as caught:
        apply_step(optimizer, clip_gradients(net.parameters(), 1.0), 0.1)
    assert "\n" not in str(caught.value)
    net.zero_grad()
    assert apply_step(optimizer, clip_gradients(net.parameters(), 1.0), 0.1) == 0.0, "no gradient"
    assert all(torch.equal(v, before[k]) for k, v in net.state_dict().items())


class SeenDTensors(TorchFunctionMode):
    """Names of the functions inside that are given a DTensor."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        flat = tree_leaves((args, kwargs or {}))
        if any(isinstance(value, DTensor) for value in flat):
            self.names.add(func.__name__)
        return func(*args, **(kwargs or {}))


def test_a_step_on_shards_computes_on_plain_tensors_what_one_on_whole_ones_does() -> None:
    """A DTensor's operations go through Python: AdamW has ten a parameter, clipping three."""
    ranks.join_alone(cuda=False)
    try:
        whole, sharded = model(), model()
        fully_shard(sharded)
        optimizers = [adamw(net, 0.1, 0.5) for net in (whole, sharded)]
        for step in range(3):
            norms = []
            for net, optimizer in zip((whole, sharded), optimizers, strict=True):
                for p in net.parameters():
                    if p.requires_grad:
                        torch.manual_seed(10 * step + p.shape[0])
                        drawn = torch.randn(p.shape)
                        p.grad = as_parameter(drawn, p)
                mode = SeenDTensors()
                with mode if step else nullcontext():  # the first makes the moments
                    norms.append(apply_step(optimizer, clip_gradients(net.parameters(), 0.5), 0.1))
                assert mode.names <= {"__get__", "__set__", "is_complex"}
            assert norms[0] == pytest.approx(norms[1], rel=1e-6)
        for p, q in zip(whole.parameters(), sharded.parameters(), strict=True):
            torch.testing.assert_close(q.full_tensor(), p)  # type: ignore[attr-defined]
    finally:
        ranks.close()


def test_moments_of_other_weights_or_of_another_kind_are_refused() -> None:
    first = torch.nn.Linear(3, 2)
    adamw = torch.optim.AdamW(first.parameters(), 0.1)
    empty = adamw.state_dict()
    first(torch.ones(3)).sum().backward()
    adamw.step()
    fewer = torch.optim.AdamW([first.weight], 0.1)
    with pytest.raises(UserError, match="trained 2 tensors, and here are 1; resume with the sett"):
        load_optimizer(fewer, adamw.state_dict())
    other = torch.optim.SGD(first.parameters(), 0.1, momentum=0.9)  # for one with other moments
    with pytest.raises(UserError, match="moments are of adamw, not of adamw_8bit; resume with"):
        load_optimizer(other, adamw.state_dict())
    load_optimizer(other, empty)  # no step was taken: there is nothing to misread
    first(torch.ones(3)).sum().backward()
    other.step()
    with pytest.raises(UserError, match="moments are of adamw_8bit, not of adamw;"):
        load_optimizer(adamw, other.state_dict())


# With masters in fp32, steps at the papers' learning rates move the weights, and teach.
Setting = tuple[str, bool, float, float, tuple[float, float], float]


@lru_cache(maxsize=1)
def papers() -> dict[str, Recipe]:
    return {name: load_config(Recipe, name, []) for name in PAPER}


def settings_of(cfg: Recipe) -> list[Setting]:
    """List what a step of fine-tuning or RL depends on, past warm-up and before any decay."""
    sft, rl, policy = cfg.sft, cfg.rl, cfg.policy
    betas = (rl.beta1, rl.beta2)
    return [
        (policy.dtype, policy.freeze_vision, sft.lr, sft.weight_decay, (0.9, 0.999), sft.clip),
        (policy.dtype, policy.freeze_vision, rl.lr, rl.weight_decay, betas, rl.clip),
    ]


def test_each_full_parameter_recipe_of_the_papers_takes_a_step_that_moves_its_weights() -> None:
    full = {name: cfg for name, cfg in papers().items() if cfg.policy.lora.rank == 0}
    assert len(full) > 30
    assert all(cfg.rl.optimizer == "adamw" for cfg in full.values())
    assert all(cfg.policy.dtype == "bfloat16" for cfg in full.values())
    moved = {setting: _moves(*setting) for cfg in full.values() for setting in settings_of(cfg)}
    assert {setting[2] for setting in moved} == {1e-5, 1e-6}, "the papers' learning rates"
    for setting, kinds in moved.items():
        for kind, (changed, counted, rest) in kinds.items():
            assert changed >= 0.99 * counted, (setting, kind)
            assert counted > 100 and rest <= 0.01 * counted, (setting, kind)


@lru_cache
def _moves(
    dtype: str, frozen: bool, lr: float, decay: float, betas: tuple[float, float], clip: float
) -> dict[str, tuple[int, int, int]]:
    """Count, of norms' and other weights, how many of those with |gradient| >= 1e-8, as the
    optimiser sees it, one step changes, how many there are, and how many others."""
    policy = with_masters(dtype, freeze_vision=frozen)
    before = whole(policy)
    optimizer = adamw(policy.model, lr, decay, betas)
    backward(policy)
    torch.nn.utils.clip_grad_norm_(policy.model.parameters(), clip)
    large = {n: g.abs() >= 1e-8 for n, g in whole_gradients(policy).items()}
    apply_step(optimizer, clip_gradients(policy.model.parameters(), 0.0), lr)
    after = whole(policy)
    found = {}
    for kind in ("norm", "other"):
        names = [n for n in large if ("norm" in n) == (kind == "norm")]
        changed = sum(int((after[n] != before[n])[large[n]].sum()) for n in names)
        counted = sum(int(large[n].sum()) for n in names)
        found[kind] = changed, counted, sum(large[n].numel() for n in names) - counted
    return found


def test_sixty_steps_go_as_far_as_those_of_fp32() -> None:
    apart = {}
    for dtype in (torch.float32, torch.bfloat16):
        policy = with_masters(dtype)
        start = whole(policy)
        optimizer = adamw(policy.model, 1e-6, 0.01)
        groups = groups_of(policy, SAMPLED[1:], edited=False)
        for _ in range(60):
            backward(policy, groups=groups)
            apply_step(optimizer, clip_gradients(policy.model.parameters(), 1.0), 1e-6)
        end = whole(policy)
        apart[dtype] = torch.cat([(end[n] - start[n]).double().flatten() for n in start])
    wanted, found = apart[torch.float32], apart[torch.bfloat16]
    assert found.norm() >= 0.9 * wanted.norm()
    assert found @ wanted >= 0.9 * wanted.square().sum(), "and in the same direction"


def test_the_optimiser_is_the_recipes() -> None:
    model = tiny_policy().model
    rl = recipe("rl.lr=0.5", "rl.weight_decay=0.1", "rl.beta2=0.99").rl
    optimizer = optimizer_of(model, rl)
    assert isinstance(optimizer, torch.optim.AdamW)
    assert [g["weight_decay"] for g in optimizer.param_groups] == [0.1, 0.0]
    assert all(g["betas"] == (0.9, 0.99) and g["lr"] == 0.5 for g in optimizer.param_groups)


def test_eight_bits_without_their_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UserError, match="rl.optimizer=adamw_8bit needs the package bitsandbytes"):
        optimizer_of(tiny_policy().model, recipe("rl.optimizer=adamw_8bit").rl)


def test_eight_bits_train_the_same_parameters_and_go_on_from_a_checkpoint(tmp_path: Path) -> None:
    pytest.importorskip("bitsandbytes")
    settings = recipe("rl.optimizer=adamw_8bit", "rl.lr=0.01", "rl.weight_decay=0.5").rl

    def stepped(optimizer: torch.optim.Optimizer, policy: Policy) -> dict[str, torch.Tensor]:
        loss, _ = sft_loss(policy, PromptLoader(policy, "short").batch(studies(2)), studies(2))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return {n: p.detach().clone() for n, p in policy.model.named_parameters()}

    policy = tiny_policy()
    before = {n: p.detach().clone() for n, p in policy.model.named_parameters()}
    optimizer = optimizer_of(policy.model, settings)
    assert [g["weight_decay"] for g in optimizer.param_groups] == [0.5, 0.0], "matrices alone"
    once = stepped(optimizer, policy)
    changed = [name for name, value in once.items() if not torch.equal(value, before[name])]
    assert any(n.endswith("mlp.up_proj.weight") for n in changed)
    write_checkpoint(tmp_path / "kept", {"optimizer": optimizer.state_dict(), "weights": once})
    twice = stepped(optimizer, policy)

    again = tiny_policy()
    saved = load_checkpoint(tmp_path / "kept").state
    load_weights(again, saved["weights"])
    second = optimizer_of(again.model, settings)
    load_optimizer(second, saved["optimizer"])
    resumed = stepped(second, again)
    assert [n for n, value in twice.items() if not torch.equal(value, resumed[n])] == []
