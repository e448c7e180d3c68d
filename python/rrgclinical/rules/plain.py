"""Read what a file or a system wrote around the text of a report.

Line ends of any kind, tags, entities, escapes, RTF; the cells of a row; statements that have lost
what parted them.
"""

from __future__ import annotations

import re
from unicodedata import normalize

from rrgclinical.common.rtf import from_rtf, is_rtf
from rrgclinical.rules.lexicon import phrase_table
from rrgclinical.rules.lines import HEADING, leads_on
from rrgclinical.rules.signs import CELL, ROW, SIGN, STOPS, UNSEEN_ONE, may_be_odd, meant, odd

JOINER = "\u034f"
"""Stands for a character without a width within a word; an accent to `str` and to patterns."""

LIGATURES = str.maketrans(
    {sign: normalize("NFKC", sign) for sign in map(chr, range(0xFB00, 0xFB07))}
)
"""The letters of a sign that pages are set with, and text copied from them has."""

_NEAR = 24
_ENDS_LINE = frozenset("\n\r\v\f\x85\u2028\u2029")
_TABS = re.compile(r" *\t[ \t]*")
_SEPARATOR = re.compile(rf"(?<=[^\W\d_]{{3}}){_TABS.pattern}(?=[^\W\d_]{{2}}|[(+-])")
_FILLED = re.compile(rf"(?<![^\W_])(?<!['\u2019{JOINER}]){JOINER}++|{JOINER}++(?![^\W_])")
_OPENING = ("No", "There", "The")
"""Begin a statement behind a unit or capitals too: "3 cmNo mass", "COPDNo effusion"."""
_GLUED = re.compile(
    r"[A-Z](?:(?<=[a-z].)(?:[a-z]+|(?<=A)(?= [a-z]))|(?<=[A-Z]{2}.)(?:o|here|he)(?= ))"
)
_LAST_PART = re.compile(r"[^\W\d_](?:[^\W\d_](?<![A-Z]))*$")
_NO_UNIT = re.compile(r"[a-z]{4,}")
"""Neither a unit nor the part of a name that stands before a capital."""
_ESCAPED = frozenset({"entity", "bare", "garbled", "delimiter", "hex", "quoted", "json"})
_ACCENTED = re.compile(r"[^\W\d_][\u0300-\u034e\u0350-\u036f]+")
_SOFT = "\xad"
"""A soft hyphen: it is seen at the end of a line, and nowhere else."""
_BROKEN = re.compile(r"(?<![^\W_])([^\W\d_]{2,})([-\u2010\xad](?: *\n *| ))([^\W\d_]{2,})(\S*)( ?)")
# Of a mail, of a comment. An item begins so too, but holds one statement.
_QUOTE = re.compile(r"^[^\S\n]*(?:[>%] ?)+", re.MULTILINE)
_INNER_STOP = re.compile(r"[^\W\d_]{3}[.!?][\"')\]]* +[^\W_]")


def plain(text: str) -> str:
    """`text` in as many characters: line feeds, blanks, stops, and nothing without a width."""
    if may_be_odd(text):
        # the letter with its accents as one sign, where there is one
        text = _ACCENTED.sub(lambda m: normalize("NFC", m[0]).ljust(len(m[0]), JOINER), text)
        if is_rtf(text):
            text = _FILLED.sub(lambda run: " " * len(run[0]), from_rtf(text, JOINER))
        text = _apart(odd().sub(_replaced, text), filled=True)
    return _unbroken(_unquoted(text, " "), JOINER)


def plain_lines(text: str) -> str:
    """`text` with line feeds for every line end; no tags, entities, escapes and ligatures.

    Not of one length with the text: signs without a width go, or part what a stop has ended. Tabs
    and stops stay as they are.
    """
    if may_be_odd(text):
        text = normalize("NFC", from_rtf(text) if is_rtf(text) else text)
        text = odd().sub(_unescaped, text)
        text = _apart(text.translate(LIGATURES), filled=False)
    return _unbroken(_unquoted(unglued(text), ""), "")


def _unbroken(text: str, joiner: str) -> str:
    """`text` with the words joined that a hyphen parts at the end of a line.

    Only what is then a word of the tables: "pneumo-/thorax", not "right-/sided". The end of the
    line goes behind the word.
    """
    if text.isascii() and "- " not in text and "-\n" not in text:
        return text
    words = phrase_table().lemma

    def join(match: re.Match[str]) -> str:
        first, gap, last, more, blank = match.groups()
        if gap[0] != _SOFT and (first + last).lower() not in words:
            return match[0]
        end = "\n" if blank and "\n" in gap else blank
        return f"{first}{joiner * len(gap)}{last}{more}{end}"

    return _BROKEN.sub(join, text)


def _unquoted(text: str, fill: str) -> str:
    """`text` with `fill` for each sign of the marks that all its lines begin with.

    Not so where no line holds a stop within: list items.
    """
    if "\n" not in text or _QUOTE.match(text) is None or not _INNER_STOP.search(text):
        return text
    lines = [line for line in text.split("\n") if line.strip()]
    if len(lines) < 2 or not all(map(_QUOTE.match, lines)):
        return text
    return _QUOTE.sub(lambda mark: fill * len(mark[0]), text)


def glued(text: str) -> list[int]:
    """Places where a statement begins right behind the word that ends another: "clearNo edema"."""
    return [word.start() for word in _GLUED.finditer(text) if _begins_statement(text, word)]


def unglued(text: str) -> str:
    """`text` with a line feed between statements that were glued."""
    places = glued(text)
    ends = zip([0, *places], [*places, len(text)], strict=True)
    return "\n".join(text[start:end] for start, end in ends)


def _begins_statement(text: str, word: re.Match[str]) -> bool:
    """True between two words, not within a name: "effusionSmall", but "HeartMate", "mmHg"."""
    before = _LAST_PART.search(text[max(word.start() - _NEAR, 0) : word.start()])
    if before is None:
        return False
    words = phrase_table().lemma
    of_tables = before[0].lower() in words and word[0].lower() in words
    opens = word[0] in _OPENING and (before[0] in ("cm", "mm") or before[0].isupper())
    return of_tables or opens or _NO_UNIT.fullmatch(before[0]) is not None


def _apart(text: str, *, filled: bool) -> str:
    """`text` with a colon for the tabs that part a finding from its answer, on two lines or more.

    filled: a colon and blanks take as many characters as the tabs.
    """
    if "\t" not in text:
        return text
    rows = [line.strip() for line in text.split("\n") if "\t" in line.strip()]
    parted = [_SEPARATOR.search(row) for row in rows if len(_TABS.findall(row)) == 1]
    whole = all(tabs and not leads_on(tabs.string[: tabs.start()]) for tabs in parted)
    if len(parted) < max(len(rows), 2) or not whole:
        return text.replace("\t", " ") if filled else text
    return _SEPARATOR.sub(lambda tabs: ":".ljust(len(tabs[0]) if filled else 2), text)


def _is_between_cells(match: re.Match[str]) -> bool:
    """True for the signs between two cells of a row, the first no heading and no statement."""
    run, before = match[0], match.string[max(match.start() - 3 * _NEAR, 0) : match.start()]
    if not before.strip() or not CELL.search(run) or ROW.search(run):
        return False
    said = re.split(r"[>\n]|gt;", re.sub(r"(?:</[^<>]*>\s*)+$", "", before))[-1]
    return not HEADING.fullmatch(said) and not said.rstrip().endswith((".", "!", "?"))


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
        return " | " if _is_between_cells(match) else "\n" * len(_ends_of(match[0]))
    if match.lastgroup in _ESCAPED:
        return meant(match) or match[0]
    if match["unseen"]:
        if match[0].startswith("**") or _is_seen(match):  # Markdown's may mark a heading
            return match[0][:2] if match[0][0] == "*" else _SOFT
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
    return match[0].endswith(_SOFT) and letter and after in _ENDS_LINE


def _around(match: re.Match[str]) -> tuple[str, str]:
    low, high = match.span()
    return match.string[max(low - 1, 0) : low], match.string[high : high + 1]


def _replaced(match: re.Match[str]) -> str:
    signs = match[0]
    if match["end"]:
        if len(signs) == 1:
            return "\n"
        if _is_between_cells(match):
            return " | ".ljust(len(signs))
        ends = [" "] * len(signs)
        for place in _ends_of(signs):
            ends[place] = "\n"
        return "".join(ends)
    if match["stop"]:
        return STOPS[ord(signs[0])].ljust(len(signs), JOINER)
    before, after = _around(match)
    if match.lastgroup in _ESCAPED:
        sign = meant(match)
        if not sign:
            return signs
        width = len(signs)
        if sign in ".," and before.isdigit() and after.isdigit():
            return sign.rjust(width, JOINER)
        # an apostrophe or a letter stands within a word: what is behind it has no width
        return sign.ljust(width, JOINER if sign == "'" or sign.isalnum() else " ")
    if _is_seen(match):
        return _SOFT.rjust(len(signs), JOINER)
    if match[0] == "\t":
        return "\t"
    joins = match["unseen"] and before.isalnum() and after.isalnum()
    return (JOINER if joins else " ") * len(signs)
