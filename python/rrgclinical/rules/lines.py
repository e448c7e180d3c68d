"""Line breaks of a report: a wrap within a statement, or the end of one.

A report says the same however wide its lines are, in capitals as in mixed case. A blank line, a
heading and a list item always end a statement. Of the other breaks this module decides by the words
around them and by the shape of the paragraph: lines filled up to one width are wrapped.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter

from rrgclinical.rules.hyphens import SOFT, unbroken, unquoted
from rrgclinical.rules.signs import (
    EXCELS,
    MAY_BE_ODD,
    ODD,
    SIGN,
    STOPS,
    UNSEEN_ONE,
    meant,
)

JOINER = "\u034f"
"""Stands for a character without a width within a word; an accent to `str` and to patterns."""

LIGATURES = str.maketrans(
    {
        "\ufb00": "ff",
        "\ufb01": "fi",
        "\ufb02": "fl",
        "\ufb03": "ffi",
        "\ufb04": "ffl",
        **dict.fromkeys(("\ufb05", "\ufb06"), "st"),
    }
)
"""The letters of a sign that pages are set with, and text copied from them has."""

_WORD = re.compile(r"[^\W_]+")
_NEAR = 24
_ENDS_LINE = frozenset("\n\r\v\f\x85\u2028\u2029")
_LAST = re.compile(r"[^\W_]+$")
_LAST_TWO = re.compile(r"(?:(?P<before>[^\W_]+) )?(?P<word>[^\W_]+)$")
_HEADING = re.compile(
    r"\W*(?:\d{1,2}\W+)?(?:final report|findings?(?: (?:and|/|&) impressions?)?|impressions?"
    r"|conclusions?|opinion)\s*(?P<colon>:?)\W*",
    re.IGNORECASE,
)
_RULE = re.compile(r"[-=*~#]{3,}")
_ESCAPED = frozenset({"entity", "bare", "garbled", "delimiter", "hex", "quoted", "json"})
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


_LEADING = _words(
    """
    no not without nor neither either any a an the this that these those its their his her and or
    but versus vs of in at on by for from to with within into over under near along through per
    than as via between behind beneath across around about approximately after since during until
    toward towards including involving overlying underlying following measuring representing
    suggesting indicating demonstrating showing is are was were be been being has have had may
    might can could should would will must does do did cannot appears appear seems seem remain
    remains shows show demonstrates demonstrate suggests suggest represents represent reflects
    reflect if when while whether which who because due secondary consistent compatible suspicious
    concerning very more most less least slightly mildly moderately severely markedly minimally
    congestive both each other another some several multiple few many
    """
)
"""Words that no statement ends in."""
_ATTRIBUTIVE = _words(
    """
    small large mild moderate severe marked trace tiny minimal slight subtle acute new old left
    right upper lower middle mid diffuse patchy dense definite significant discrete overt frank
    free soft rib airspace possible probable convincing obvious gross
    """
)
_ADJECTIVE = re.compile(r"[^\W\d_]{3,}(?:al|ar|ary|ic|ous)$")
_PARTICIPLE = re.compile(r"[^\W\d_]{3,}(?:ed|ing|ive|[ai]ble|some|(?<!m)ent|ant)$")
"""Modifies a noun behind a word that leads on: "and suspected", "no confluent"."""
_NO_ADJECTIVE = _words(
    "normal abnormal bilateral unilateral chronic clear interval removal similar"
)
_VERBS = _words("is are was were be been has have had appear appears remain remains seems")
_PREDICATES = _VERBS | _words("somewhat size the to than more less")
"""Before these an adjective is the end of what is said: "the heart is large"."""
_CONTINUES = _words(
    """
    or and of is are was were be been has have had which that than nor but versus vs
    """
)
_MAY_CONTINUE = _words(
    """
    seen noted identified visualized visualised present in on at with within without from for by to
    as may might could can should not
    """
)
OPENS = _words(
    """
    no there this these it the heart lungs
    """
)
_MAY_OPEN = OPENS | _words(
    """
    a an small large mild moderate severe minimal trace tiny stable unchanged new persistent again
    left right bilateral bibasilar patient pulmonary pleural mediastinal osseous bony trachea
    cardiomediastinal cardiac redemonstrated otherwise status
    """
)
_ENDING = 24
"""Characters that hold the last word of a line, where it is one of those listed here."""
_FULL = 40
"""Characters of a line from which on a narrow column is no longer likely."""


def plain(text: str) -> str:
    """`text` in as many characters: line feeds, blanks, stops, and nothing without a width."""
    text = ODD.sub(_replaced, text) if _may_be_odd(text) else text
    return unbroken(unquoted(text, " "), JOINER)


def plain_lines(text: str) -> str:
    """`text` with line feeds for every line end; no tags, entities, escapes and ligatures.

    Not of one length with the text: signs without a width go, or part what a stop has ended. Tabs
    and stops stay as they are.
    """
    odd = _may_be_odd(text)
    text = ODD.sub(_unescaped, text).translate(LIGATURES) if odd else text
    return unbroken(unquoted(text, ""), "")


def _may_be_odd(text: str) -> bool:
    return not text.isascii() or MAY_BE_ODD.search(text) is not None or EXCELS in text


def _ends_of(run: str) -> list[int]:
    """Where the line ends of a run of signs stand.

    Signs of different kinds are one end, as "<br>" before a line feed: the markup, or what was
    never read, and the line feed of the file. A sign that comes again begins the next end. A tag
    of a block is always one of its own: what stands between two is a paragraph.
    """
    places: list[int] = []
    kinds: set[str | None] = set()
    for sign in SIGN.finditer(run):
        if sign.lastgroup is None:
            continue
        kind = sign[0] if sign["other"] else sign.lastgroup
        if not places or kind in kinds or "block" in (kind, *kinds):
            places.append(sign.start() + max(sign[0].find("\n"), 0))
            kinds = set()
        kinds.add(kind)
    return places


def _unescaped(match: re.Match[str]) -> str:
    if match["end"]:
        return "\n" * len(_ends_of(match[0]))
    if match.lastgroup in _ESCAPED:
        return meant(match) or match[0]
    if match["unseen"]:
        if match[0].startswith("**") or _is_seen(match):  # Markdown's may mark a heading
            return match[0][:2] if match[0][0] == "*" else SOFT
        hidden = UNSEEN_ONE.sub("", match[0])
        before, after = _around(match)
        return " " if hidden and before and before in ".!?:;," and after.isalnum() else ""
    return (
        " " if match["tab"] or match["apart"] or (match[0] != "\t" and match["blank"]) else match[0]
    )


def _is_seen(match: re.Match[str]) -> bool:
    """True for a soft hyphen that parts a word at the end of a line."""
    # what has been read once may hold signs without a width before it, and blanks for a "\r"
    (low, high), text = match.span(), match.string
    before = text[max(low - _NEAR, 0) : low].rstrip(JOINER)
    after = text[high : high + _NEAR].lstrip(" ")[:1]
    letter = before[-1:].isalpha() and before[-2:-1] != "\\"  # no tab that was escaped
    return match[0].endswith(SOFT) and letter and after in _ENDS_LINE


def _around(match: re.Match[str]) -> tuple[str, str]:
    low, high = match.span()
    return match.string[max(low - 1, 0) : low], match.string[high : high + 1]


def _replaced(match: re.Match[str]) -> str:
    found = match[0]
    if match["end"]:
        if len(found) == 1:
            return "\n"
        signs = [" "] * len(found)
        for place in _ends_of(found):
            signs[place] = "\n"
        return "".join(signs)
    if match["stop"]:
        return STOPS[ord(found[0])].ljust(len(found), JOINER)
    before, after = _around(match)
    if match.lastgroup in _ESCAPED:
        sign = meant(match)
        if not sign:
            return found
        width = len(found)
        if sign in ".," and before.isdigit() and after.isdigit():
            return sign.rjust(width, JOINER)
        # an apostrophe or a letter stands within a word: what is behind it has no width
        return sign.ljust(width, JOINER if sign == "'" or sign.isalnum() else " ")
    if _is_seen(match):
        return SOFT.rjust(len(found), JOINER)
    joins = match["unseen"] and before.isalnum() and after.isalnum()
    return (JOINER if joins else " ") * len(found)


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
            heading = _HEADING.fullmatch(line)
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
    modifies = word not in OPENS and _modifies(line)
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
    said = _LAST_TWO.search(line[-2 * _ENDING :].lower())
    if said is None:
        return False
    before, word = said["before"], said["word"]
    led = before in _LEADING - _VERBS and _PARTICIPLE.search(word) is not None
    if led or before in _PREDICATES:
        return led
    adjective = word not in _NO_ADJECTIVE and _ADJECTIVE.search(word) is not None
    return adjective or word in _ATTRIBUTIVE


def _continues(line: str, cased: bool) -> bool:
    first = _first(line)
    return first[:1].islower() if cased else first.lower() in _CONTINUES | _MAY_CONTINUE


def _first(line: str) -> str:
    match = _WORD.search(line)
    return match[0] if match else ""


def is_title(word: str) -> bool:
    """True for a capital before small letters, and for A alone."""
    return word[:1].isupper() and not word[1:].isupper() and (len(word) > 1 or word == "A")
