"""The editing rules once more, straight from their definitions and with no care for speed.

Everything is worked out anew for each state of the report, from findings and not from masks.
Only the generator is shared with what is judged; it has published vectors of its own.
"""

from __future__ import annotations

from math import fsum

import torch

from rrgkern import Edit, Rule
from rrgkern.random import uniform_below
from tests.rrgkern.edit_plan.cases import PALETTE, Entity, Report, Sentence

COSINE = (PALETTE.double() @ PALETTE.double().T).float().tolist()


def fp32(value: float) -> float:
    return float(torch.tensor(value, dtype=torch.float32))


def cosine(a: Entity, b: Entity) -> float:
    return COSINE[a.concept][b.concept]


def findings(report: Report) -> list[Entity]:
    """Entities that take part, in order."""
    return [e for sentence in report for e in sentence.entities if e.presence >= 0]


def settled(x: Report, y: Report) -> tuple[Report, Report]:
    """Both reports with every text of the reference meaning what its first occurrence means."""
    meaning: dict[int, Sentence] = {}
    for sentence in y:
        meaning.setdefault(sentence.text, sentence)
    return (
        tuple(meaning.get(sentence.text, sentence) for sentence in x),
        tuple(meaning[sentence.text] for sentence in y),
    )


def agrees(e: Entity, others: list[Entity], tau: float) -> bool:
    return any(cosine(e, o) > fp32(tau) and e.presence == o.presence for o in others)


def spurious(x: Report, y: Report, tau: float) -> list[Entity]:
    return [e for e in findings(x) if not agrees(e, findings(y), tau)]


def missing(x: Report, y: Report, tau: float) -> list[Entity]:
    return [e for e in findings(y) if not agrees(e, findings(x), tau)]


def allowed(
    x: Report,
    y: Report,
    tau: float,
    tau_replace: float,
    lock: bool,
    conflict_requires_spurious: bool = True,
) -> list[Edit]:
    """Return what the first fitting rule permits, in the order of the draw; empty where x stays."""
    if not findings(y):
        return []
    texts = {sentence.text for sentence in x}
    locked = {sentence.text for sentence in y} if lock else set()
    fresh = [j for j, sentence in enumerate(y) if sentence.text not in texts]
    wrong = spurious(x, y, tau)

    conflicts = {
        Edit(Rule.CONFLICT, i, j)
        for i, sentence in enumerate(x)
        for j in fresh
        for e in findings((sentence,))
        for o in findings((y[j],))
        if sentence.text not in locked
        and cosine(e, o) > fp32(tau)
        and e.presence != o.presence
        and (e in wrong or not conflict_requires_spurious)
    }
    if conflicts:
        return sorted(conflicts)

    universe = findings(x) + findings(y)
    for i, sentence in enumerate(x):
        bad: list[Entity] = []
        for e in findings((sentence,)):
            if e in wrong and e.key not in [o.key for o in bad]:
                bad.append(e)
        means = {}
        for j in fresh:
            held = findings((y[j],))
            about = [u for u in universe if any(cosine(u, o) > fp32(tau) for o in held)]
            if bad and about:
                means[j] = fp32(fsum(max(cosine(e, u) for u in about) for e in bad) / len(bad))
        if means and max(means.values()) >= fp32(tau_replace):
            best = min(j for j in means if means[j] == max(means.values()))
            return [Edit(Rule.REPLACEMENT, i, best)]

    def donors(report: Report) -> list[int]:
        lacking = missing(report, y, tau)
        return [j for j in fresh if any(e in lacking for e in findings((y[j],)))]

    for i, sentence in enumerate(x):
        if any(e in wrong for e in findings((sentence,))):
            if len(x) > 1:
                return [Edit(Rule.DELETION, i, -1)]
            return [Edit(Rule.DELETION, i, j) for j in donors(())]
    if not x:
        return [Edit(Rule.FILL, -1, j) for j in donors(())]
    return [Edit(Rule.ADDITION, len(x), j) for j in donors(x)]


def applied(x: Report, y: Report, edit: Edit) -> Report:
    """x after the edit."""
    sentences = list(x)
    new = [y[edit.reference]] if edit.reference >= 0 else []
    if edit.rule in (Rule.ADDITION, Rule.FILL):
        sentences += new
    elif edit.rule == Rule.DELETION_OF_COPIES:
        text = sentences[edit.sentence].text
        sentences = [s for s in sentences if s.text != text] + new
    else:
        sentences[edit.sentence : edit.sentence + 1] = new
    return tuple(sentences)


def script(
    x: Report,
    y: Report,
    seed: int,
    tau: float,
    tau_replace: float,
    max_edits: int | None,
    conflict_requires_spurious: bool,
) -> list[Edit]:
    """The whole plan of one pair."""
    x, y = settled(x, y)
    edits: list[Edit] = []
    while max_edits is None or len(edits) < max_edits:
        permitted = allowed(x, y, tau, tau_replace, max_edits != 1, conflict_requires_spurious)
        if not permitted:
            break
        edits.append(permitted[uniform_below(len(permitted), seed, len(edits))])
        x = applied(x, y, edits[-1])
    return edits
