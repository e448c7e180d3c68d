"""Sample half of each group, and add one edit of each sampled report (EditGRPO).

The edit moves a report one sentence towards the reference (rules a to e of the paper); an edit
that changes nothing is no member of the group, and of a report without an end only the whole
sentences are edited. Advantages are rewards minus the group's mean
over sampled and edited members alike. With `edit.level=paragraph` (the paper's "para") one member
of each group is the whole reference in place of a sampled report, and nothing else is edited.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from rrgclinical import Extractor
from rrgdata.study import Study
from rrgkern import philox_seed
from rrgpolicy.ranks import ranks
from rrgtrain.algorithms.base import (
    Algorithm,
    Complete,
    Completed,
    Reencode,
    chain,
    keep_all,
    refuse_blocks,
    with_reference,
)
from rrgtrain.algorithms.edits import edit_reports, whole_sentences
from rrgtrain.algorithms.group import Group, Member
from rrgtrain.errors import UserError
from rrgtrain.rewards.labellers import open_extractor
from rrgtrain.schema import EditSettings, RewardSettings


def build(settings: EditSettings, reward: RewardSettings, seed: int, inner: Algorithm) -> Algorithm:
    """EditGRPO; UserError for a group that cannot be paired or edits that make no sense."""
    own: Complete
    extractor: Extractor | None = None
    why = "EditGRPO edits the whole text, tags too, towards references without any"
    refuse_blocks(reward.blocks, why)
    if settings.level == "paragraph":
        sampled, own = inner.sampled - 1, whole_reference
    else:
        if inner.sampled % 2:
            raise UserError(
                f"rl.group={inner.sampled} is odd, but EditGRPO pairs each sampled report with "
                f"its edit; use rl.group={inner.sampled + 1}"
            )
        extractor = open_extractor(reward, settings.extractor)
        try:
            # the options are checked by the planner itself, here rather than after a rollout
            edit_reports([], [], [], extractor, settings)
        except ValueError as error:
            raise UserError(f"edit: {error}") from error
        sampled, own = inner.sampled // 2, edits(settings, seed, extractor)

    def check(studies: Sequence[Study]) -> None:
        inner.check(studies)
        if extractor is not None and ranks.is_main():
            require_entities(extractor, studies)

    return replace(
        inner,
        sampled=sampled,
        complete=chain(inner.complete, own),
        leaves_out=keep_all if settings.keep == "all" else worse_edits,
        needs_reports=True,
        check=check,
    )


def require_entities(extractor: Extractor, studies: Sequence[Study], look_at: int = 64) -> None:
    """UserError where the first references hold no entity that an edit could be made towards."""
    references = [study.report for study in studies if study.report][:look_at]
    if references and not (extractor.extract(references).presence >= 0).any():
        raise UserError(
            f"rl.algorithm=editgrpo edits towards entities, but the extractor finds none in the "
            f"first {len(references)} reference reports; use another reward.extractor, or "
            "rl.algorithm=dr_grpo"
        )


def whole_reference(groups: list[Group], step: int, reencode: Reencode) -> Completed:
    """Completes each group with its reference report, a member like any other ("para")."""
    completed = [with_reference(group, reencode, "edited") for group in groups]
    return completed, {"edits/paragraph": float(len(groups))}


def edits(settings: EditSettings, seed: int, extractor: Extractor) -> Complete:
    """Completes groups with the edits of their sampled members; logs the edits by rule."""

    def complete(groups: list[Group], step: int, reencode: Reencode) -> Completed:
        reports, references, seeds = [], [], []
        for group in groups:
            for k, member in _sampled(group):
                reports.append(member.text if member.finished else whole_sentences(member.text))
                references.append(group.study.report or "")
                seeds.append(philox_seed(seed, step, group.index, k))
        edited = iter(edit_reports(reports, references, seeds, extractor, settings))
        completed = []
        counts: Counter[str] = Counter()
        texts = iter(reports)
        for group in groups:
            extra = []
            for k, member in _sampled(group):
                edit = next(edited)
                counts.update(rule for rule, _, _ in edit.steps)
                if edit.text == next(texts):
                    counts["unchanged"] += 1
                    continue
                ids = reencode(member.ids, edit.text, edit.first_changed)
                extra.append(Member(ids, edit.text, "edited", parent=k, steps=edit.steps))
            completed.append(group.with_members(extra))
        return completed, {f"edits/{name}": float(n) for name, n in sorted(counts.items())}

    return complete


def worse_edits(groups: list[Group], totals: np.ndarray) -> np.ndarray:
    """Find edits that earn less than the report they change; bool `[scored]`.

    totals: float64 `[scored]`. The edit of a report without a reward stays.
    """
    rows, worse = iter(totals.tolist()), []
    for group in groups:
        earned = {k: next(rows) for k, m in enumerate(group.members) if m.scored}
        for k, reward in earned.items():
            parent = group.members[k].parent
            worse.append(parent is not None and reward < earned.get(parent, reward))
    return np.array(worse, dtype=bool)


def _sampled(group: Group) -> list[tuple[int, Member]]:
    """Place and member of what the policy wrote itself: no edit is edited, and no oracle."""
    return [(k, m) for k, m in enumerate(group.members) if m.origin == "sampled"]
