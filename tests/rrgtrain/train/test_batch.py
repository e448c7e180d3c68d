"""A batch tells advantages of members from those of tokens, and leaves out cut reports."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rrgdata.study import Study
from rrgtrain.algorithms import Group, Member, build_algorithm
from rrgtrain.errors import UserError
from rrgtrain.train import Batch, batch_row, reward_rows, zero_variance
from rrgtrain.train.loader import batch_indices
from tests.rrgpolicy.model.common import REPORTS, tiny_policy
from tests.rrgtrain.common import (
    accumulate,
    gradients,
    groups_of,
    policy_and_prompts,
    recipe,
    rollout_logps,
    run_of,
    sampled,
    studies,
    unscored,
)
from tests.rrgtrain.train.loops import trained

SETTINGS = recipe("rl.algorithm=dr_grpo").rl


def lengths_of(*lengths: tuple[int, ...]) -> list[Group]:
    """Groups of members with so many tokens."""
    groups = groups_of(tiny_policy(), [["x"] * len(own) for own in lengths], edited=False)
    return [
        replace(
            group,
            members=tuple(
                replace(m, ids=torch.arange(5, 5 + n))
                for m, n in zip(group.members, own, strict=True)
            ),
        )
        for group, own in zip(groups, lengths, strict=True)
    ]


def test_advantages_are_what_their_shape_says_in_the_whole_and_in_every_part() -> None:
    """Also where a batch, or a part of it, has as many tokens as members."""
    wrong = []
    for lengths in itertools.product(((2, 0), (1, 1), (3, 2), (0, 4)), repeat=2):
        groups = lengths_of(*lengths)
        each = torch.tensor([n for own in lengths for n in own])
        members = torch.arange(1.0, 1 + len(each))
        tokens = torch.arange(1.0, 1 + int(each.sum()))
        spread = members.repeat_interleave(each)
        given = [(members, spread), (members[:, None], spread), (tokens[None], tokens)]
        given += [(tokens, tokens)] if len(tokens) != len(members) else []
        for advantages, wanted in given:
            whole = Batch.of(groups, advantages, SETTINGS)
            first = int(each[:2].sum())
            expected = {(0,): wanted[:first], (1,): wanted[first:], (0, 1): wanted}
            found = {chosen: whole.part(list(chosen), SETTINGS).advantages for chosen in expected}
            same = all(torch.equal(found[chosen], own) for chosen, own in expected.items())
            if not (same and torch.equal(whole.advantages, wanted)):
                wrong.append((lengths, tuple(advantages.shape)))
    assert not wrong


@pytest.mark.parametrize("shape", [(3,), (2, 2), (1, 2), (5, 1), ()])
def test_advantages_of_another_shape_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(UserError, match="wanted 2, one per member, or 5, one per token"):
        Batch.of(lengths_of((3, 2)), torch.zeros(shape), SETTINGS)


# The order of the studies: seeded permutations, one an epoch.
sizes = st.tuples(st.integers(1, 40), st.integers(1, 60), st.integers(0, 2**31))


@given(sizes)
def test_every_epoch_is_a_permutation(drawn: tuple[int, int, int]) -> None:
    count, batch, seed = drawn
    steps = -(-3 * count // batch)
    stream = [i for step in range(steps) for i in batch_indices(count, batch, step, seed)]
    for epoch in range(3):
        assert sorted(stream[epoch * count : (epoch + 1) * count]) == list(range(count))


@given(sizes, st.integers(0, 50))
def test_a_step_is_a_slice_of_one_stream(drawn: tuple[int, int, int], step: int) -> None:
    count, batch, seed = drawn
    stream = batch_indices(count, (step + 1) * batch, 0, seed)
    assert batch_indices(count, batch, step, seed) == stream[step * batch :]


def test_seeds_and_epochs_differ() -> None:
    first = batch_indices(30, 30, 0, 0)
    assert first != sorted(first)
    assert first != batch_indices(30, 30, 0, 1)
    assert first != batch_indices(30, 30, 1, 0)


# Test the reward rows of a step's log: which reports each number is over.
def group(index: int, *origins: str) -> Group:
    """Members of two tokens, that of an oracle without a reward."""
    members = tuple(
        Member(torch.tensor([5, 6]), "x", origin, scored=origin != "oracle") for origin in origins
    )
    study = Study(f"s{index}", "train", "reference", None, ())
    return Group(index, study, None, members)  # type: ignore[arg-type]


def test_the_zero_reward_rate_is_the_share_of_sampled_reports() -> None:
    """OraPO's figure 2. Three of five here: neither the two groups of three in which nothing was
    earned, nor the five of seven reports that an edit's reward would make it."""
    groups = [
        group(0, "sampled", "sampled", "edited", "oracle"),
        group(1, "sampled"),
        group(2, "sampled", "sampled", "edited"),
    ]
    total = np.array([0.0, 0.0, 0.0, 0.0, 0.5, 1.0, 0.0])
    rows = reward_rows(Batch(groups, scores={"total": total, "facts": total / 2}))
    assert rows["zero_reward"] == pytest.approx(3 / 5)
    assert rows["zero_groups"] == pytest.approx(2 / 3)
    assert rows["reward/total"] == pytest.approx(1.5 / 7)
    assert rows["reward/facts"] == pytest.approx(0.75 / 7)
    assert rows["reward_sampled"] == pytest.approx(1.5 / 5) and rows["reward_edited"] == 0.0
    assert "reward_oracle" not in rows


def test_nothing_sampled_has_no_rate() -> None:
    rows = reward_rows(Batch([group(0, "edited")], scores={"total": np.zeros(1)}))
    assert not {"zero_reward", "zero_groups"} & set(rows)
    both = reward_rows(
        Batch([group(0, "edited"), group(1, "sampled")], scores={"total": np.zeros(2)})
    )
    assert both["zero_groups"] == 1.0


def test_a_group_without_variance_is_one_whose_competing_members_earn_the_same() -> None:
    groups = [
        group(0, "sampled", "sampled", "oracle"),
        group(1, "sampled", "edited"),
        group(2, "sampled"),
    ]
    total = np.array([0.5, 0.5, 0.5, 0.25, 0.0])
    assert zero_variance(Batch(groups, scores={"total": total})) == 2
    alone = [replace(groups[1], members=groups[1].members[:1])]
    assert zero_variance(Batch(alone, scores={"total": np.zeros(1)})) == 1


def test_what_is_cut_is_counted_among_the_sampled_reports() -> None:
    """Edits and oracles always end; masked reports are drawn and cut all the same."""
    ids = torch.tensor([5, 6, 7, 8])
    cut = Member(ids, "x", finished=False)
    for scored in (True, False):
        whole = group(0, "sampled", "edited", "edited", "oracle")
        mixed = replace(whole, members=(replace(cut, scored=scored), *whole.members))
        batch = Batch([mixed], [mixed], scores={"total": np.zeros(3 + scored)})
        row = batch_row(batch)
        assert (row["unfinished"], row["report_tokens"]) == (0.5, 3.0), scored
    alone = replace(whole, members=(replace(cut, scored=False),) * 2)
    row = batch_row(Batch([alone], [alone], scores={"total": np.zeros(0)}))
    assert row == {"zero_variance": 1.0, "unfinished": 1.0, "report_tokens": 4.0}


TEXTS = [
    [REPORTS[0], "There is no pneumo", "No effusion."],
    ["Edema.", REPORTS[3]],
    ["Clear lungs.", "Heart.", "Small left ple"],
]
CUT = {(0, 1), (2, 2)}
REWARDS = [0.3, 0.9, 0.0, 0.4, 0.7, 0.2]
# How a batch is put together, and what of the loss counts reports or tokens.
VARIANTS = [
    *(("dr_grpo", f"rl.aggregation={a}") for a in ("grpo", "bnpo", "dapo", "dr_grpo", "sum")),
    ("dr_grpo", "rl.aggregation=grpo", "rl.beta=0.1"),
    ("dr_grpo", "rl.aggregation=dapo", "rl.ratio_level=sequence", "rl.epochs=2"),
    ("ditpo", "rl.aggregation=grpo", "token_weights.kind=tfidf"),
    ("orapo", "rl.aggregation=dr_grpo"),
    ("orapo", "rl.aggregation=bnpo", "oracle.loss=sft", "rl.beta=0.1"),
]


def with_and_without() -> tuple[list[Group], list[Group]]:
    """The same groups, their cut reports masked, and without them."""
    groups = groups_of(tiny_policy(), TEXTS, edited=False)
    masked, left = [], []
    for b, group in enumerate(groups):
        own = list(enumerate(group.members))
        masked.append(
            replace(group, members=tuple(unscored(m) if (b, k) in CUT else m for k, m in own))
        )
        left.append(replace(group, members=tuple(m for k, m in own if (b, k) not in CUT)))
    return masked, left


def test_a_masked_report_is_as_one_that_was_never_drawn() -> None:
    """In loss, gradient, and tokens, with each aggregation and however the batch is cut."""
    policy, reference = (tiny_policy(dtype=torch.float64) for _ in range(2))
    with torch.no_grad():
        for parameter in reference.model.parameters():
            parameter.mul_(1.05)
    wrong = []
    for name, *words in VARIANTS:
        found = []
        for budget in (1, 16384):
            cfg = recipe(f"rl.algorithm={name}", f"rl.token_budget={budget}", *words)
            for groups in with_and_without():
                algorithm = build_algorithm(cfg)
                whole = algorithm.complete(groups, 0, policy.codec.reencode_from)[0]
                rewards = Batch(whole, scores={"total": np.array(REWARDS)}).rewards
                objective = algorithm.advantages(whole, rewards)
                kept = reference if cfg.rl.beta or algorithm.needs_reference else None
                given = (policy, kept, whole, objective, algorithm.loss, cfg.rl)
                fixed = rollout_logps(*given) if cfg.rl.epochs > 1 else None
                update = accumulate(*given, fixed=fixed)
                found.append((update.loss, update.tokens, gradients(policy)))
        for loss, tokens, grown in found[1:]:
            first = found[0]
            same = grown.keys() == first[2].keys() and all(
                torch.allclose(g, first[2][n], rtol=1e-9, atol=1e-12) for n, g in grown.items()
            )
            if loss != pytest.approx(first[0], rel=1e-9) or tokens != first[1] or not same:
                wrong.append((name, *words))
    assert not wrong
    assert any(g.any() for g in grown.values())


@pytest.mark.parametrize("treatment", ["score", "mask"])
def test_the_limit_cuts_and_the_setting_says_what_becomes_of_it(treatment: str) -> None:
    policy, prompts = policy_and_prompts()
    cfg = recipe("rl.algorithm=dr_grpo", f"rl.truncated={treatment}", "rl.max_new_tokens=3")
    drawn = sampled(run_of(policy, prompts, studies(3), cfg), [0, 1, 2], 0)
    ends = [(m.finished, m.scored) for group in drawn for m in group.members]
    assert (False, treatment == "score") in ends
    assert all(scored == (finished or treatment == "score") for finished, scored in ends)


@pytest.mark.parametrize("algorithm", ["dr_grpo", "editgrpo", "orapo", "ditpo"])
def test_steps_in_which_every_report_is_cut_go_on(algorithm: str, tmp_path: Path) -> None:
    policy = tiny_policy()
    policy.eos_ids = (10**9,)  # nothing ends
    words = ["rl.truncated=mask", "rl.beta=0.01", "rl.aggregation=dapo"]
    cfg = recipe(f"rl.algorithm={algorithm}", "token_weights.kind=tfidf", *words)
    _, _, logged, _ = trained(tmp_path / "run", cfg, policy=policy)
    rows = [row for row in logged if row["phase"] == algorithm]
    assert len(rows) == 2 and all(row["unfinished"] == 1.0 for row in rows)
    assert not any(np.isnan(v) for row in rows for v in row.values() if isinstance(v, float))
