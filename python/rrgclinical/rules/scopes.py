"""Scopes open in a sentence: denial, doubt, and attributes to be given."""

from __future__ import annotations

from rrgclinical.labels import SUPPORT_DEVICES, ClassId
from rrgclinical.rules.concepts import CONCEPTS
from rrgclinical.rules.cues import Cue
from rrgclinical.rules.headings import Heading, find_heading
from rrgclinical.rules.lexicon import Event, Role
from rrgclinical.rules.lookaround import (
    ends_segment,
    grades,
    leaves_out_finding,
    looks_back,
    names_finding,
    names_other,
    opens_statement,
    or_follows,
    stands_for_finding,
)
from rrgclinical.rules.mention import Draft

_NEXT = 3
"""Tokens that a denial of the next words ("not") reaches over."""


class Scopes:
    """Scopes open at an event of a sentence; cues open and end them.

    `negate`, `doubt`, `unasserted` hold for findings to come, and `negate_until` for those up to a
    token; `doubted` is where the doubt began, `advice` says that an examination is asked for,
    `history` that the whole statement tells of the patient, `asked` that a heading says so.
    `clause`, `comma`, `before` (the comma before that) and `split` (an "and" behind a verb, a
    subordinate clause) are where, among the drafts, a cue that looks back stops; `joined` says that
    an "and" or "or" carries it past the comma, `aside` that nothing was named between the last two.
    `finding`, `verb`, `parted` (a comma or "with"), `joint` (an "and"), `tip` (of a device),
    `denial` and `last_or` (an "or" between what it denies) are the tokens where the last of each
    began. `within` says that the denial stands inside the subject of a clause, `kept` how many
    attributes came before it. `headings` are findings before a colon. `pending` are predicates
    waiting for structures. `pool` are attributes not yet given; they go to the next finding or,
    `after` a preposition, to the `anchor` before it.
    """

    def __init__(self, events: list[Event], sentence: str) -> None:
        self.events, self.sentence = events, sentence
        self.drafts: list[Draft] = []
        self.negate = self.doubt = self.unasserted = False
        self.advice = self.history = self.asked = False
        self.negate_until = self.doubted = -1
        self.finding = self.verb = self.parted = self.joint = -1
        self.denial = self.last_or = self.tip = -1
        self.within = False
        self.kept = 0
        self.headings: list[Heading] = []
        self.clause = self.comma = self.before = self.split = 0
        self.joined = self.aside = False
        self.versus: int | None = None
        self.pending: list[tuple[str, Event]] = []
        self.pool: list[tuple[Cue, int]] = []
        self.pool_end = -1
        self.anchor: Draft | None = None
        self.after = False
        self.preposition = -9

    def _status(self, event: Event) -> int:
        if self.negate or event.first <= self.negate_until:
            return ClassId.NEGATIVE
        return ClassId.UNCERTAIN if self.doubt else ClassId.POSITIVE

    def _negate(self, index: int, event: Event, role: Role) -> None:
        self.within = self.finding > self.verb and bool(
            self._told_since(max(self.clause, self.comma))
        )
        self.kept = len(self.pool)
        self.negate, self.doubt = True, False
        self.denial, self.last_or = event.first, -1

    def _finite(self, index: int, event: Event, role: Role) -> None:
        if self.within:  # "opacity without effusion suggests ..."
            self.negate = False

    def _negate_next(self, index: int, event: Event, role: Role) -> None:
        self.negate_until = event.last + _NEXT

    def _doubt(self, index: int, event: Event, role: Role) -> None:
        if not self.negate:
            self.doubt = True
            self.doubted = event.first

    def _negate_either(self, index: int, event: Event, role: Role) -> None:
        if looks_back(self.events, index):
            self._deny(self._reach_over_comma())
        else:
            self._negate(index, event, role)

    def _doubt_either(self, index: int, event: Event, role: Role) -> None:
        if looks_back(self.events, index):
            _weaken_all(self._reach_over_comma())
        else:
            self._doubt(index, event, role)

    def _reach_over_comma(self) -> list[Draft]:
        """What `_reach` finds or, where a comma parts cue and finding, what stands before it."""
        return self._reach() or self._told_since(max(self.clause, self.before))

    def _advice(self, index: int, event: Event, role: Role) -> None:
        self.advice = True

    def _purpose(self, index: int, event: Event, role: Role) -> None:
        if self.advice:
            self._unasserted(index, event, role)
        else:
            self._doubt(index, event, role)

    def _unasserted(self, index: int, event: Event, role: Role) -> None:
        self.unasserted = True

    def _history(self, index: int, event: Event, role: Role) -> None:
        self.unasserted = self.history = True
        self.asked = self.asked or self.sentence[event.end - 1] == ":"

    def _there(self, index: int, event: Event, role: Role) -> None:
        self.history = self.history and self.asked
        self.unasserted = self.unasserted and self.asked

    def _overlooked(self, index: int, event: Event, role: Role) -> None:
        for draft in self._reach_back():
            draft.status = ClassId.BLANK

    def _sign(self, index: int, event: Event, role: Role) -> None:
        if index == 0:
            self.unasserted = True

    def _negated_before(self, index: int, event: Event, role: Role) -> None:
        drafts = self._reach_back()
        if self.tip > self.parted:
            drafts = [draft for draft in drafts if not _is_device(draft)]
        self._deny(drafts)

    def _removed(self, index: int, event: Event, role: Role) -> None:
        self._deny([draft for draft in self._reach_back() if _is_device(draft)])

    def _tip(self, index: int, event: Event, role: Role) -> None:
        self.tip = event.first

    def _deny(self, drafts: list[Draft]) -> None:
        for draft in drafts:
            draft.status = ClassId.NEGATIVE
        self.negate_until = -1

    def _doubted_before(self, index: int, event: Event, role: Role) -> None:
        _weaken_all(self._reach_back())

    def _doubted_at_end(self, index: int, event: Event, role: Role) -> None:
        if ends_segment(self.events, index):
            _weaken_all(self._reach_over_comma())
        else:
            self._doubt(index, event, role)

    def _setting(self, index: int, event: Event, role: Role) -> None:
        reached = self._reach_over_comma()
        _weaken_all([draft for draft in reached if CONCEPTS[draft.concept].disease])
        self._doubt(index, event, role)

    def _reach(self) -> list[Draft]:
        low = self.clause if self.joined else max(self.clause, self.comma)
        return self._told_since(self.split if low < self.split < len(self.drafts) else low)

    def _reach_back(self) -> list[Draft]:
        """What `_reach` finds, past an aside that names nothing ("X, seen on CT, is gone")."""
        aside = self.aside and self.comma == len(self.drafts)
        return self._reach_over_comma() if aside else self._reach()

    def _told_since(self, low: int) -> list[Draft]:
        return [draft for draft in self.drafts[low:] if draft.status != ClassId.BLANK]

    def _reset(self, index: int, event: Event, role: Role) -> None:
        self.negate = self.doubt = False
        self.unasserted = self.history
        self.versus = None
        self.parted = event.first

    def _subordinate(self, index: int, event: Event, role: Role) -> None:
        self._reset(index, event, role)
        if names_finding(self.events, index + 1):
            self.split = len(self.drafts)

    def _which(self, index: int, event: Event, role: Role) -> None:
        self._reset(index, event, role)
        self.aside = self.comma == len(self.drafts)

    def _cause(self, index: int, event: Event, role: Role) -> None:
        self.negate = False
        self.unasserted = self.history

    def _break(self, index: int, event: Event, role: Role) -> None:
        self._reset(index, event, role)
        self._flush()
        self.anchor = None
        self.clause = self.comma = self.before = len(self.drafts)
        self.joined = self.advice = False
        self.negate_until = -1
        self._elided(index)

    def _comma(self, index: int, event: Event, role: Role) -> None:
        # "no effusion seen, ...", "no effusion or mass, ...": the list of what is denied is over
        denies = self.negate
        closed = self.negate and (self.verb > self.finding >= 0 or self.finding > self.last_or >= 0)
        self._end_statement(index, closed)
        self._place()
        self.aside = self.comma == len(self.drafts)
        if not self.aside:
            self.before, self.comma = self.comma, len(self.drafts)
        self.parted = event.first
        self.joined = False
        if not denies:
            self._elided(index)

    def _and(self, index: int, event: Event, role: Role) -> None:
        denies = self.negate
        self._end_statement(index, False)
        self._place()
        if self.verb > self.finding >= 0:  # "the effusion has increased and ..."
            self.split = len(self.drafts)
        self.joint = event.first
        self.joined = True
        if not denies:
            self._elided(index)

    def _elided(self, index: int) -> None:
        if leaves_out_finding(self.events, index, self.sentence):
            self._again(self.events[index + 1])

    def _pronoun(self, index: int, event: Event, role: Role) -> None:
        if stands_for_finding(self.events, index):
            self._again(event)

    def _again(self, event: Event) -> None:
        """Name the finding that was denied before once more: another side or size of it."""
        told = self._told_since(0)
        if self.unasserted or not told or told[-1].status != ClassId.NEGATIVE:
            return
        status = self._status(event)
        self.anchor = Draft(told[-1].concept, status, event.start, event.end, self.pool)
        self.finding, self.pool, self.after = event.first, [], False
        self.drafts.append(self.anchor)

    def _or(self, index: int, event: Event, role: Role) -> None:
        self._place()
        if self.finding > self.denial:
            self.last_or = event.first
        self.joined = True

    def _versus(self, index: int, event: Event, role: Role) -> None:
        self.versus = event.last
        if self.doubt and self.doubted > self.finding:
            return  # "opacity, may be a shadow versus a nodule": the opacity is no alternative
        if self.finding < self.parted and names_other(self.events, index):
            return  # "opacity, artifact versus nodule"
        for draft in reversed(self.drafts[self.clause :]):
            if draft.status == ClassId.BLANK:
                continue
            if draft.status == ClassId.POSITIVE:
                draft.status = ClassId.UNCERTAIN
            break

    def _settle_versus(self, draft: Draft) -> None:
        if self.versus is not None and draft.status == ClassId.POSITIVE:
            draft.status = ClassId.UNCERTAIN
        self.versus = None

    def _end_statement(self, index: int, closed: bool) -> None:
        """Close denial, doubt and predicates at a comma or "and" that opens a statement."""
        if not (self.negate or self.doubt or self.unasserted or self.pending):
            return
        if index + 1 >= len(self.events):
            return
        if not (closed or opens_statement(self.events, index + 1)):
            return
        self.pending = []
        listed = self.negate or (self.doubt and grades(self.events[index + 1]))
        if listed and or_follows(self.events, index + 1):
            return
        self.negate = self.doubt = False
        self.unasserted = self.history

    # Attributes.

    def _attribute(self, index: int, event: Event, role: Role) -> None:
        self.pool.append((role.cue, role.value))
        self.pool_end = event.last

    def _preposition(self, index: int, event: Event, role: Role) -> None:
        self.preposition = event.last
        if self.anchor is not None:
            self.after = True

    def _verb(self, index: int, event: Event, role: Role) -> None:
        self.verb = event.first

    def _place(self) -> None:
        if self.after and self.anchor is not None:
            self.anchor.attributes.extend(self.pool)
            self.pool = []
        self.after = False

    def _flush(self) -> None:
        if self.anchor is not None:
            self.anchor.attributes.extend(self.pool)
            self.pool = []
        self.after = False

    def _colon(self, index: int, event: Event, role: Role) -> None:
        self.history = False
        self._reset(index, event, role)
        if heading := find_heading(self.events, index):
            self.headings.append(heading)

    def _dash(self, index: int, event: Event, role: Role) -> None:
        if find_heading(self.events, index):
            self._colon(index, event, role)
        else:
            self._comma(index, event, role)


def _is_device(draft: Draft) -> bool:
    return SUPPORT_DEVICES in CONCEPTS[draft.concept].states


def _weaken_all(drafts: list[Draft]) -> None:
    for draft in drafts:
        if draft.status == ClassId.POSITIVE:
            draft.status = ClassId.UNCERTAIN
