"""What one sentence asserts: findings with their status and attributes."""

from __future__ import annotations

from functools import lru_cache

from rrgtrain.clinical.labels import ClassId
from rrgtrain.clinical.rules.anatomy import Subject
from rrgtrain.clinical.rules.cues import Cue
from rrgtrain.clinical.rules.lexicon import Event, Role, find_events
from rrgtrain.clinical.rules.mention import Draft, Mention, Named

_CACHE_SENTENCES = 1 << 16
_NEXT = 3
"""Tokens that a denial of the next words ("not") reaches over."""
_ATTRIBUTIVE = 2
"""Tokens allowed between a predicate and the structure after it ("clear, expanded lungs")."""
_LIST = 3
"""Tokens allowed between structures that share a predicate ("heart size and the hila")."""
_LOCATIVE = 3
"""Tokens between a preposition and the structure it makes a place ("in the left lung")."""

_STARTS_STATEMENT = frozenset({Cue.ASSERT, Cue.SEVERITY, Cue.NEGATE, Cue.BREAK, Cue.DOUBT})


@lru_cache(maxsize=_CACHE_SENTENCES)
def read_sentence(sentence: str) -> tuple[Mention, ...]:
    """The mentions of `sentence`, by position."""
    return _Reader(find_events(sentence)).read()


class _Reader:
    """One pass over the events of a sentence, left to right.

    What is open at an event: `negate`, `doubt`, `unasserted` hold for findings to come, and
    `negate_until` for those up to a token. `clause` and `comma` are where, among the drafts, a
    cue that looks back stops; `joined` says that an "and" or "or" carries it past the comma.
    `named` are structures waiting for a predicate, `pending` a predicate waiting for structures
    and `bound_last` the end of the last it took. `pool` are attributes not yet given; they go to
    the next finding or, `after` a preposition, to the `anchor` before it.
    """

    def __init__(self, events: list[Event]) -> None:
        self.events = events
        self.drafts: list[Draft] = []
        self.negate = self.doubt = self.unasserted = False
        self.negate_until = -1
        self.clause = self.comma = 0
        self.joined = False
        self.versus: int | None = None
        self.named: list[Named] = []
        self.pending: tuple[str, Event] | None = None
        self.bound_last = -1
        self.pool: list[tuple[Cue, int]] = []
        self.pool_end = -1
        self.anchor: Draft | None = None
        self.after = False
        self.preposition = -9
        self.verb = -1

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
        if self.named and event.first == self.named[-1].last:
            self.named = []
        pending, self.pending = self.pending, None
        if self.unasserted:
            self.pool = []
            return
        status = self._status(event)
        if pending is not None and pending[1].last == event.first:
            status = _weaken(status, pending[0])
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
        if self.pending is not None:
            predicate, source = self.pending
            gap = event.first - max(source.last, self.bound_last)
            if gap <= (_ATTRIBUTIVE if self.bound_last < source.last else _LIST):
                self._bind(predicate, source, named)
                self.bound_last = event.last
                self.pool = []
                return
            self.pending = None
        if event.first - self.preposition <= _LOCATIVE and self.preposition >= 0:
            return
        if self.named:
            previous = self.named[-1]
            if event.first - previous.last > _LIST or self.verb >= previous.first:
                self.named = []
        self.named.append(named)
        self.pool = []

    def _predicate(self, index: int, event: Event, role: Role) -> None:
        predicate: str = role.value
        known = [n for n in self.named if predicate in n.subject.meanings]
        if known:
            for named in known:
                self._bind(predicate, event, named)
            self.pool = []
            self.pending = None
        else:
            self.pending = (predicate, event)
            self.bound_last = -1

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
            draft = Draft(concept, status, start, end, named.attributes + self.pool)
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

    def _cause(self, index: int, event: Event, role: Role) -> None:
        self.negate = self.unasserted = False

    def _break(self, index: int, event: Event, role: Role) -> None:
        self._reset(index, event, role)
        self._flush()
        self.anchor = None
        self.clause = self.comma = len(self.drafts)
        self.joined = False
        self.negate_until = -1

    def _comma(self, index: int, event: Event, role: Role) -> None:
        self._end_statement(index)
        self._place()
        self.comma = len(self.drafts)
        self.joined = False

    def _and(self, index: int, event: Event, role: Role) -> None:
        self._end_statement(index)
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

    def _end_statement(self, index: int) -> None:
        """Close denial, doubt and predicate at a comma or "and" that opens a statement."""
        if not (self.negate or self.doubt or self.unasserted or self.pending):
            return
        if index + 1 >= len(self.events) or not self._opens_statement(index + 1):
            return
        self.pending = None
        if self.negate and self._or_follows(index + 1):
            return
        self.negate = self.doubt = self.unasserted = False

    def _opens_statement(self, index: int) -> bool:
        cues = {role.cue for role in self.events[index].roles}
        if cues & _STARTS_STATEMENT:
            return True
        if Cue.SUBJECT not in cues:
            return False
        for event in self.events[index + 1 : index + 5]:
            following = {role.cue for role in event.roles}
            if Cue.VERB in following or Cue.PREDICATE in following:
                return True
            if Cue.FINDING in following:
                return False
        return False

    def _or_follows(self, index: int) -> bool:
        for event in self.events[index:]:
            for role in event.roles:
                if role.cue in (Cue.BREAK, Cue.NEGATE):
                    return False
                if role.cue == Cue.OR:
                    return True
        return False

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
}


def _weaken(status: int, predicate: str) -> int:
    """A finding called borderline is uncertain at most."""
    if predicate == "borderline" and status == ClassId.POSITIVE:
        return ClassId.UNCERTAIN
    return status
