"""Keep what a sentence has said so far, and how far cues look back."""

from __future__ import annotations

from dataclasses import dataclass, field

from rrgclinical.labels import ClassId
from rrgclinical.rules.cues import Cue
from rrgclinical.rules.headings import Heading
from rrgclinical.rules.lexicon import Event
from rrgclinical.rules.lookaround import Ahead, stands_behind_mark
from rrgclinical.rules.mention import Draft
from rrgclinical.rules.told import Told


@dataclass(slots=True, eq=False)
class Statement:
    """Hold what is open at an event of a sentence; `record` has what was told.

    `negate`, `doubt`, `unasserted` hold for findings to come, and `negate_until` for those up to a
    token; `doubted` is where the doubt began, `advice` says that an examination is asked for,
    `history` that the whole statement tells of the patient, `headed` that a heading says so.
    `clause`, `comma`, `before` (the comma before that), `segment` (the last of comma and "and") and
    `split` (an "and" behind a verb, a subordinate clause) are where, among the drafts, a cue that
    looks back stops; `joined` says that an "and" or "or" carries it past the comma, `aside` that
    nothing was named between the last two. `turned` is where the last denial ended, `undone` and
    `inverted` are tokens of a denial that is undone and of the verb behind which one begins,
    `excepted` is the status that an exception before its denial gives, `named_last` the last
    finding named, `examined` says that an examination of something that is there is asked for.
    `finding`, `verb`, `parted` (a comma or "with"), `joint` (an "and"), `tip` (of a device),
    `denial` and `last_or` (an "or" between what it denies) are the tokens where the last of each
    began. `within` says that the denial stands inside the subject of a clause, `pool_before` how
    many attributes came before it. `headings` are findings before a colon. `pending` are predicates
    waiting for structures. `pool` are attributes not yet given; they go to the next finding or,
    `after` a preposition, to the `anchor` before it.
    """

    events: list[Event]
    sentence: str
    ahead: Ahead = field(init=False)
    record: Told = field(init=False)
    drafts: list[Draft] = field(init=False)
    negate: bool = False
    doubt: bool = False
    unasserted: bool = False
    advice: bool = False
    history: bool = False
    headed: bool = False
    negate_until: int = -1
    doubted: int = -1
    finding: int = -1
    verb: int = -1
    parted: int = -1
    joint: int = -1
    denial: int = -1
    last_or: int = -1
    tip: int = -1
    within: bool = False
    pool_before: int = 0
    headings: list[Heading] = field(default_factory=list)
    clause: int = 0
    comma: int = 0
    before: int = 0
    split: int = 0
    segment: int = 0
    turned: int = -1
    undone: int = -1
    inverted: int = -1
    examined: bool = False
    excepted: int = ClassId.BLANK
    named_last: Draft | None = None
    joined: bool = False
    aside: bool = False
    versus: int | None = None
    pending: list[tuple[str, Event]] = field(default_factory=list)
    pool: list[tuple[Cue, int]] = field(default_factory=list)
    pool_end: int = -1
    anchor: Draft | None = None
    after: bool = False
    preposition: int = -9

    def __post_init__(self) -> None:
        self.ahead, self.record = Ahead(self.events), Told()
        self.drafts = self.record.drafts

    def _status(self, event: Event) -> int:
        if self.negate or event.first <= self.negate_until:
            return ClassId.NEGATIVE
        return ClassId.UNCERTAIN if self.doubt else ClassId.POSITIVE

    # How far, among the drafts, a cue looks back.

    def _reach(self) -> int:
        low = self.clause if self.joined else max(self.clause, self.comma)
        return self.split if low < self.split < len(self.drafts) else low

    def _reach_back(self) -> int:
        """What `_reach` finds, past an aside that names nothing ("X, seen on CT, is gone")."""
        aside = self.aside and self.comma == len(self.drafts)
        return self._reach_over_comma() if aside else self._reach()

    def _reach_over_comma(self) -> int:
        """What `_reach` finds or, where a comma parts cue and finding, what stands before it."""
        low = self._reach()
        return low if self.record.since(low) else max(self.clause, self.before)

    def _reach_behind_mark(self, index: int) -> int:
        """What `_reach_back` finds, or what a comma right before the cue parts from it."""
        behind = stands_behind_mark(self.events, index)
        return self._reach_over_comma() if behind else self._reach_back()

    def _again(self, event: Event, status: int | None = None) -> None:
        """Name the finding that was denied before once more: another side or size of it."""
        told = self.record.last()
        if self.unasserted or told is None or told.status != ClassId.NEGATIVE:
            return
        status = self._status(event) if status is None else status
        self.anchor = Draft(told.concept, status, event.start, event.end, self.pool)
        self.finding, self.pool, self.after = event.first, [], False
        self.record.add(self.anchor)

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
