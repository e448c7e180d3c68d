"""Sentences of a report as character spans."""

from __future__ import annotations

import re

from rrgclinical.rules.cues import Cue
from rrgclinical.rules.lexicon import find_events
from rrgclinical.rules.lines import ANSWER, BULLETS, OPENS, Lines, is_title
from rrgclinical.rules.plain import JOINER, LIGATURES, glued, plain, unglued

# A stop, with quotes or brackets that close after it; the bracket of a list number; a line break.
# What a candidate really is depends on its neighbours, decided in `_ends_sentence`, `_next_place`
# and `Lines`. One set of characters stands first, so that a search skips all others.
_CANDIDATE = re.compile(
    rf"[.!?\u2026)\n{BULLETS}]"
    rf"(?:(?<=[{BULLETS}])|(?<=[.!?\u2026])[.!?\u2026]*[\"')\]}}\u00bb]*"
    rf"|(?<=\d\))|(?<=\n)[\n ]*)"
)
_NEEDS_DIGIT = frozenset({"no", "nos", "fig", "figs", "ca"})
_TITLES = frozenset({"dr", "mr", "mrs", "ms", "prof", "st"})
_LATIN = frozenset({"vs", "cf", "eg", "ie", "e.g", "i.e", "approx", "incl"})
_ABBREVIATIONS = _NEEDS_DIGIT | _TITLES | _LATIN
_LONG = 5
"""Letters that no list marker has, and few abbreviations end in."""
# Shortened words, and sides, which may stand at the end of a statement too.
_SHORTENED = frozenset(
    {"evid", "def", "sig", "signif", "obv", "poss", "prob", "susp", "mod", "min", "sm", "lg"}
    | {"bilat", "bil", "lt", "rt", "l", "r"}
)
_PLACES = frozenset({"mod", "min", "sm", "lg", "bilat", "bil", "lt", "rt", "l", "r"})
_NAMED = frozenset({Cue.FINDING, Cue.SUBJECT, Cue.PREDICATE, Cue.ZONE})
_BEFORE_END = frozenset({"on", "the", "in", "at", "to", "and", "of", "is", "are"})
_LONG_ENDINGS = frozenset(
    word[-_LONG:] for word in _ABBREVIATIONS | _SHORTENED if len(word) >= _LONG
)
_ANSWER = re.compile(rf"\s*{ANSWER}", re.IGNORECASE | re.MULTILINE)
# A stop within one of these parts no statements: "www.x.org", "chest.png", "a@b.org".
_ADDRESS = re.compile(r"://|www\.|@|\.(?:com|org|net|edu|gov|io|html?|png|jpe?g|dcm|pdf|txt|csv)\b")
_LETTERS = r"(?:[^\W_]|[\u0300-\u036f])++"  # an accent may be a character of its own
# Tried once a word: not from within one, nor with fewer of its letters.
_LAST_WORD = re.compile(rf"(?<![^\W_]){_LETTERS}(?:\.{_LETTERS})*$")
# Marks may stand before it: "effusion.-Small", "effusion.[Small".
_FIRST_WORD = re.compile(rf"(?P<marks>[(\[\"'*_\-\u2013\u2014]{{0,3}} ?)(?P<word>{_LETTERS})")
_LOOK_BACK = 24
"""Characters before a stop that can tell what it is: longer than any abbreviation."""
_LIST_MARKER = re.compile(r"\W*(?:\d{1,2}|[a-z]|[ivx]{1,4})?[.)]?", re.IGNORECASE)
# The place of a list as `rrgkern.edit_plan` knows it, with what stands around its number.
_PLACE = re.compile(r"(\(?)(\d{1,2})([.)])(?=\s|[^\W\d_]|$)")
_NUMBER = re.compile(r"\s(\(?\d{1,2}[.)])$")
# A number after one of these belongs to it: "fracture of rib 2. No effusion"; not so where the
# clause has named it already: "the 9th rib 2. No effusion".
_COUNTED = frozenset({"rib", "ribs", "level", "levels", "grade", "stage", "zone", "type", "class"})
_PICTURED = frozenset({"view", "views", "image", "images", "series", "slice", "segment", "lead"})
_LEADS_ON = frozenset(
    {"least", "and", "or", "to", "of", "than", "through", "with", "in", "at", "by", "for", "is"}
    | {"are", "was", "about", "approximately", "over", "under", "within", "every", "day", "days"}
)
# A capital behind one of these is a name's: "discussed with J. Smith", but "hepatitis B. Edema".
_NAMES = _LEADS_ON | {"from", "per", "physician", "nurse", "resident", "surgeon", "doctor"}
_TAKES_NUMBER = _NEEDS_DIGIT | _COUNTED | _PICTURED | _LEADS_ON
# Items of a list that a line holds; those with "1." and "1)" are told apart in `_next_place`.
_FIRST_ITEMS = ("#1", "[1", "1-", "1 -", "1/", "1\u2013", "1 \u2013", "1\u2014", "a)", "A)")
_ITEM = re.compile(
    r"(?<!\S)(?P<opening>[#\[(]?)(?P<place>\d{1,2}|[A-Ha-h])"
    r"(?P<closing>\]|\)|/| ?[-\u2013\u2014]|(?<=#\d)|(?<=#\d\d))(?=\s?[^\W\d_])"
)
_ORDINAL = re.compile(r"\d(?:st|nd|rd|th)\b[^.,;]*$")


def split_sentences(text: str) -> list[tuple[int, int]]:
    """(start, end) of every sentence of `text`: in order, disjoint, without outer white space.

    A list marker ("2.", "-") belongs to the sentence it introduces, and the next number of a list
    begins a sentence where the one before has no stop: "1. Low volumes 2. No edema". Abbreviations
    ("Dr.", "vs."), initials, decimals and a line wrapped in mid-sentence end nothing; a blank
    line, or a line that starts like a sentence, does. A sentence holds at least one letter or
    digit and begins with no stop, so text between two sentences may belong to neither.
    """
    return split_plain(text)[1]


def split_plain(text: str) -> tuple[str, list[tuple[int, int]]]:
    """The text as `plain` has it, for what a sentence alone cannot tell, and `split_sentences`."""
    text = plain(text)
    spans: list[tuple[int, int]] = []
    latest = _Latest(text, spans)
    lines: Lines | None = None
    begun = glued(text)
    if ("1" in text or ")" in text) and any(map(text.__contains__, _FIRST_ITEMS)):
        begun = sorted([*begun, *_items(text)])
    start = 0
    for match in _CANDIDATE.finditer(text):
        low, high = match.span()
        while begun and begun[0] <= low:
            _append(spans, text, start, begun[0])
            start = max(start, begun.pop(0))
        if text[low - 1 : low].isdigit():
            place = _next_place(text, latest, start, low)
            if place > start:
                _append(spans, text, start, place)
                start = place
                continue
        if text[low] == "\n":
            if match[0].count("\n") == 1 and text[start:low].strip():
                lines = lines or Lines(text)
                if not lines.ends_statement(low):
                    continue
            _append(spans, text, start, low)
            start = high
        elif text[low] in BULLETS:
            _append(spans, text, start, low)
            start = low
        elif text[low] != ")" and _ends_sentence(text, start, low, high):
            _append(spans, text, start, high)
            start = high
    for place in (*begun, len(text)):
        _append(spans, text, start, place)
        start = place
    return text, spans


def join_lines(text: str) -> str:
    """Join the wrapped lines of a report; the text splits into the same sentences.

    Tags, characters without a width and runs of white space become one blank, ligatures their
    letters. A line break or blank line stays between sentences only where they could not be told
    without.
    """
    text = unglued(plain(text)).replace(JOINER, "").translate(LIGATURES)
    joined = " ".join(text.split())
    if "\n" not in text.strip():
        return joined
    spans = split_sentences(text)
    wanted = _said(text, spans)
    ends = [n for n, (start, _) in enumerate(spans[1:]) if "\n" in text[spans[n][1] : start]]
    stopped = all(wanted[n][-1] in ".!?" and wanted[n + 1][0].isalnum() for n in ends)
    if stopped or _said(joined, split_sentences(joined)) == wanted:
        return joined
    lines, paragraphs = (_laid_out(text, spans, mark) for mark in ("\n", "\n\n"))
    return lines if _said(lines, split_sentences(lines)) == wanted else paragraphs


def _laid_out(text: str, spans: list[tuple[int, int]], mark: str) -> str:
    """The sentences, with what stands between them; `mark` is where a line ended between two."""
    out, before = "", 0
    for (start, end), said in zip(spans, _said(text, spans), strict=True):
        gap = text[before:start]
        for word in (*gap.split(), said):
            out += (mark if "\n" in gap else " ") + word
        before = end
    return " ".join((out.strip(), *text[before:].split()))


def _said(text: str, spans: list[tuple[int, int]]) -> list[str]:
    return [" ".join(text[start:end].split()) for start, end in spans]


def _items(text: str) -> list[int]:
    """Places where the items of a list in one line begin that has no stops: "1- Edema 2- Mass"."""
    places: list[int] = []
    form: tuple[str, str] | None = None
    following = ""
    for item in _ITEM.finditer(text):
        around, place = (item["opening"], item["closing"]), item["place"]
        if place in ("1", "a", "A"):
            form = around
        elif (around, place) == (form, following):
            places.append(item.start())
        else:
            continue
        following = str(int(place) + 1) if place.isdigit() else chr(ord(place) + 1)
    return places


# Stops that another sentence has left, as in "Effusion. . Lungs are clear.".
_LEFT_STOPS = re.compile(r"\s*(?:[.,;:!]+\s+)+")


def _append(spans: list[tuple[int, int]], text: str, start: int, end: int) -> None:
    piece = text[start:end]
    if left := _LEFT_STOPS.match(piece):
        start += left.end()
        piece = text[start:end]
    stripped = piece.strip()
    if not stripped or not any(map(str.isalnum, stripped)):
        return
    start += len(piece) - len(piece.lstrip())
    spans.append((start, start + len(stripped)))


def _next_place(text: str, latest: _Latest, start: int, low: int) -> int:
    """Where the next place of the running list begins whose number ends at `low`; else 0."""
    match = _NUMBER.search(text, max(start, low - 4), low + 1)
    if match is None:
        return 0
    rest = text[low + 1 :]
    following = rest.lstrip()
    if not following or rest[0].isdigit() or following.startswith(match[1]):
        return 0
    begun = text[start : match.start()].strip()
    if begun.endswith(":") and match[1].strip("(.)") == "1":
        heading = _LAST_WORD.search(begun[:-1])  # "IMPRESSION: 1. Edema", but "grade: 1. No edema"
        counts = heading is None or heading[0].lower() in _TAKES_NUMBER
        return 0 if counts else match.start(1)
    place = _PLACE.match(begun)
    running = place or latest.number()
    if running is None:
        return 0
    opening, number, closing = running.groups()
    if match[1] != f"{opening}{int(number) + 1}{closing}":
        return 0
    said = begun[place.end() if place else 0 :].strip().rstrip("\"')].")
    before = _LAST_WORD.search(said)
    if before is None or before[0].isdigit():
        return 0
    takes_number = before[0].lower() in _TAKES_NUMBER and not _ORDINAL.search(said)
    if not takes_number or before[0] == said or begun.endswith("."):
        return match.start(1)
    # only where the list would lack this number: the next one follows, and this one does not
    lacks = f" {match[1]} " not in rest and f" {opening}{int(number) + 2}{closing} " in rest
    return match.start(1) if lacks else 0


class _Latest:
    """The latest list number among the sentences so far; looks at each of them once."""

    def __init__(self, text: str, spans: list[tuple[int, int]]) -> None:
        self._text, self._spans = text, spans
        self._number: re.Match[str] | None = None
        self._looked_at = 0

    def number(self) -> re.Match[str] | None:
        for start, end in self._spans[self._looked_at :]:
            self._number = _PLACE.match(self._text, start, end) or self._number
        self._looked_at = len(self._spans)
        return self._number


def _ends_sentence(text: str, start: int, low: int, high: int) -> bool:
    following = text[high : high + 1]
    if text[low] == "?":
        # "? pneumonia" and "edema ?pneumonia" ask before they name
        asks = following.isalnum() and not text[low - 1 : low].isalnum()
        asks |= _ANSWER.match(text, high) is not None
        return not asks and any(map(str.isalnum, text[max(start, low - 200) : low]))
    if text[low] != "." or high - low > 1:
        return True
    if following and not following.isspace():
        return _lost_blank(text, start, low)
    before = text[max(start, low - _LOOK_BACK) : low]
    ending = before[-_LONG:]
    if len(ending) == _LONG and ending.isalpha() and ending.lower() not in _LONG_ENDINGS:
        return True  # most stops, without a pattern
    if _LIST_MARKER.fullmatch(before.strip()):
        return False
    match = _LAST_WORD.search(before)
    if match is None:
        return True
    word = match.group()
    if len(word) == 1 and word.isupper():
        # An initial ("J. Smith", "T. 5"), unless it closes a phrase such as "vitamin D".
        left = before[: match.start()].rstrip()
        if word in "NY" and left.endswith(":"):
            return True  # "Effusion: N. Edema: Y."
        said = _LAST_WORD.search(left)
        named = said is None or not said[0].islower() or said[0] in _NAMES
        named |= text[low + 2 : low + 3].isdigit() and word in "CTLS"
        return not (named and text[low + 2 : low + 3].isalnum())
    if "." in word and all(len(piece) == 1 for piece in word.split(".")):
        # "5 p.m. today" goes on, "5 p.m. No effusion" does not; "e.g." always does.
        goes_on = text[high:].lstrip()[:1].islower() or word.lower() in _ABBREVIATIONS
        return not goes_on or not text[high:].strip()
    folded = word.lower()
    if folded in _ABBREVIATIONS:
        if folded in _NEEDS_DIGIT:
            return not text[high:].lstrip()[:1].isdigit()
        return not text[high:].strip()
    if folded in _SHORTENED or folded == "neg":
        said = _LAST_WORD.search(before[: match.start()].rstrip())
        return not _goes_on(folded, said[0].lower() if said else "", text[high:].lstrip())
    return True


def _goes_on(word: str, said: str, ahead: str) -> bool:
    """True where a shortened word stands before what it speaks of: "no evid. of", "lt. lung"."""
    first = _FIRST_WORD.match(ahead)
    if first is None or is_title(first["word"]) or first["word"].lower() in OPENS:
        return False
    if word == "neg":
        return first["word"].lower() == "for"
    # "no effusion bilat." and "pneumonia not susp." have said it
    ended = word in _PLACES and any(r.cue in _NAMED for e in find_events(said) for r in e.roles)
    return not ended and said not in _BEFORE_END and (word, said) != ("susp", "not")


def _lost_blank(text: str, start: int, low: int) -> bool:
    """True for the stop of "apex.There", "NO PTX.STABLE"; "1.5", "e.g", "U.S" hold none."""
    before, after = text[max(start, low - _LOOK_BACK) : low], text[low + 1 : low + _LOOK_BACK]
    word, ahead = _LAST_WORD.search(before.rstrip()), _FIRST_WORD.match(after)
    around = text[max(0, low - 4 * _LOOK_BACK) : low].rpartition(" ")[2]
    around += text[low : low + 4 * _LOOK_BACK].partition(" ")[0]
    if ahead is None or _ADDRESS.search(around.lower()):
        return False
    if word is None:
        return before[-1:] in ")\"'%]" and ahead["word"][-1].isalpha()
    said = word[0].rpartition(".")[2].lower()
    if {word[0].lower(), said} & (_TITLES | _LATIN):
        return False
    if ahead["marks"] == "-" and said in _SHORTENED | _NEEDS_DIGIT:
        return False  # "rt.-sided", "fig.-3"
    if ahead[0][0].isdigit():
        return len(said) > 3 and said.isalpha() and said not in _TAKES_NUMBER
    if said.isdigit():
        # "rib 5.No effusion"; "2.No edema" is a list's
        return len(ahead["word"]) > 1 and not _LIST_MARKER.fullmatch(text[start:low].strip())
    return len(said) > 1
