"""EditGRPO: half of each group is sampled, the other half is one edit of each sampled report.

The edit moves a report one sentence towards the reference (rules a to e of the paper); an edit
that changes nothing is no member of the group. Advantages are rewards minus the group's mean
over sampled and edited members alike.
"""

from __future__ import annotations

from collections import Counter

from rrgkern import philox_seed
from rrgtrain.algorithms.base import Algorithm, Complete, Reencode, centred, loss_of
from rrgtrain.algorithms.edits import Edited, edit_reports
from rrgtrain.algorithms.group import Group, Member
from rrgtrain.clinical import Extractor, build_extractor
from rrgtrain.errors import UserError
from rrgtrain.schema import Recipe


def build(recipe: Recipe, extractor: Extractor | None = None) -> Algorithm:
    """EditGRPO; UserError for a group that cannot be paired or edits that make no sense."""
    if recipe.rl.group % 2:
        raise UserError(
            f"rl.group={recipe.rl.group} is odd, but EditGRPO pairs each sampled report with "
            f"its edit; use rl.group={recipe.rl.group + 1}"
        )
    if recipe.reward.against == "labels":
        raise UserError(
            "rl.algorithm=editgrpo edits towards a reference report, but reward.against=labels "
            "means the data has none; use rl.algorithm=dr_grpo"
        )
    extractor = extractor or build_extractor(recipe.reward.extractor)
    try:
        # the options are checked by the planner itself, here rather than after a rollout
        edit_reports([], [], [], extractor, recipe.edit)
    except ValueError as error:
        raise UserError(f"edit: {error}") from error
    return Algorithm(
        name="editgrpo",
        sampled=recipe.rl.group // 2,
        complete=edits(recipe, extractor),
        advantages=centred(recipe.rl.std),
        loss=loss_of(recipe),
        needs_reports=True,
    )


def edits(recipe: Recipe, extractor: Extractor) -> Complete:
    """Completes groups with the edits of their sampled members; logs the edits by rule."""

    def complete(
        groups: list[Group], step: int, reencode: Reencode
    ) -> tuple[list[Group], dict[str, float]]:
        reports, references, seeds = [], [], []
        for group in groups:
            for k, member in enumerate(group.members):
                reports.append(member.text)
                references.append(group.study.report or "")
                seeds.append(philox_seed(recipe.seed, step, group.index, k))
        edited = iter(edit_reports(reports, references, seeds, extractor, recipe.edit))
        completed = []
        counts: Counter[str] = Counter()
        for group in groups:
            extra = []
            for k, member in enumerate(group.members):
                edit = next(edited)
                counts.update(rule for rule, _, _ in edit.steps)
                if edit.text == member.text:
                    counts["unchanged"] += 1
                    continue
                extra.append(_edited_member(member, k, edit, reencode))
            completed.append(group.with_members(extra))
        return completed, {f"edits/{name}": float(n) for name, n in sorted(counts.items())}

    return complete


def _edited_member(member: Member, parent: int, edit: Edited, reencode: Reencode) -> Member:
    return Member(
        ids=reencode(member.ids, edit.text, edit.first_changed),
        text=edit.text,
        origin="edited",
        parent=parent,
        steps=edit.steps,
    )
