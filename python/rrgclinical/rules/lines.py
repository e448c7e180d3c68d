"""Line breaks of a report: a wrap within a statement, or the end of one.

A report says the same however wide its lines are, in capitals as in mixed case. A blank line, a
heading and a list item always end a statement. Of the other breaks this module decides by the words
around them and by the shape of the paragraph: lines filled up to one width are wrapped.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter

_WORD = re.compile(r"[^\W_]+")
_LAST = re.compile(r"[^\W_]+$")
_MARKS = re.compile(r"([.,;:?!()])")
HEADING = re.compile(
    r"\W*(?:\d{1,2}\W+)?(?:final report|findings?(?: (?:and|/|&) impressions?)?|impressions?"
    r"|conclusions?|opinion)\s*(?P<colon>:?)\W*",
    re.IGNORECASE,
)
"""Alone on its line, or with a colon: the heading of a section that holds statements."""
_ANSWERED = re.compile(r"[^.:|\n]{3,40}(?::| \|) *[^\W_]")
"""A name and what is said of it: "Pneumothorax: small"."""
_RULE = re.compile(r"[-=*~#]{3,}")
_STOPPED = re.compile(r"[.!?;\u2026][\"')\]]*$")
_INNER_STOP = re.compile(r"[^\W\d_]{3}[.!?][\"')\]]* *[^\W_]")

_DOTS = "\u2022\u2023\u2043\u2219\u00b7\u25cf\u25cb\u25e6\u25aa\u25ab\u25a0\u25a1\u25ba\u25b8\u2713"
ANSWER = r"(?:no|none|yes|nil|negative|absent|present)\s*(?:[.;,]|$)"
"""What answers a question with one word."""
BULLETS = "\u2022\u2023\u25cf\u25cb\u25e6\u25aa\u25ab\u25a0\u25a1\u25ba\u25b8\uf0b7\uf0a7"
BULLETS += "".join(map(chr, range(0x2460, 0x2474)))
"""Begin an item wherever they stand; Word's own two and numbers in circles among them."""
_DASHES = "-\u2013\u2014"
_MARKER = re.compile(
    rf"(?P<dot>[{_DOTS}]|\*+)(?= *\S)|(?P<dash>[{_DASHES}])(?=[ ]*[^\W_])"
    r"|(?P<sign>[+>#~]|[-=]+>)(?= *[^\W\d_])|(?P<o>[oO])(?= )"
    r"|(?P<number>[(\[]?\d{1,2}[.)\]])(?=\s|[^\W\d_]|$)"
    r"|(?P<letter>\(?(?:[a-z]|[ivx]{2,4})[.)])(?= *[^\W_])",
    re.IGNORECASE,
)
_COMPOUND = re.compile(r"[^\W\d_](?: *$|\w*-)|(?:sided|year|old|like|shaped|week|day|month|type)")
"""Behind a hyphen that a wrap has put at the start of a line."""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_BE = _words("is are was were be been has have had")
_LEADING = _BE | _words(
    "no not without nor neither either any a an the this that these those its their his her and or "
    "but versus vs of in at on by for from to with within into over under near along through per "
    "than as via between behind beneath across around about approximately after since during until "
    "toward towards including involving overlying underlying following measuring representing "
    "suggesting indicating demonstrating showing being may might can could should would will must "
    "does do did cannot appears appear seems seem remain remains shows show demonstrates "
    "demonstrate suggests suggest represents represent reflects reflect exclude if when while "
    "whether which who because due secondary consistent compatible suspicious concerning very "
    "more most less least slightly mildly moderately severely markedly minimally both each other "
    "another some several multiple few many"
)
"""Words that no statement ends in."""
_ATTRIBUTIVE = _words(
    "small large mild moderate severe marked trace tiny minimal slight subtle acute new old left "
    "right upper lower middle mid diffuse patchy dense definite significant discrete overt frank "
    "free soft rib airspace possible probable convincing obvious gross"
)
_ADJECTIVE = re.compile(r"[^\W\d_]{3,}(?:al|ar|ary|ic|ous)$")
_PARTICIPLE = re.compile(
    r"^(?!(?:widen|thicken|scarr|blunt|crowd|trapp|spurr|narrow|shadow|flatten|swell|cuff)ing)"
    r"[^\W\d_]{3,}(?:ed|ing|ive|[ai]ble|some|(?<!m)ent|ant)$"
)
"""Modifies a noun behind a word that leads on: "and suspected", "no confluent"."""
_PREDICATIVE = _words("normal abnormal bilateral unilateral chronic clear interval removal similar")
_GRADES = _words("not now again still stable new unchanged persistent")
"""May stand between a verb, or what leads on, and the word that modifies."""
_VERBS = _BE | _words("appear appears remain remains seems")
_PREDICATES = _VERBS | _words("somewhat size the to than more less")
"""Before these an adjective is the end of what is said: "the heart is large"."""
_CONTINUES = _BE | _words("or and of which that than nor but versus vs")
_MAY_CONTINUE = _words(
    "seen noted identified visualized visualised present in on at with within without from for by "
    "to as may might could can should not"
)
OPENS = _words("no there this these it the heart lungs")
_MAY_OPEN = OPENS | _words(
    "a an small large mild moderate severe minimal trace tiny stable unchanged new persistent "
    "again left right bilateral bibasilar patient pulmonary pleural mediastinal osseous bony "
    "trachea cardiomediastinal cardiac redemonstrated otherwise status"
)
_ENDING = 24
"""Characters that hold the last word of a line, where it is one of those listed here."""
_FULL = 40
"""Characters of a line from which on a narrow column is no longer likely."""


class Lines:
    """The lines of a plain text, which tell its wraps from its ends of statements."""

    def __init__(self, text: str) -> None:
        self._lines: list[str] = []
        self._at: dict[int, int] = {}
        gaps: list[bool] = []
        place, gap = 0, True
        for piece in text.split("\n"):
            place += len(piece)
            line = piece.strip()
            if line and not _RULE.fullmatch(line):
                self._at[place] = len(self._lines)
                self._lines.append(line)
                gaps.append(gap)
            gap = place not in self._at
            place += 1
        self._width = max(map(len, self._lines), default=0)
        self._markers = [_MARKER.match(line) for line in self._lines]
        self._kinds = Counter(m.lastgroup for m in self._markers if m)
        self._blocks: list[_Block] = []
        for number, line in enumerate(self._lines):
            heading = HEADING.fullmatch(line)
            parted = gaps[number] or self._is_item(number)
            if heading and (gaps[number] or heading["colon"]):
                self._blocks.append(_Block([line]))
                gaps[number + 1 : number + 2] = [True]
            elif parted:
                self._blocks.append(_Block([line]))
            else:
                self._blocks.append(self._blocks[-1])
                self._blocks[-1].lines.append(line)

    def ends_statement(self, low: int) -> bool:
        """True when the line break at `low`, behind no full stop, ends a statement."""
        number = self._at.get(low)
        if number is None or number + 1 == len(self._lines):
            return True
        block = self._blocks[number + 1]
        if block is not self._blocks[number]:
            return True
        line, after = self._lines[number], self._lines[number + 1]
        return not line.endswith((":", ".")) and _ends(line, after, block.shape(self._width))

    def _is_item(self, number: int) -> bool:
        """True when the marker at the start of a line is that of a list item."""
        line, marker = self._lines[number], self._markers[number]
        if marker is None:
            return False
        rest = line[marker.end() :]
        if (marker["letter"] or "").endswith(".") and self._kinds["letter"] == 1:
            return False  # "hepatitis / B. No effusion"
        if not number:
            return True
        before = self._lines[number - 1]
        if marker["dash"] and not rest.startswith(" "):
            several = self._kinds["dash"] > 1
            if _COMPOUND.match(rest.lower()) or (leads_on(before) and not several):
                return False
        said = _LAST.search(before[-_ENDING:])
        if marker["number"] and said and said[0].lower() in _LEADING:
            return False
        if marker["o"] and said and said[0].lower() in ("y", "yr", "year"):
            return False
        # A lone mark where the line before had no room for it was put there by a wrap.
        lone = self._kinds[marker.lastgroup] == 1 and not before.endswith(":")
        first = line.split(None, 1)[0]
        room = len(before) + 1 + len(first) <= max(self._width, _FULL)
        return not lone or room or bool(_STOPPED.search(before[-8:]))


class _Block:
    """Lines that only breaks part: a paragraph, or statements without stops."""

    def __init__(self, lines: list[str]) -> None:
        self.lines = lines
        self._shape: _Shape | None = None

    def shape(self, width: int) -> _Shape:
        if self._shape is None:
            self._shape = _Shape(self.lines, width)
        return self._shape


class _Shape:
    """Properties of a block of lines.

    `cased`: capitals begin some. `inner`: a stop stands within one. `closed`: one ends the block.
    `bare`: there is none. `wrapped`: all lines are filled up to one width.
    """

    def __init__(self, lines: list[str], width: int) -> None:
        self.cased = any(is_title(_first(line)) for line in lines)
        self.inner = any(_INNER_STOP.search(line) for line in lines)
        self.closed = bool(_STOPPED.search(lines[-1][-8:]))
        pairs = list(itertools.pairwise(lines))
        least = min((len(a) + 1 + len(b.split(None, 1)[0]) for a, b in pairs), default=0)
        enough = len(lines) >= 3 or self.inner
        self.wrapped = any(
            least > wide and ((wide >= _FULL and enough) or len(lines) >= 5)
            for wide in (width, max(map(len, lines)))
        )
        self.bare = not (self.inner or any(_STOPPED.search(line[-8:]) for line in lines))
        if self.wrapped and self.bare:  # or statements of one length
            self.wrapped = any(leads_on(a) or _continues(b, self.cased) for a, b in pairs)


def _ends(line: str, after: str, shape: _Shape) -> bool:
    first = _first(after)
    word = first.lower()
    if leads_on(line):
        return False
    if _ANSWERED.match(line) and _ANSWERED.match(after):
        return True
    opens = word in OPENS and not after.lower().startswith("heart failure")
    modifies = not opens and _modifies(line)
    if shape.cased and is_title(first):
        return not (shape.wrapped or modifies)
    if shape.cased and first[:1].islower():
        return shape.bare and not (shape.wrapped or modifies) and word in ("no", "there")
    letter = len(word) == 1 and word.isalpha() and word != "a"  # "hepatitis / B is ..."
    if letter or word in _CONTINUES or shape.wrapped or shape.inner:
        return False
    if word in _MAY_CONTINUE and not shape.bare:
        return False
    if modifies and not word[:1].isdigit():
        return False
    return not shape.closed or word in _MAY_OPEN or word[:1].isdigit()


def leads_on(line: str) -> bool:
    """True when `line` ends in a word or mark that no statement ends in."""
    if line.endswith((",", "-", "/", "(", "&", "+")):
        return True
    line = line[-_ENDING:]
    said = _LAST.search(line)
    if said is None or said[0].lower() not in _LEADING:
        return False
    answers = said[0].lower() in ("no", "not") and line[: said.start()].rstrip()[-1:] in (":", "?")
    return not answers or not line[: said.start()].strip()


def _modifies(line: str) -> bool:
    """True when the last word of `line` speaks of a noun that does not stand there."""
    *_, mark, clause = ["", *_MARKS.split(line[-3 * _ENDING :].lower())]
    *words, word = clause.split() or [""]
    while words and (words[-1].endswith("ly") or words[-1] in _GRADES or _is_adjective(words[-1])):
        words.pop()
    before = words[-1] if words else ""
    there = words[:-1][-1:] == ["there"]
    led = before in _LEADING - _VERBS
    opens = (not before and mark != ":") or there or led
    if (opens and _PARTICIPLE.search(word)) or (led and word in _PREDICATIVE):
        return True
    return (there or before not in _PREDICATES) and _is_adjective(word)


def _is_adjective(word: str) -> bool:
    form = word not in _PREDICATIVE and _ADJECTIVE.search(word) is not None
    return form or word in _ATTRIBUTIVE


def _continues(line: str, cased: bool) -> bool:
    first = _first(line)
    return first[:1].islower() if cased else first.lower() in _CONTINUES | _MAY_CONTINUE


def _first(line: str) -> str:
    match = _WORD.search(line)
    return match[0] if match else ""


def is_title(word: str) -> bool:
    """True for a capital before small letters, and for A alone."""
    return word[:1].isupper() and not word[1:].isupper() and (len(word) > 1 or word == "A")
