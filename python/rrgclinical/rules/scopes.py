"""Scopes open in a sentence: denial, doubt, and attributes to be given."""

from __future__ import annotations

import re

from rrgclinical.labels import ClassId
from rrgclinical.rules import lookaround as look
from rrgclinical.rules.cues import Cue
from rrgclinical.rules.headings import answers, find_heading, opens_list, read_exception
from rrgclinical.rules.lexicon import Event, Role, is_behind_unknown
from rrgclinical.rules.parts import ASKED_OF, CHANGES, CONCEDES, EVIDENCE_THAT, IS_LOW, TURNED
from rrgclinical.rules.statement import Statement

_NEXT = 3
"""Tokens that a denial of the next words ("not") reaches over."""
_NEAR = 60
"""Characters between two denials that undo each other."""
_WORD = 12
"""Characters that hold the word before a cue."""
_CLAUSE = 200
"""Characters of a clause that are looked through before a cue."""
_POOL = 16
"""Attributes that one finding takes at most."""
_DENIED_CLAUSE = re.compile(r"\bthat\s+\Z", re.IGNORECASE)
_NEITHER = re.compile(r"\bneither\s(?:(?!\s(?:and|but|is|are)\s)[^.;:,])*\Z", re.IGNORECASE)
_GONE = re.compile(r"resol|gone|vanish|regress|drain|evacuat|resect", re.IGNORECASE)
_WHETHER = re.compile(r"\b(?:whether|if)\s", re.IGNORECASE)
_THAT = re.compile(r"\s+that\b", re.IGNORECASE)
_SOUGHT = re.compile(r"\bfor(?:\s+an?|\s+any)?\s+\Z", re.IGNORECASE)
_STANDS = re.compile(
    r"\s+(?:the|this|these|that|those)\b(?!\s+(?:presence|possib|likel|exist))", re.IGNORECASE
)


class Scopes(Statement):
    """Scopes of a sentence; cues open and end them, or look back: `Cue.TIP` by `_tip`."""

    __slots__ = ()

    def _negate(self, index: int, event: Event, role: Role) -> None:
        if event.first == self.undone:
            return
        if look.stands_behind_mark(self.events, index) and answers(self.events, index):
            return self._negated_before(index, event, role)  # "evidence of edema: no"
        if EVIDENCE_THAT.match(self.sentence, event.end):
            undone = look.denial_behind(self.events, index)
            if undone is not None:
                self._affirm(index, event, role)
                self.undone = undone.first
                return
        self.within = self.finding > self.verb and self.record.since(max(self.clause, self.comma))
        self.pool_before = len(self.pool)
        self.negate, self.doubt = True, False
        self.denial, self.last_or, self.turned = event.first, -1, event.end

    def _lack(self, index: int, event: Event, role: Role) -> None:
        near = self.turned >= 0 and event.start - self.turned <= _NEAR
        if near and TURNED.fullmatch(self.sentence, self.turned, event.start):
            self._affirm(index, event, role)  # "not free of", "no clearing of"
            self.undone = event.first

    def _affirm(self, index: int, event: Event, role: Role) -> None:
        self.negate = False
        self.negate_until = self.turned = -1

    def _finite(self, index: int, event: Event, role: Role) -> None:
        if self.within:  # "opacity without effusion suggests ..."
            self.negate = False

    def _negate_next(self, index: int, event: Event, role: Role) -> None:
        self.negate_until = event.last + _NEXT
        self.turned = event.end

    def _doubt(self, index: int, event: Event, role: Role) -> None:
        at_end = look.stands_behind_mark(self.events, index)
        (self._doubted_at_end if at_end else self._begin_doubt)(index, event, role)

    _suspicious = _doubt

    def _begin_doubt(self, index: int, event: Event, role: Role) -> None:
        if self.advice and _SOUGHT.search(self.sentence, max(0, event.start - 8), event.start):
            self.unasserted = True  # "CT for possible mass"
        elif not (self.negate or CHANGES.match(self.sentence, event.end)):
            self.doubt = True
            self.doubted = event.first

    def _negate_either(self, index: int, event: Event, role: Role) -> None:
        if event.first == self.undone or self._stands_first(index):
            return
        if look.looks_back(self.ahead, index):
            self._deny(self._reach_over_comma())
        else:
            self._negate(index, event, role)

    def _doubt_either(self, index: int, event: Event, role: Role) -> None:
        if look.looks_back(self.ahead, index):
            self.record.weaken(self._reach_over_comma())
        else:
            self._begin_doubt(index, event, role)

    def _ruled_out(self, index: int, event: Event, role: Role) -> None:
        doubtful = is_behind_unknown(self.sentence, event.start)
        (self._doubt_either if doubtful else self._negate_either)(index, event, role)

    def _chance(self, index: int, event: Event, role: Role) -> None:
        low = IS_LOW.match(self.sentence, event.end)
        (self._negate if low else self._doubt)(index, event, role)

    def _advice(self, index: int, event: Event, role: Role) -> None:
        self.advice = True

    def _purpose(self, index: int, event: Event, role: Role) -> None:
        sought = self.advice or self.ahead.ask(look.advice_follows, index)
        (self._unasserted if sought else self._begin_doubt)(index, event, role)

    def _aim(self, index: int, event: Event, role: Role) -> None:
        if self.advice:
            self._examine(index, event, role)

    def _examine(self, index: int, event: Event, role: Role) -> None:
        if _STANDS.match(self.sentence, event.end):
            self.examined = True  # "evaluate the nodule", but "evaluate the lungs for nodules"
        else:
            self.unasserted = True

    def _unasserted(self, index: int, event: Event, role: Role) -> None:
        self.unasserted = True

    def _history(self, index: int, event: Event, role: Role) -> None:
        self.unasserted = self.history = True
        self.headed = self.headed or self.sentence[event.end - 1] == ":"

    def _there(self, index: int, event: Event, role: Role) -> None:
        self.history = self.history and self.headed
        self.unasserted = self.unasserted and self.headed

    def _that_there(self, index: int, event: Event, role: Role) -> None:
        if index and self.events[index - 1].last == event.first and (self.negate or self.doubt):
            return  # "unlikely that there is"
        self._break(index, event, role)
        self._there(index, event, role)

    def _overlooked(self, index: int, event: Event, role: Role) -> None:
        if self.joined and not self.record.since(self.segment):
            return  # "effusion, and the left lung cannot be evaluated"
        self.record.forget(self._reach_back())

    def _earlier(self, index: int, event: Event, role: Role) -> None:
        if self.verb < self.finding and not self.aside and look.ends_sentence(self.events, index):
            self.record.forget(self._reach_back())
        self.verb = event.first

    def _sign(self, index: int, event: Event, role: Role) -> None:
        if not self.sentence[: event.start].strip():  # "this should be edema" asserts it
            self.unasserted = True

    def _negated_before(self, index: int, event: Event, role: Role) -> None:
        if event.first == self.undone or self._stands_first(index):
            return
        if self._said_before(_NEITHER, event):  # "neither edema nor effusion has resolved"
            stays = _GONE.search(self.sentence, event.start, event.end)
            status = ClassId.POSITIVE if stays else ClassId.UNCERTAIN
            return self.record.deny(self._reach_back(), status=status)
        if self.doubt and self._said_before(_WHETHER, event):
            return  # "cannot tell whether the effusion has resolved"
        if self._speaks_of_that(event) or self._names_next(index):
            self._negate(index, event, role)
        elif self.tip > self.parted:
            self._deny(self._reach_back(), "out of sight")
        else:
            self._deny(self._reach_behind_mark(index))

    def _removed(self, index: int, event: Event, role: Role) -> None:
        if not self._stands_first(index):
            self._deny(self._reach_back(), "removed")

    def _gone(self, index: int, event: Event, role: Role) -> None:
        self._stands_first(index)

    def _stands_first(self, index: int) -> bool:
        """Tell whether what is denied follows, behind a verb; the denial then begins with it."""
        if self.record.since(self.segment):
            return False
        verb = look.verb_of_denied(self.events, index)
        self.inverted = self.events[verb].first if verb >= 0 else -1
        return verb >= 0

    def _speaks_of_that(self, event: Event) -> bool:
        """Tell whether "possible that" refers to what follows."""
        that = _THAT.match(self.sentence, event.end)
        return that is not None and not self.record.since(self._reach())

    def _names_next(self, index: int) -> bool:
        """Tell whether the finding stands right behind, and none before ("not seen effusion")."""
        behind = self.events[index + 1]
        named = behind.first == self.events[index].last and Cue.FINDING in behind.cues
        return named and not self.record.since(self._reach())

    def _said_before(self, words: re.Pattern[str], event: Event) -> bool:
        begin = max(0, event.start - _CLAUSE)
        return words.search(self.sentence, begin, event.start) is not None

    def _tip(self, index: int, event: Event, role: Role) -> None:
        self.tip = event.first

    def _deny(self, low: int, kind: str = "denied") -> None:
        self.record.deny(low, kind)
        self.negate_until = -1

    def _doubted_before(self, index: int, event: Event, role: Role) -> None:
        if self._speaks_of_that(event):
            self._begin_doubt(index, event, role)
        else:
            self.record.weaken(self._reach_behind_mark(index))

    def _doubted_at_end(self, index: int, event: Event, role: Role) -> None:
        if look.ends_segment(self.events, index):
            self.record.weaken(self._reach_over_comma())
        else:
            self._begin_doubt(index, event, role)

    def _hedged(self, index: int, event: Event, role: Role) -> None:
        if look.stands_behind_mark(self.events, index):
            self._doubted_at_end(index, event, role)

    def _unsure(self, index: int, event: Event, role: Role) -> None:
        if not self._said_before(ASKED_OF, event):
            self.record.weaken(self._reach_behind_mark(index))

    def _setting(self, index: int, event: Event, role: Role) -> None:
        self.record.weaken(self._reach_over_comma(), "diseases weakened")
        self._begin_doubt(index, event, role)

    def _reset(self, index: int, event: Event, role: Role) -> None:
        self.negate = self.doubt = False
        self.unasserted = self.history
        self.versus = None
        self.parted = event.first

    def _subordinate(self, index: int, event: Event, role: Role) -> None:
        self._reset(index, event, role)
        if self.ahead.ask(look.names_finding, index + 1):
            self.split = len(self.drafts)

    def _which(self, index: int, event: Event, role: Role) -> None:
        self._reset(index, event, role)
        self.aside = self.comma == len(self.drafts)

    def _cause(self, index: int, event: Event, role: Role) -> None:
        if _DENIED_CLAUSE.search(self.sentence, max(0, event.start - _WORD), event.start):
            return  # "no evidence that this is pneumonia"
        self.negate = False
        self.unasserted = self.history

    def _break(self, index: int, event: Event, role: Role) -> None:
        if (mark := event.end == event.start + 1) and self.ahead.ask(look.goes_on, index):
            self.joined = True  # "no effusion; mass; or edema"
            return
        self._reset(index, event, role)
        self._flush()
        self.anchor = None
        self.clause = self.comma = self.before = self.segment = len(self.drafts)
        self.joined = self.advice = self.examined = False
        self.negate_until = -1
        if mark:  # no "but"
            self.pending, self.preposition = [], None
        self._elided(index)

    def _except(self, index: int, event: Event, role: Role) -> None:
        status = read_exception(self.events, index, self.sentence)
        if status == ClassId.BLANK:
            return
        if (told := self.record.last()) is None:
            self.excepted = status  # "except on the left, no effusion"
        elif told.status == ClassId.NEGATIVE and told is self.named_last:
            self._again(event, status)

    def _comma(self, index: int, event: Event, role: Role) -> None:
        # "no effusion seen, ...", "no effusion or mass, ...": the list of what is denied is over
        denies = self.negate
        closed = self.negate and (self.verb > self.finding >= 0 or self.finding > self.last_or >= 0)
        if denies and self.finding > self.denial and not self.unasserted:
            closed |= Cue.DASH in event.cues or look.ends_with_placed(self.events, index + 1)
            closed |= not self.clause and CONCEDES.match(self.sentence) is not None
        self._end_statement(index, closed)
        self._place()
        self.aside = self.comma == len(self.drafts)
        if not self.aside:
            self.before, self.comma = self.comma, len(self.drafts)
        if self.verb > self.finding >= 0 and not self.aside:  # "edema is seen, mass or ..."
            self.split = len(self.drafts)
        self.segment = len(self.drafts)
        self.parted = event.first
        # "effusion, as well as edema, has cleared"
        self.joined = self.joined and not look.PREDICATIONS.isdisjoint(self.events[index + 1].cues)
        if not denies:
            self._elided(index)

    def _and(self, index: int, event: Event, role: Role) -> None:
        denies = self.negate
        self._end_statement(index, False)
        self._place()
        if self.verb > self.finding >= 0:  # "the effusion has increased and ..."
            self.split = len(self.drafts)
        self.segment = len(self.drafts)
        self.joint = event.first
        self.joined = True
        if not denies:
            self._elided(index)

    def _elided(self, index: int) -> None:
        if look.leaves_out_finding(self.events, index, self.sentence):
            self._again(self.events[index + 1])

    def _pronoun(self, index: int, event: Event, role: Role) -> None:
        if look.stands_for_finding(self.events, index):
            self._again(event)

    def _or(self, index: int, event: Event, role: Role) -> None:
        self._place()
        if self.finding > self.denial:
            self.last_or = event.first
        self.joined = True

    def _versus(self, index: int, event: Event, role: Role) -> None:
        self.versus = event.last
        if self.doubt and self.doubted > self.finding:
            return  # "opacity, may be a shadow versus a nodule": the opacity is no alternative
        if self.finding < self.parted and look.names_other(self.events, index):
            return  # "opacity, artifact versus nodule"
        draft = self.record.last(self.clause)
        if draft is not None and draft.status == ClassId.POSITIVE:
            draft.status = ClassId.UNCERTAIN

    def _end_statement(self, index: int, closed: bool) -> None:
        """Close denial, doubt and predicates at a comma or "and" that opens a statement."""
        if not (self.negate or self.doubt or self.unasserted or self.pending):
            return
        if not (closed or look.opens_statement(self.events, index + 1)):
            return
        self.pending = []
        # an event that only grades the next finding is of the list that is doubted
        listed = self.negate or (self.doubt and self.events[index + 1].cues == {Cue.SEVERITY})
        doubts = self.finding > self.denial and self.events[index + 1].cues & look.DOUBTS
        if listed and not (self.negate and doubts) and self.ahead.ask(look.or_follows, index + 1):
            return
        self.negate = self.doubt = False
        self.unasserted = self.history

    # Attributes.

    def _attribute(self, index: int, event: Event, role: Role) -> None:
        if role.cue == Cue.SIDE and look.is_of_another(event, self.sentence):
            return
        if len(self.pool) < _POOL:
            self.pool.append((role.cue, role.value))
        self.pool_end = event.last

    _side = _zone = _severity = _attribute

    def _preposition(self, index: int, event: Event, role: Role) -> None:
        self.preposition = event
        if self.examined and self.sentence[event.start : event.end].lower() == "for":
            self.unasserted = True
        if self.anchor is not None:
            self.after = True

    def _verb(self, index: int, event: Event, role: Role) -> None:
        self.verb = event.first
        if event.first == self.inverted:
            self._negate(index, event, role)

    def _colon(self, index: int, event: Event, role: Role) -> None:
        if opens_list(self.events, index):
            return
        self.history = False
        self._reset(index, event, role)
        if heading := find_heading(self.events, index):
            self.headings.append(heading)

    def _dash(self, index: int, event: Event, role: Role) -> None:
        if find_heading(self.events, index):
            self._colon(index, event, role)
        else:
            self._comma(index, event, role)
            self.pending, self.preposition = [], None
