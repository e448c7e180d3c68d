"""Sample half of each group, and add one edit of each sampled report (EditGRPO).

The edit moves a report one sentence towards the reference (rules a to e of the paper); an edit
that changes nothing is no member of the group, and of a report without an end only the whole
sentences are edited. Advantages are rewards minus the group's mean
over sampled and edited members alike. With `edit.level=paragraph` (the paper's "para") one member
of each group is the whole reference in place of a sampled report, and nothing else is edited.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from rrgclinical import Entities, Extractor
from rrgclinical.cached import CachedExtractor
from rrgclinical.rules import join_lines, split_sentences
from rrgdata.study import Study
from rrgkern import SentenceEntities, edit_plan, philox_seed, sentence_body, splice
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
from rrgtrain.algorithms.group import Group, Member
from rrgtrain.errors import UserError
from rrgtrain.rewards.term_models import open_extractor
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
        if settings.rule == "released" and settings.max_edits != 1:
            raise UserError(
                f"edit: max_edits is {settings.max_edits}, wanted 1: rule 'released' makes one edit"
            )
        extractor = open_extractor(reward, settings.extractor)
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


def require_entities(extractor: Extractor, studies: Sequence[Study]) -> None:
    """UserError where the first references hold no entity that an edit could be made towards."""
    references = [study.report for study in studies if study.report][:64]
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


# The paper letters its rules; a deletion of all copies is the released code's form of (c).
RULE_LETTERS = {
    "conflict": "a",
    "replacement": "b",
    "deletion": "c",
    "deletion_of_copies": "c",
    "addition": "d",
    "fill": "e",
}
_ANOTHER = "Lungs are clear."


@dataclass(frozen=True)
class Edited:
    """A report after its edits.

    `first_changed` is the index of the first character that differs from the report it was
    made from; `steps` holds (letter of the rule, removed text, added text) in the
    order applied.
    """

    text: str
    first_changed: int
    steps: tuple[tuple[str, str, str], ...]


def sentence_entities(entities: Entities, sentence_ids: dict[str, int]) -> SentenceEntities:
    """The extractor's output as the tensors `edit_plan` takes.

    `sentence_ids` numbers what sentences say, without their list numbers and stops; sharing it
    between reports and references is what makes equal sentences equal.
    """
    counts, keys = [0], []
    for report, spans in zip(entities.reports, entities.sentences, strict=True):
        counts.append(len(spans))
        for begin, end in spans:
            body = sentence_body(" ".join(report[begin:end].split()))
            keys.append(sentence_ids.setdefault(body, len(sentence_ids)))
    return SentenceEntities(
        sentence_offsets=torch.tensor(counts, dtype=torch.int64).cumsum(0),
        sentence_key=torch.tensor(keys, dtype=torch.int64),
        entity_offsets=torch.as_tensor(entities.offsets),
        entity_sentence=torch.as_tensor(entities.sentence),
        presence=torch.as_tensor(entities.presence),
        key=torch.as_tensor(entities.key),
        embedding=torch.as_tensor(entities.embedding),
    )


def by_text(x: Entities, y: Entities) -> tuple[Entities, Entities]:
    """Match entities of equal canonical text (cosine 1), and no others (0).

    The exact matching that EditGRPO's table 4 sets beside cosines.
    """
    rows = {text: row for row, text in enumerate(dict.fromkeys([*x.text, *y.text]))}

    def one_hot(entities: Entities) -> Entities:
        embedding = np.zeros((len(entities), max(1, len(rows))), dtype=np.float32)
        embedding[np.arange(len(entities)), [rows[text] for text in entities.text]] = 1.0
        return replace(entities, embedding=embedding)

    return one_hot(x), one_hot(y)


def whole_sentences(report: str) -> str:
    """Cut a report that broke off behind its last whole sentence.

    A sentence is whole where another one would begin behind it: not after half a word, an
    abbreviation, or a number whose decimals may be missing.
    """
    spans, text = split_sentences(report), report.rstrip()
    if not spans:
        return ""
    if spans[-1][1] < len(text):  # a bullet, perhaps, that introduces nothing
        return whole_sentences(report[: spans[-1][1]])
    begins_anew = split_sentences(f"{report} {_ANOTHER}")[-1][0] > len(report)
    if begins_anew and not re.search(r"\d\.$", text):
        return text
    return report[: spans[-2][1]] if len(spans) > 1 else ""


def edit_reports(
    reports: Sequence[str],
    references: Sequence[str],
    seeds: Sequence[int],
    extractor: Extractor,
    settings: EditSettings,
) -> list[Edited]:
    """Each report edited towards its reference (EditGRPO, rules a to e).

    `seeds` [R] decide every free choice, one per report. No white space trails an edited report.
    """
    # A wrapped sentence of a reference goes into a report as one line.
    references = [join_lines(reference) for reference in references]
    more = {"keep": True} if isinstance(extractor, CachedExtractor) else {}
    x, y = extractor.extract(reports), extractor.extract(references, **more)
    if settings.match == "exact":
        x, y = by_text(x, y)
    ids: dict[str, int] = {}
    script = edit_plan(
        sentence_entities(x, ids),
        sentence_entities(y, ids),
        seeds=torch.tensor(seeds, dtype=torch.int64),
        tau=settings.tau,
        tau_replace=settings.tau_replace,
        max_edits=settings.max_edits,
        rule=settings.rule,
        conflict_requires_spurious=settings.conflict_requires_spurious,
    )
    edited = []
    for r, (report, reference) in enumerate(zip(reports, references, strict=True)):
        done = splice(report, x.sentences[r], reference, y.sentences[r], script.of(r))
        steps = tuple((RULE_LETTERS[rule], removed, added) for rule, removed, added in done.steps)
        text = done.text.rstrip() if steps else done.text
        edited.append(Edited(text, min(done.first_changed, len(text)), steps))
    return edited
