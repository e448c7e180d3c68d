"""Read one sentence: findings with their status and attributes."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache
from operator import attrgetter

from rrgclinical.labels import ClassId
from rrgclinical.rules import lookaround as look
from rrgclinical.rules.anatomy import Subject
from rrgclinical.rules.concepts import CONCEPTS
from rrgclinical.rules.cues import Cue
from rrgclinical.rules.headings import settle
from rrgclinical.rules.lexicon import Event, Role, find_events
from rrgclinical.rules.lines import ANSWER
from rrgclinical.rules.mention import Draft, Mention, Named
from rrgclinical.rules.plain import JOINER, LIGATURES, plain
from rrgclinical.rules.scopes import Scopes
from rrgclinical.rules.told_apart import is_elsewhere, told_apart

_LETTERS = {**LIGATURES, ord("&"): " and "}
_SIGNS = re.compile(f"[{JOINER}{''.join(map(chr, _LETTERS))}]")
"""What is not read as it stands: nothing within a word, or several letters."""
_DENIAL = r"(?:no|none|nil|zero|neg|[-\u2013\u2212]ve|negative|absent)\b"
_OPEN = (
    r"\s(?:(?:is|remains?)\s(?:(?:un|not\s)(?:clear|certain|known)|indeterminate)|(?:cannot|(?:can"
    r"|could)\snot)\sbe\s(?:determined|decided|told|said|ascertained|established))"
)
_MINUS = r"[(\[][-\u2013\u2212][)\]]"
# "Is there an effusion? No.", "Effusion no." and "Effusion: N", "(-)" answer a heading. Without its
# stop "no" may have been cut off before what it denies; "(-)" is that of one finding, or of none.
_ANSWERED = re.compile(
    r"(?:^|(?=[^a-zA-Z0-9,.;]))"  # most characters are passed over at once
    rf"(?:(?P<asked>^\W*(?:is|are|was|were)\sthere\s)(?=[^?]*\?\s*{ANSWER})|\?(?=\s*{ANSWER})"
    r"|(?P<alone>(?<![,;:])\s(?:(?:is|are)\s)?(?=no\s*\.(?!\s*\d)|(?:nil|zero|neg(?:ative)?"
    rf"|[-\u2013\u2212]ve)\s*(?:\.(?!\s*\d)|$)))|=(?=\s*{_DENIAL})"
    rf"|(?P<rule>(?:[-=]{{3,}}+|_{{10,}}+)(?!\W*{_DENIAL}\W*$))|(?P<no>:\s+n(?:eg)?(?=\s*(?:[.;,]|$)))"
    rf"|(?P<before>^{_MINUS}(?=[^+()\[\]]*$))"
    rf"|(?P<minus>{_MINUS}(?=\W*$))"
    rf"|(?P<open>\W*whether\s(?:there\s(?:is|are)\s)?(?=[^.;,]{{0,80}}?{_OPEN})"
    rf"|\sor\sno\s[\w\s]{{1,60}}?(?={_OPEN})))",
    re.IGNORECASE,
)
# A name or a date that was taken out is one word, whatever its mark holds: "[**2101-1-1**]".
_REMOVED = re.compile(r"\[\*\*[^\[\]]{0,80}\*\*\]|<([A-Z]{2,12})>[^<>]{0,80}</\1>")
_IN = (
    r"no[tr]?|is|are|was|were|ha[sd]|have|been?|may|might|could|can(?:not)?|f?or|of|versus|whether"
)
_LED = rf"{_IN}|there|evidence|neither|without|longer|unclear|concern|exclude|possible|difficult"
_NEUTRAL = (
    r"(?:[oi]n\s+(?:this|the)\s+(?:(?:current|present|portable|frontal|lateral|limited|chest)\s+){0,2}"
    r"(?:exam(?:ination)?|study|film|radiograph|view|patient)s?|at\s+(?:this|the\s+present)\s+time"
    r"|at\s+present|currently|again|however|in\s+(?:my|our)\s+opinion|as\s+far\s+as\s+can\s+be\s+seen)"
)
_HINTS: tuple[str, ...] = ("exam", "stud", "film", "radiog", "view", "patient", "time", "present")
_HINTS += ("currently", "again", "however", "opinion", "as far")
_ASIDE = re.compile(
    rf"(?P<led>\b(?:{_LED})\b)\s*[,(]?\s*{_NEUTRAL}[,)]?(?=\s+\w)"
    rf"|\s*[,(]\s*{_NEUTRAL}[,)](?=\s+(?:{_IN}|persists?|remains?|appears?)\b)",
    re.IGNORECASE,
)
"""What says nothing within a phrase: "may, at this time, be", "edema, however, is"."""
_QUESTION_DENIED = re.compile(rf"\?(?=\s*{_DENIAL})", re.IGNORECASE)
_CACHE_SENTENCES = 1 << 16
_ATTRIBUTIVE = 2
"""Tokens allowed between a predicate and the structure after it ("clear, expanded lungs")."""
_LIST = 4
"""Tokens allowed between structures that share a predicate ("heart size and the hila")."""
_SHARED = 16
"""Structures that one predicate tells of at most, and predicates of one structure."""
_START = attrgetter("start")
_LOCATIVE = 3
"""Tokens between a preposition and the structure it makes a place ("in the left lung")."""
_PARTED = re.compile(r"\b(?!both\b|all\b)\w+\s+the\s|\b(?:time|exam\w*|study|film|views?)\s", re.I)
"""Another noun between these ("on this study the lungs")."""


@lru_cache(maxsize=_CACHE_SENTENCES)
def read_sentence(sentence: str) -> tuple[Mention, ...]:
    """The mentions of `sentence`, by position, whatever its white space."""
    text = plain(sentence).replace("\n", " ")
    if "[**" in text or "</" in text:
        text = _REMOVED.sub(lambda mark: "XXXX".ljust(len(mark[0])), text)
    if any(map(text.lower().__contains__, _HINTS)):
        text = _ASIDE.sub(lambda aside: (aside["led"] or "").ljust(len(aside[0])), text)
    answered = _ANSWERED.sub(_answered, text)
    question = _QUESTION_DENIED.search(text)
    if question is not None and answered != text:
        mentions = _read(answered)
        # "Is the effusion larger? No." denies no effusion, and finds none
        if any(m.status == ClassId.POSITIVE and m.start < question.start() for m in mentions):
            return _read(text)
        return mentions
    return _read(answered)


def _read(text: str) -> tuple[Mention, ...]:
    if not _SIGNS.search(text):
        return _Reader(find_events(text), text).read()
    letters = [char.translate(_LETTERS) for char in text]
    kept = [p for p, said in enumerate(letters) for _ in said if said != JOINER]
    mentions = read_sentence("".join(letters).replace(JOINER, ""))
    return tuple(m._replace(start=kept[m.start], end=kept[m.end - 1] + 1) for m in mentions)


def _answered(match: re.Match[str]) -> str:
    kind, several = match.lastgroup, "," in match.string[: match.start()]
    several |= kind == "minus" and "+" in match.string
    if several and kind in ("alone", "minus"):
        return match[0]
    said = {"asked": "", "no": ":no", "minus": ":no", "before": "no", "rule": ";", "open": " poss"}
    return said.get(kind or "", ":").ljust(len(match[0]))


@dataclass(slots=True, eq=False)
class _Reader(Scopes):
    """One pass over the events of a sentence, left to right: its findings and structures.

    `named` are structures waiting for a predicate, `settled` says that they had one; `bound_last`
    is the end of the last structure that the pending predicates took.
    """

    named: list[Named] = field(default_factory=list)
    settled: bool = False
    bound_last: int = -1

    def read(self) -> tuple[Mention, ...]:
        handlers = _HANDLERS
        for index, event in enumerate(self.events):
            for role in event.roles:
                handler = handlers[role.cue]
                if handler is not None:
                    handler(self, index, event, role)
        self._flush()
        drafts = settle(self.headings, self.drafts, self.events)
        told = [d for d in drafts if d.status != ClassId.BLANK or CONCEPTS[d.concept].anatomy]
        told.sort(key=_START)
        return tuple([draft.close() for draft in told])

    def _finding(self, index: int, event: Event, role: Role) -> None:
        if is_elsewhere(self.events, index, role, self.sentence):
            self.pool = []
            return
        if self.named and event.first == self.named[-1].last:  # "left lung nodule"
            self.pool = [*self.named[-1].attributes, *self.pool]
            self.named = []
        pending, self.pending = self.pending, []
        self.finding = event.first
        if self.unasserted:
            self.pool = []
            return
        status = self._status(event)
        if (
            self.negate
            and self.pool_before
            and _sides_differ(self.pool[: self.pool_before], self.pool[self.pool_before :])
        ):
            status = ClassId.POSITIVE  # "a small right but no left effusion"
            del self.pool[self.pool_before :]
        for predicate, source in pending:
            if look.graded_by(self.events, index, source):
                status = _weaken(status, predicate)
        concept = told_apart(self.events, index, role.value, self.sentence)
        draft = Draft(concept, status, event.start, event.end)
        draft.attributes.extend(role.attributes)
        if self.after and self.pool and self.pool_end < event.first and self.anchor is not None:
            self.anchor.attributes.extend(self.pool)
        else:
            draft.attributes.extend(self.pool)
        self.pool = []
        self.after = False
        self.anchor = draft
        self._settle_versus(draft)
        self.record.add(draft)
        self.named_last = draft
        excepted, self.excepted = self.excepted, ClassId.BLANK
        if excepted != ClassId.BLANK:
            self._again(event, excepted)

    def _subject(self, index: int, event: Event, role: Role) -> None:
        subject: Subject = role.value
        if self.unasserted:
            return
        self.record.add(
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
        place = self.preposition or event
        near = 0 <= event.first - place.last <= _LOCATIVE and place.first > self.parted
        if near and not _PARTED.search(self.sentence, place.end, event.start):
            self.comma += self.comma == len(self.drafts) - 1  # "edema, in the left lung, is"
            return
        if self.named:
            previous = self.named[-1]
            if self.settled or event.first - previous.last > _LIST or self.verb >= previous.first:
                self.named = []
        self.settled = False
        if self.after and self.pool_end < event.first:
            self._place()
        self.named = [*self.named[1 - _SHARED :], named]
        self.pool = []

    def _predicate(self, index: int, event: Event, role: Role) -> None:
        predicate: str = role.value
        known = [n for n in self.named if predicate in n.subject.meanings]
        if known and self.verb < self.parted >= known[-1].last:  # a comma or "with", and no verb
            known = [] if self.ahead.ask(look.precedes_noun, index + 1) else known
        if known:
            for named in known:
                self._bind(predicate, event, named)
            if predicate == "normal" and self.verb > self.finding > self.joint > known[-1].first:
                for draft in self.drafts[-len(known) - 1 : -len(known)]:
                    draft.status = ClassId.NEGATIVE  # "heart and edema are normal"
                self.negate_until = -1
            self.settled = True
            self.pool = []
            self.pending = []
        elif predicate == "borderline" and look.looks_back(self.ahead, index):
            self.record.weaken(self._reach_over_comma())  # "cardiomegaly, borderline"
        else:
            if not (self.pending and look.coordinated(self.events, index)):
                self.pending = []
            self.pending = [*self.pending[1 - _SHARED :], (predicate, event)]
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
            graded = [pair for role in source.roles for pair in role.attributes]
            draft = Draft(concept, status, start, end, named.attributes + self.pool + graded)
            self.record.add(draft)
            self.anchor = draft


_SILENT = frozenset({Cue.ASSERT, Cue.IDLE, Cue.END})
_HANDLERS = {
    cue: None if cue in _SILENT else getattr(_Reader, f"_{cue.name.lower()}") for cue in Cue
}
"""The method of each cue is called as the cue is."""


def _weaken(status: int, predicate: str) -> int:
    """A finding called borderline is uncertain at most."""
    return ClassId.UNCERTAIN if predicate == "borderline" and status == ClassId.POSITIVE else status


def _sides_differ(before: list[tuple[Cue, int]], after: list[tuple[Cue, int]]) -> bool:
    """True when one list names the left side alone and the other the right."""
    sides = [{value for axis, value in pool if axis == Cue.SIDE} for pool in (before, after)]
    return all(len(named) == 1 for named in sides) and set.union(*sides) == set(look.ONE_SIDE)
