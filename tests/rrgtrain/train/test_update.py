"""The update equals a plain one: members one at a time, whole logits, the loss written out."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from unittest.mock import Mock

import pytest
import torch

from rrgkern import top_entropy_weight
from rrgkern.policy_loss.spec import SURROGATES
from rrgpolicy.model.policy import Policy
from rrgtrain.algorithms import Group, build_algorithm
from rrgtrain.algorithms.group import Objective, members
from rrgtrain.schema import Recipe
from rrgtrain.train import Batch, Gradients
from rrgtrain.train import gradients as gradients_module
from tests.rrgpolicy.model.common import REPORTS, text_policy, tiny_policy
from tests.rrgtrain.algorithms import plain as paper
from tests.rrgtrain.common import accumulate, gradients, groups_of, recipe

# Four groups of unequal prompts and reports; the third has members that all earn the same.
TEXTS = [
    [REPORTS[0], "Lungs are clear.", "No effusion. Heart size is normal."],
    ["Edema.", REPORTS[3], "Right effusion."],
    ["Clear.", "Lungs clear."],
    [REPORTS[1], REPORTS[2], "Possible pneumonia in the left lung. Devices unchanged.", "Heart."],
]
LIMIT = 48
# The scale and the advantages are fp32; everything else is fp64.
CLOSE = 1e-6

VARIANTS = {
    "dr_grpo": ["rl.aggregation=dr_grpo", "rl.std=none"],
    "grpo": ["rl.aggregation=grpo", "rl.std=sample"],
    "dapo": ["rl.aggregation=dapo", "rl.std=population"],
    "bnpo": ["rl.aggregation=bnpo", "rl.std=none"],
    "sum": ["rl.aggregation=sum", "rl.std=none"],
    "luspo": ["rl.surrogate=luspo", "rl.ratio_level=sequence", "rl.aggregation=sum"],
    "gmpo": ["rl.surrogate=gmpo", "rl.ratio_level=sequence"],
} | {name: [f"rl.surrogate={name}"] for name in ("cispo", "sapo", "reinforce", "vespo")}


def variant(name: str, beta: float, *overrides: str) -> Recipe:
    settings = [*VARIANTS[name], f"rl.beta={beta}", f"rl.max_new_tokens={LIMIT}"]
    return recipe("rl.algorithm=dr_grpo", *settings, "rl.temperature=0.7", *overrides)


def chunks_of(groups: list[Group], budget: int) -> list[list[Group]]:
    """The groups of each micro-batch."""
    batch = Batch.of(groups, torch.zeros(len(members(groups))), recipe().rl)
    return [micro.groups for micro in batch.micro_batches(budget, keep_all=True)]


def rewards_of(groups: list[Group]) -> torch.Tensor:
    """A reward by the text alone, the same for all members of the third group."""
    values = []
    for g, group in enumerate(groups):
        values += [0.25 if g == 2 else len(m.text) % 17 / 7 for m in group.members]
    return torch.tensor(values, dtype=torch.float64)


def reference_of(policy: Callable[..., Policy] = tiny_policy) -> Policy:
    other = policy(dtype=torch.float64)
    with torch.no_grad():
        for n, p in enumerate(other.model.parameters()):
            p.mul_(1.0 + 0.02 * (n % 5))
    return replace(other, model=other.model.requires_grad_(False))


def fused(
    policy: Policy, reference: Policy | None, groups: list[Group], cfg: Recipe
) -> tuple[Gradients, dict[str, torch.Tensor]]:
    algorithm = build_algorithm(cfg)
    advantages = algorithm.advantages(groups, rewards_of(groups))
    update = accumulate(policy, reference, groups, advantages, algorithm.loss, cfg.rl)
    return update, gradients(policy)


def plain_advantages(groups: list[Group], std: str) -> list[float]:
    parts = rewards_of(groups).split([len(group.members) for group in groups])
    return [value for part in parts for value in paper.centred(part.tolist(), std)]


def plain(
    policy: Policy, reference: Policy | None, groups: list[Group], cfg: Recipe
) -> tuple[float, dict[str, torch.Tensor]]:
    rl = cfg.rl
    reports = paper.Reports(policy, reference or policy, groups, temperature=rl.temperature)
    advantages = plain_advantages(groups, rl.std)
    flat = [m for group in groups for m in group.members]
    lengths = [len(m.ids) for m in flat]
    loss = torch.zeros((), dtype=torch.float64)
    for m, advantage, length in zip(flat, advantages, lengths, strict=True):
        scale = {
            "dr_grpo": 1 / (len(flat) * rl.max_new_tokens),
            "grpo": 1 / (len(flat) * length),
            "dapo": 1 / sum(lengths),
            "bnpo": 1 / sum(lengths),
            "sum": 1 / len(flat),
        }[rl.aggregation]
        tokens = reports.surrogate(m, [advantage] * length, rl.eps_low)
        loss = loss + scale * (tokens + rl.beta * reports.k3(m)).sum()
    loss.backward()
    return loss.item(), gradients(policy)


def assert_equal(one: tuple, two: tuple, close: float = CLOSE) -> None:
    loss, other = (x.loss if isinstance(x, Gradients) else x for x in (one[0], two[0]))
    assert loss == pytest.approx(other, rel=close, abs=close / 10)
    left, right = one[1], two[1]
    assert set(left) == set(right) and left
    largest = max(float(g.abs().max()) for g in right.values())
    for name, gradient in left.items():
        torch.testing.assert_close(
            gradient, right[name], rtol=close, atol=close * largest, msg=lambda m, n=name: n + m
        )


def test_ranks_exchange_numbers_and_no_log_probabilities(monkeypatch) -> None:
    """A view of what was read would carry all of it to every other rank."""
    sizes = []

    def gathered(value: object) -> list[object]:
        sizes.append(len(pickle.dumps(value)))
        return [value]

    monkeypatch.setattr("rrgpolicy.ranks.ranks.gather", gathered)
    policy = tiny_policy(dtype=torch.float64)
    fused(policy, None, groups_of(policy, TEXTS, edited=False), variant("dr_grpo", 0.0))
    assert sizes and max(sizes) < 1000


@lru_cache
def the_plain_one(name: str, beta: float, edited: bool) -> tuple[float, dict[str, torch.Tensor]]:
    policy = tiny_policy(dtype=torch.float64)
    reference = reference_of() if beta else None
    return plain(policy, reference, groups_of(policy, TEXTS, edited=edited), variant(name, beta))


def ours(
    name: str, beta: float, edited: bool, budget: int = 150
) -> tuple[Gradients, dict[str, torch.Tensor]]:
    policy = tiny_policy(dtype=torch.float64)
    reference = reference_of() if beta else None
    groups = groups_of(policy, TEXTS, edited=edited)
    assert len(chunks_of(groups, budget)) > 1
    return fused(policy, reference, groups, variant(name, beta, f"rl.token_budget={budget}"))


@pytest.mark.parametrize(
    ("name", "beta", "edited"),
    [
        ("dr_grpo", 0.0, False),
        ("dr_grpo", 0.01, True),
        ("dr_grpo", 0.0, True),
        ("grpo", 0.01, False),
        ("grpo", 0.0, True),
        ("dapo", 0.01, True),
        ("bnpo", 0.0, False),
        # at 0.01 a mistake of a few per cent in the KL would pass
        ("sum", 2.0, True),
    ],
)
def test_loss_and_gradient_equal_the_plain_ones(name: str, beta: float, edited: bool) -> None:
    assert_equal(ours(name, beta, edited), the_plain_one(name, beta, edited))


def test_they_do_for_a_policy_of_text_alone() -> None:
    policy, reference = text_policy(dtype=torch.float64), reference_of(text_policy)
    groups = groups_of(policy, TEXTS, edited=True, images=False)
    cfg = variant("dr_grpo", 0.01, "rl.token_budget=150")
    assert len(chunks_of(groups, 150)) > 1
    wanted = plain(policy, reference, groups, cfg)
    assert wanted[1].keys() == dict(policy.model.named_parameters()).keys()
    assert_equal(fused(policy, reference, groups, cfg), wanted)


@pytest.mark.parametrize(
    ("name", "budget", "beta"),
    [("dr_grpo", n, beta) for n in (1, 120, 200, 10**6) for beta in (0.0, 0.01)]
    + [(surrogate, 120, 0.01) for surrogate in SURROGATES if surrogate != "clip"],
)
def test_the_budget_of_a_micro_batch_changes_nothing(name: str, budget: int, beta: float) -> None:
    policy = tiny_policy(dtype=torch.float64)
    reference = reference_of() if beta else None
    groups = groups_of(policy, TEXTS, edited=True)
    whole = fused(policy, reference, groups, variant(name, beta, "rl.token_budget=1000000"))
    cut = fused(policy, reference, groups, variant(name, beta, f"rl.token_budget={budget}"))
    assert_equal(cut, whole, 1e-11)
    assert cut[0].metrics == pytest.approx(whole[0].metrics, rel=1e-6)


@pytest.mark.parametrize("budget", [1, 10**6])
def test_tokens_are_chosen_by_the_entropy_of_the_whole_update(budget: int) -> None:
    policy = tiny_policy(dtype=torch.float64)
    groups = groups_of(policy, TEXTS, edited=True)
    flat = [(group, m) for group in groups for m in group.members]
    with torch.no_grad():
        rows = [paper.distributions(policy, group, m.ids, 0.7) for group, m in flat]
    entropy = torch.cat([-(row.exp() * row).sum(-1) for row in rows])
    weight = top_entropy_weight(entropy, 0.2)
    cfg = variant("grpo", 0.0, f"rl.token_budget={budget}")
    own = variant("grpo", 0.0, f"rl.token_budget={budget}", "rl.top_entropy_quantile=0.2")
    algorithm = build_algorithm(cfg)
    advantages = algorithm.advantages(groups, rewards_of(groups))
    by_hand = accumulate(
        policy, None, groups, Objective(advantages, weight=weight), algorithm.loss, cfg.rl
    )
    slopes = gradients(policy)
    assert_equal(fused(policy, None, groups, own), (by_hand, slopes), 1e-9)
    with pytest.raises(AssertionError):
        assert_equal(fused(policy, None, groups, cfg), (by_hand, slopes), 1e-3)


def test_micro_batches_keep_groups_whole_and_within_the_budget() -> None:
    groups = groups_of(tiny_policy(), TEXTS, edited=True)
    sizes = [len(g.prompt.input_ids) + sum(len(m.ids) for m in g.members) for g in groups]
    for budget in (1, sizes[0], sizes[0] + sizes[1], sum(sizes) - 1, sum(sizes)):
        chunks = chunks_of(groups, budget)
        assert [g for chunk in chunks for g in chunk] == groups
        for chunk in chunks:
            total = sum(sizes[groups.index(g)] for g in chunk)
            assert total <= budget or len(chunk) == 1
    assert [len(c) for c in chunks_of(groups, sum(sizes))] == [4]
    assert [len(c) for c in chunks_of(groups, 1)] == [1, 1, 1, 1]


def test_members_of_advantage_zero_are_left_out_and_change_nothing(monkeypatch):
    policy = tiny_policy(dtype=torch.float64)
    groups = groups_of(policy, TEXTS, edited=True)
    cfg = variant("dr_grpo", 0.0)
    forward = Mock(wraps=gradients_module._forward)
    monkeypatch.setattr(gradients_module, "_forward", forward)
    lean = fused(policy, None, groups, cfg)
    forwarded = [m.text for call in forward.call_args_list for g in call.args[1] for m in g.members]
    assert not set(forwarded) & {m.text for m in groups[2].members}
    assert len(forwarded) == sum(len(groups[g].members) for g in (0, 1, 3))
    assert lean[0].metrics["scored_tokens"] < sum(len(m.ids) for g in groups for m in g.members)

    micro_batches = Batch.micro_batches

    def everything(batch, token_budget, *, keep_all):
        return micro_batches(batch, token_budget, keep_all=True)

    monkeypatch.setattr(Batch, "micro_batches", everything)
    full = fused(policy, None, groups, cfg)
    assert_equal(lean, full, 1e-11)


def test_all_of_them_zero_gives_no_gradient_and_no_metrics() -> None:
    policy = tiny_policy()
    groups = groups_of(policy, [TEXTS[2]], edited=False)
    cfg = variant("dr_grpo", 0.0)
    loss = build_algorithm(cfg).loss
    update = accumulate(policy, None, groups, torch.zeros(2), loss, cfg.rl)
    assert update.loss == 0.0 and update.metrics == {"loss": 0.0, "scored_tokens": 0.0}
    assert not gradients(policy)
