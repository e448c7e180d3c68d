"""What one sentence asserts: findings with their status and attributes."""

from __future__ import annotations

from functools import lru_cache

from rrgtrain.clinical.labels import ClassId
from rrgtrain.clinical.rules.anatomy import Subject
from rrgtrain.clinical.rules.cues import Cue
from rrgtrain.clinical.rules.lexicon import Event, Role, find_events
from rrgtrain.clinical.rules.mention import Draft, Mention, Named
from rrgtrain.clinical.rules.scope import (
    coordinated,
    looks_back,
    modifies_what_follows,
    opens_statement,
    or_follows,
)

_CACHE_SENTENCES = 1 << 16
_NEXT = 3
"""Tokens that a denial of the next words ("not") reaches over."""
_ATTRIBUTIVE = 2
"""Tokens allowed between a predicate and the structure after it ("clear, expanded lungs")."""
_LIST = 3
"""Tokens allowed between structures that share a predicate ("heart size and the hila")."""
_LOCATIVE = 3
"""Tokens between a preposition and the structure it makes a place ("in the left lung")."""


@lru_cache(maxsize=_CACHE_SENTENCES)
def read_sentence(sentence: str) -> tuple[Mention, ...]:
    """The mentions of `sentence`, by position."""
    return _Reader(find_events(sentence)).read()


class _Reader:
    """One pass over the events of a sentence, left to right.

    What is open at an event: `negate`, `doubt`, `unasserted` hold for findings to come, and
    `negate_until` for those up to a token; `advice` says that an examination is asked for.
    `clause` and `comma` are where, among the drafts, a cue that looks back stops; `joined` says
    that an "and" or "or" carries it past the comma. `named` are structures waiting for a
    predicate, `told` that they had one, `parted` the last comma or "with"; `pending` are
    predicates waiting for structures and `bound_last` the end of the last they took. `pool` are
    attributes not yet given; they go to the next finding or, `after` a preposition, to the
    `anchor` before it.
    """

    def __init__(self, events: list[Event]) -> None:
        self.events = events
        self.drafts: list[Draft] = []
        self.negate = self.doubt = self.unasserted = self.advice = False
        self.negate_until = -1
        self.clause = self.comma = 0
        self.parted = -1
        self.joined = False
        self.versus: int | None = None
        self.named: list[Named] = []
        self.told = False
        self.pending: list[tuple[str, Event]] = []
        self.bound_last = -1
        self.pool: list[tuple[Cue, int]] = []
        self.pool_end = -1
        self.anchor: Draft | None = None
        self.after = False
        self.preposition = -9
        self.verb = -1
        self.finding = -1

    def read(self) -> tuple[Mention, ...]:
        handlers = _HANDLERS
        for index, event in enumerate(self.events):
            for role in event.roles:
                handler = handlers[role.cue]
                if handler is not None:
                    handler(self, index, event, role)
        self._flush()
        return tuple(draft.close() for draft in sorted(self.drafts, key=lambda d: d.start))

    # Findings and structures.

    def _finding(self, index: int, event: Event, role: Role) -> None:
        if self.named and event.first == self.named[-1].last:  # "left lung nodule"
            self.pool = [*self.named[-1].attributes, *self.pool]
            self.named = []
        pending, self.pending = self.pending, []
        self.finding = event.first
        if self.unasserted:
            self.pool = []
            return
        status = self._status(event)
        for predicate, source in pending:
            if source.last == event.first:
                status = _weaken(status, predicate)
        draft = Draft(role.value, status, event.start, event.end)
        draft.attributes.extend(role.attributes)
        if self.after and self.pool and self.pool_end < event.first and self.anchor is not None:
            self.anchor.attributes.extend(self.pool)
        else:
            draft.attributes.extend(self.pool)
        self.pool = []
        self.after = False
        self.anchor = draft
        self._settle_versus(draft)
        self.drafts.append(draft)

    def _subject(self, index: int, event: Event, role: Role) -> None:
        subject: Subject = role.value
        if self.unasserted:
            return
        self.drafts.append(
            Draft(subject.anatomy, ClassId.BLANK, event.start, event.end, list(self.pool))
        )
        named = Named(subject, event.first, event.last, event.start, event.end, list(self.pool))
        if self.pending:
            last = self.pending[-1][1].last
            gap = event.first - max(last, self.bound_last)
            if gap <= (_ATTRIBUTIVE if self.bound_last < last else _LIST):
                for predicate, source in self.pending:
                    self._bind(predicate, source, named)
                    if predicate in subject.meanings:
                        self.pool = []
                self.bound_last = event.last
                return
            self.pending = []
        if event.first - self.preposition <= _LOCATIVE and self.preposition >= 0:
            return
        if self.named:
            previous = self.named[-1]
            if self.told or event.first - previous.last > _LIST or self.verb >= previous.first:
                self.named = []
        self.told = False
        if self.after and self.pool_end < event.first:
            self._place()
        self.named.append(named)
        self.pool = []

    def _predicate(self, index: int, event: Event, role: Role) -> None:
        predicate: str = role.value
        known = [n for n in self.named if predicate in n.subject.meanings]
        if known and self._is_parted(known[-1]) and modifies_what_follows(self.events, index):
            known = []
        if known:
            for named in known:
                self._bind(predicate, event, named)
            self.told = True
            self.pool = []
            self.pending = []
        else:
            if not (self.pending and coordinated(self.events, index)):
                self.pending = []
            self.pending.append((predicate, event))
            self.bound_last = -1

    def _is_parted(self, named: Named) -> bool:
        """True when a comma or "with" came after `named`, and no verb since."""
        return named.last <= self.parted and self.verb < self.parted

    def _bind(self, predicate: str, source: Event, named: Named) -> None:
        if self.unasserted:
            return
        denied = source.first <= self.negate_until
        for concept, present in named.subject.meanings.get(predicate, ()):
            if present:
                status = _weaken(self._status(source), predicate)
            elif denied:
                continue
            else:
                status = ClassId.NEGATIVE
            start, end = min(named.start, source.start), max(named.end, source.end)
            graded = [pair for role in source.roles for pair in role.attributes]
            draft = Draft(concept, status, start, end, named.attributes + self.pool + graded)
            self.drafts.append(draft)
            self.anchor = draft

    def _status(self, event: Event) -> int:
        if self.negate or event.first <= self.negate_until:
            return ClassId.NEGATIVE
        return ClassId.UNCERTAIN if self.doubt else ClassId.POSITIVE

    # Denial, doubt, and where they end.

    def _negate(self, index: int, event: Event, role: Role) -> None:
        self.negate, self.doubt = True, False

    def _negate_next(self, index: int, event: Event, role: Role) -> None:
        self.negate_until = event.last + _NEXT

    def _doubt(self, index: int, event: Event, role: Role) -> None:
        if not self.negate:
            self.doubt = True

    def _negate_either(self, index: int, event: Event, role: Role) -> None:
        back = looks_back(self.events, index)
        (self._negated_before if back else self._negate)(index, event, role)

    def _doubt_either(self, index: int, event: Event, role: Role) -> None:
        back = looks_back(self.events, index)
        (self._doubted_before if back else self._doubt)(index, event, role)

    def _advice(self, index: int, event: Event, role: Role) -> None:
        self.advice = True

    def _purpose(self, index: int, event: Event, role: Role) -> None:
        if self.advice:
            self._unasserted(index, event, role)
        else:
            self._doubt(index, event, role)

    def _unasserted(self, index: int, event: Event, role: Role) -> None:
        self.unasserted = True

    def _negated_before(self, index: int, event: Event, role: Role) -> None:
        for draft in self._reach():
            draft.status = ClassId.NEGATIVE
        self.negate_until = -1

    def _doubted_before(self, index: int, event: Event, role: Role) -> None:
        for draft in self._reach():
            if draft.status == ClassId.POSITIVE:
                draft.status = ClassId.UNCERTAIN

    def _reach(self) -> list[Draft]:
        low = self.clause if self.joined else max(self.clause, self.comma)
        return [d for d in self.drafts[low:] if d.status != ClassId.BLANK]

    def _reset(self, index: int, event: Event, role: Role) -> None:
        self.negate = self.doubt = self.unasserted = False
        self.versus = None
        self.parted = event.first

    def _cause(self, index: int, event: Event, role: Role) -> None:
        self.negate = self.unasserted = False

    def _break(self, index: int, event: Event, role: Role) -> None:
        self._reset(index, event, role)
        self._flush()
        self.anchor = None
        self.clause = self.comma = len(self.drafts)
        self.joined = self.advice = False
        self.negate_until = -1

    def _comma(self, index: int, event: Event, role: Role) -> None:
        # "no effusion seen, ...": the verb has closed the list of what is denied
        closed = self.negate and self.verb > self.finding >= 0
        self._end_statement(index, closed)
        self._place()
        self.comma = len(self.drafts)
        self.parted = event.first
        self.joined = False

    def _and(self, index: int, event: Event, role: Role) -> None:
        self._end_statement(index, False)
        self._place()
        self.joined = True

    def _or(self, index: int, event: Event, role: Role) -> None:
        self._place()
        self.joined = True

    def _versus(self, index: int, event: Event, role: Role) -> None:
        for draft in reversed(self.drafts[self.clause :]):
            if draft.status == ClassId.BLANK:
                continue
            if draft.status == ClassId.POSITIVE:
                draft.status = ClassId.UNCERTAIN
            break
        self.versus = event.last

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
        if self.negate and or_follows(self.events, index + 1):
            return
        self.negate = self.doubt = self.unasserted = False

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
        self._reset(index, event, role)


_HANDLERS = {
    Cue.FINDING: _Reader._finding,
    Cue.SUBJECT: _Reader._subject,
    Cue.PREDICATE: _Reader._predicate,
    Cue.NEGATE: _Reader._negate,
    Cue.NEGATE_NEXT: _Reader._negate_next,
    Cue.DOUBT: _Reader._doubt,
    Cue.NEGATED_BEFORE: _Reader._negated_before,
    Cue.DOUBTED_BEFORE: _Reader._doubted_before,
    Cue.UNASSERTED: _Reader._unasserted,
    Cue.BREAK: _Reader._break,
    Cue.RESET: _Reader._reset,
    Cue.CAUSE: _Reader._cause,
    Cue.ASSERT: None,
    Cue.COMMA: _Reader._comma,
    Cue.COLON: _Reader._colon,
    Cue.AND: _Reader._and,
    Cue.OR: _Reader._or,
    Cue.VERSUS: _Reader._versus,
    Cue.PREPOSITION: _Reader._preposition,
    Cue.VERB: _Reader._verb,
    Cue.SIDE: _Reader._attribute,
    Cue.ZONE: _Reader._attribute,
    Cue.SEVERITY: _Reader._attribute,
    Cue.IDLE: None,
    Cue.NEGATE_EITHER: _Reader._negate_either,
    Cue.DOUBT_EITHER: _Reader._doubt_either,
    Cue.FINITE: None,
    Cue.ADVICE: _Reader._advice,
    Cue.PURPOSE: _Reader._purpose,
}


def _weaken(status: int, predicate: str) -> int:
    """A finding called borderline is uncertain at most."""
    if predicate == "borderline" and status == ClassId.POSITIVE:
        return ClassId.UNCERTAIN
    return status
