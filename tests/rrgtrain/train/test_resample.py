"""Further prompts until enough groups differ: which groups stay, and what is left of the rest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from rrgtrain.algorithms import Group, build_algorithm
from rrgtrain.errors import UserError
from rrgtrain.train import batch_row, zero_variance
from rrgtrain.train.batch import joined
from rrgtrain.train.resample import differing, until_differing
from tests.rrgpolicy.model.common import REPORTS, prompt, tiny_policy
from tests.rrgtrain.common import (
    Batch,
    member,
    policy_and_prompts,
    recipe,
    run_of,
    sampled,
    studies,
)
from tests.rrgtrain.train.loops import Plain, trained

POLICY = tiny_policy()
ENCODED = prompt(POLICY, "s", 0)


def batch(first: int, *totals: Sequence[float], notes: bool = False) -> Batch:
    """Groups with these rewards; an unscored oracle closes every second one."""
    groups, listed = [], []
    for g, values in enumerate(totals):
        own = [member(POLICY, REPORTS[(g + k) % 3]) for k in range(len(values))]
        if g % 2:
            own.append(member(POLICY, REPORTS[0], "oracle", scored=False))
        groups.append(Group(first + g, studies(1)[0], ENCODED, tuple(own)))
        listed += values
    scores = {"total": np.array(listed), "half": np.array(listed) / 2}
    kept = [{"value": value} for value in listed]
    return Batch(groups, list(groups), {"edits/all": 1.0}, scores, {"term": kept} if notes else {})


ROUNDS = (
    batch(0, [1, 1], [0, 2, 2], [3, 3], notes=True),
    batch(10, [1, 1], [4, 4], [0, 0, 0]),
    batch(20, [5, 6], [7, 7], [8, 9], [1, 0], notes=True),
)


def test_rounds_are_joined_with_what_they_are_compared_by() -> None:
    """Equal sums of terms that differ (GDPO) are not drawn anew."""
    scores = {**ROUNDS[0].scores, "turn": np.arange(7.0)}
    traded = replace(ROUNDS[0], scores=scores, compared=("total", "turn"))
    assert differing(traded) == [0, 1, 2] and differing(joined([traded, traded])) == list(range(6))


@pytest.mark.parametrize(
    ("wanted", "rounds", "left", "drawn"),
    [
        (1, 5, [1], 3),
        (2, 5, [1, 20], 10),
        (3, 5, [1, 20, 22], 10),
        (4, 2, [1, 20, 22, 23], 10),
        (9, 2, [1, 20, 22, 23], 10),  # too few at the end of the rounds
        (2, 1, [1], 6),
    ],
)
def test_so_many_as_are_wanted_stay_in_the_order_of_the_draw(wanted, rounds, left, drawn):
    asked: list[int] = []

    def draw(again: int) -> Batch:
        asked.append(again)
        return ROUNDS[again]

    made = until_differing(draw, wanted, rounds)
    assert [group.index for group in made.groups] == left
    assert asked == list(range(len(asked))) and len(made.sampled) == drawn
    assert made.counts["resample/rounds"] == len(asked) - 1
    assert made.counts["edits/all"] == len(asked)
    assert made.counts["resample/left_out"] == drawn - len(left)
    equal = sum(len(ROUNDS[a].groups) - len(differing(ROUNDS[a])) for a in asked)
    assert zero_variance(made) == equal
    assert batch_row(made)["zero_variance"] == equal / drawn
    # scores and notes are those of the groups that stayed
    values = {1: [0, 2, 2], 20: [5, 6], 22: [8, 9], 23: [1, 0]}
    wanted_values = [value for index in left for value in values[index]]
    assert made.scores["total"].tolist() == wanted_values
    assert made.scores["half"].tolist() == [value / 2 for value in wanted_values]
    assert [note["value"] for note in made.notes["term"]] == wanted_values
    assert int(made.scored.sum()) == len(wanted_values)


def test_where_none_differs_the_first_round_is_the_batch() -> None:
    flat = [batch(0, [1, 1]), batch(10, [2, 2])]
    made = until_differing(flat.__getitem__, 1, 1)
    assert [group.index for group in made.groups] == [0] and len(made.sampled) == 2
    assert zero_variance(made) == 2


class Rewards(Plain):
    """Rewards that differ for one study in three only."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __call__(self, texts, chosen, progress=0.0):
        self.seen += [study.id for study in chosen]
        flat = [study.id.endswith(("1", "2", "4", "5")) for study in chosen]
        values = [1.0 if f else float(i % 2) for i, f in enumerate(flat)]
        return {"total": np.array(values)}


def test_a_run_trains_on_full_batches(tmp_path) -> None:
    def run(resample: int):
        cfg = recipe("rl.algorithm=dr_grpo", f"rl.resample={resample}", "rl.prompts=2")
        rewards = Rewards()
        _, _, rows, _ = trained(tmp_path / str(resample), cfg, rewards=rewards, given=studies(6))
        return rewards, [row for row in rows if "reward/total" in row]

    rewards, logged = run(0)
    assert len(rewards.seen) == 2 * 2 * 4 and "resample/rounds" not in logged[0]
    rewards, logged = run(6)
    assert all(row["resample/rounds"] >= 1 for row in logged)
    for row in logged:
        drawn = 2 * (row["resample/rounds"] + 1)
        assert row["resample/left_out"] == drawn - 2
        assert row["zero_variance"] == pytest.approx(row["resample/equal"] / drawn)


def test_orapo_needs_the_groups_that_earn_nothing() -> None:
    with pytest.raises(UserError, match=r"rl.resample=2 leaves out .* rl.resample=0"):
        build_algorithm(recipe("rl.algorithm=orapo", "rl.resample=2"))


def test_further_prompts_of_a_step_are_of_no_other_step() -> None:
    policy, prompts = policy_and_prompts()
    cfg = recipe("rl.steps=3", "rl.prompts=2", "rl.resample=1")
    of_run = run_of(policy, prompts, studies(24), cfg)
    places = [of_run.indices(step, again) for again in range(3) for step in range(3)]
    assert len({i for place in places for i in place}) == 18
    # a study that comes again is given other reports
    reports = [[m.text for m in sampled(of_run, [0], 0, again)[0].members] for again in (0, 1, 2)]
    assert len(set(map(tuple, reports))) == 3
