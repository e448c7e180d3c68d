"""A report says the same however it is written: wraps, case, bullets, lost blanks, spelling.

300 reports of IU X-Ray, an eighth of them in each way; RRG_ALL_REPORTS=1: all of 1,500.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import re
import textwrap
import time
from collections.abc import Callable

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from rrgclinical import rules
from rrgclinical.labels import OBSERVATIONS, ClassId
from rrgclinical.rules import RulesExtractor, RulesLabeller, join_lines, split_sentences
from rrgclinical.rules.details import read_details
from rrgclinical.rules.lexicon import _misspelt, phrase_table
from rrgclinical.rules.plain import LIGATURES, plain, plain_lines
from tests.real_data import IU_XRAY
from tests.rrgclinical.cases import FOLDER, table

COUNT, STEP = (1500, 1) if os.environ.get("RRG_ALL_REPORTS") else (300, 8)
MOST = 0.003
"""Share of the reports that a way of writing may change."""

LABELLER, EXTRACTOR = RulesLabeller(), RulesExtractor()
MARK = re.compile(
    r"^(?:\*\*|[-\u2013\u2014\u2022\u00b7+>#*]|o(?=\s)|\(?(?:\d{1,2}|[a-z]|[ivx]+)[.)])\s*", re.I
)
ESCAPE = re.compile(r"</?\w[^>]*>|&lt;br&gt;|&\S+?;|\\[rnt]|_x000[AD]_")
BULLETS = ["- ", "-", "\u2013 ", "\u2014", "\u2022 ", "\u2022", "\u00b7 ", "+ ", "> ", "# ", "o "]
BULLETS += ["* ", "** ", "{n}. ", "{n}.", "{n}) ", "({n}) ", "{a}. ", "{a}) ", "({a}) "]
ENDS = ["\n", "\r", "\r\n", "\f", "\v", "\x85", "\u2028", "\u2029", "<br>", "<br/>", "</p>"]
ESCAPED = ["&lt;br&gt;", r"\n", r"\r\n", "<p class='x'>", "&#13;", "_x000D_"]
# Of each kind of sign one: two of them side by side are one end of a line.
KINDS = ["\n", "\r", "\f", "\v", "\x85", "\u2028", "\u2029", "<br>", r"\n", "&#13;", "_x000D_"]
PAIRS = [first + second for first, second in itertools.permutations(KINDS, 2)]
PAIRS += ["\r\r\n", "<br />\r\n", "<BR/> \n", "<br>&nbsp;\n", "</span><br>\n<span>", "&#xD;\n"]
PAIRS += ["&#13;&#10;", "&#xD;&#xA;", r"\r\n" + "\r\n", "<br>&#13;\n", "<br></br>\n", "_x000D_\r\n"]
PAIRS += ["<br>\u200b\n", "<br>\t</font>\r\n", "_x000D__x000A_", "&lt;br&gt;&#10;"]
SET = ["ffi", "ffl", "ff", "fi", "fl"]
CASES: tuple[Callable[[str], str], ...] = (str, str.upper, str.lower)

Write = Callable[[str], str]


def sentences(text: str) -> list[str]:
    return [text[start:end] for start, end in split_sentences(text)]


def wrapped(width: int, end: str, case: Write) -> Write:
    return lambda text: end.join(textwrap.wrap(case(text), width, break_on_hyphens=False))


def glued(case: Write) -> Write:
    return lambda text: re.sub(r"(?<=[.!?]) (?=\S)", "", case(text))


def a_line_each(bullet: str, case: Write, *, stops: bool = True, end: str = "\n") -> Write:
    def write(text: str) -> str:
        lines = []
        for number, sentence in enumerate(sentences(text)):
            said = MARK.sub("", sentence)
            mark = bullet.format(n=number + 1, a=chr(97 + number % 26))
            lines.append(mark + (said if stops else said.rstrip(". ")))
        return case(end.join(lines))

    return write


def as_written(sign: str, entity: str) -> Write:
    return lambda text: text.replace(sign, entity)


def as_set(match: re.Match[str]) -> str:
    return next(chr(sign) for sign, said in LIGATURES.items() if said == match[0])


def ways() -> dict[str, Write]:
    found: dict[str, Write] = {}
    for case in CASES:
        for width in (60, 70, 80):
            found[f"wrapped at {width}, {case}"] = wrapped(width, "\n", case)
        found[f"glued, {case}"] = glued(case)
        found[f"case, {case}"] = case
    for end in ENDS + ESCAPED:
        found[f"wrapped by {end!r}"] = wrapped(70, end, str.upper)
        found[f"a line each by {end!r}"] = a_line_each("", str, end=end)
    for number, bullet in enumerate(BULLETS):
        case = CASES[number % 3]
        found[f"bullet {bullet!r}"] = a_line_each(bullet, case, stops=False)
    for end in PAIRS:
        found[f"wrapped by {end!r}"] = wrapped(60, end, str.upper)
    for blank in ("&nbsp;", "&#160;", r"\t", "&#32;", "&ensp;", "&thinsp;", "&emsp;", "&#x2009;"):
        found[f"blanks as {blank}"] = as_written(" ", blank)
    for sign, written in ((",", "&#44;"), (",", "&comma;"), (".", "&#46;"), (".", "&#x2e;")):
        found[f"{sign} as {written}"] = as_written(sign, written)
    found["full stops"] = lambda text: re.sub(r"\.(?= |$)", "\u3002", text)
    found["ligatures"] = lambda text: re.sub("|".join(SET), as_set, text)
    return found


def reading(text: str) -> tuple[object, ...]:
    found = EXTRACTOR.extract([text])
    for start, end in found.span.tolist():
        assert text[start:end].strip()
    said = [
        MARK.sub("", ESCAPE.sub(" ", sentence)).lower().translate(LIGATURES)
        for sentence in sentences(text)
    ]
    plain = ["".join(filter(str.isalnum, sentence)) for sentence in said]
    return LABELLER.label([text]).tolist(), found.key.tolist(), found.presence.tolist(), plain


def reports() -> list[str]:
    lines = (IU_XRAY / "sections.jsonl").read_text().splitlines()
    texts = {" ".join((json.loads(line).get("findings") or "").split()) for line in lines}
    found = sorted(text for text in texts if text)
    random.Random(0).shuffle(found)
    return found[:COUNT]


needs_data = pytest.mark.skipif(
    not IU_XRAY.is_dir(), reason=f"no real data at {IU_XRAY}; set RRG_DATA"
)


@pytest.mark.realdata
@needs_data
def test_real_reports_say_the_same_however_they_are_written():
    texts = reports()
    as_written = [reading(text) for text in texts]
    wrong, total = {}, 0
    for number, (name, write) in enumerate(ways().items()):
        pairs = list(zip(texts, as_written, strict=True))[number % STEP :: STEP]
        changed = [text for text, told in pairs if reading(write(text)) != told]
        total += len(changed)
        if len(changed) > MOST * COUNT:
            wrong[name] = (len(changed), write(changed[0]))
    assert not wrong
    assert total <= MOST * len(texts) * len(ways()) / STEP


@pytest.mark.realdata
@needs_data
def test_no_word_of_real_reports_is_taken_for_another():
    table = phrase_table()
    words = set(re.findall(r"[^\W\d_]+", " ".join(reports()).lower())) - set(table.lemma)
    read = {word for word in words if _misspelt(word) is not None}
    assert read <= {"denisities", "emphysemia", "torturous", "verterbroplasty"}


def test_small_texts():
    rows = yaml.safe_load((FOLDER / "written.yaml").read_text(encoding="utf-8"))
    wrong = [
        (text, name, wanted)
        for text, name, wanted in rows
        if LABELLER.label([text])[0, OBSERVATIONS.index(name)] != ClassId[wanted]
    ]
    assert not wrong and len(rows) == 38


def test_a_sentence_alone_is_read_as_it_is_written() -> None:
    for blank in ("&nbsp;", r"\n", " \xad", "\n"):
        assert rules.says_normal("There is no effusion.".replace(" ", blank))
        assert not rules.says_normal("There is an effusion.".replace(" ", blank))


WRAPPED = "There is no\npneumothorax or\neffusion.\nThe heart is not\nenlarged."


@pytest.mark.parametrize("end", PAIRS, ids=map(repr, PAIRS))
def test_two_signs_of_one_line_end_are_one(end: str) -> None:
    """Taken for a blank line, they would end the statement: "no", and then "pneumothorax"."""
    text = WRAPPED.replace("\n", end)
    assert plain(text).count("\n") == plain_lines(text).count("\n") == WRAPPED.count("\n")
    assert [sentence.split() for sentence in sentences(plain(text))] == [
        ["There", "is", "no", "pneumothorax", "or", "effusion."],
        ["The", "heart", "is", "not", "enlarged."],
    ]
    assert join_lines(text) == " ".join(WRAPPED.split())


TWICE = ["\n\n", "\r\r", "\r\n\r\n", "\n\r\n", "\n\r\n\r", "\r\r\n\r\r\n", "\f\f", "\u2028\u2028"]
TWICE += ["<br><br>", "<br/><BR>", "<br>\n<br>\n", "\n<br>\n<br>", "<br>&nbsp;<br>", "<br>\n\n"]
TWICE += [r"\n\n", r"\r\n\r\n", r"\n" + "\n" + r"\n" + "\n", "&#13;\n&#13;\n", "&#10;&#10;"]
TWICE += ["_x000D_\n_x000D_\n", "</p>\n<p>", "</p><p>", "</p>\n", "\n<li>"]
TWICE += ["</div>\n<p id='x'>"]


@pytest.mark.parametrize("ends", TWICE, ids=map(repr, TWICE))
def test_two_line_ends_are_a_blank_line(ends: str) -> None:
    text = f"No{ends}pneumothorax"
    assert plain(text).count("\n") == plain_lines(text).count("\n") >= 2
    assert sentences(plain(text)) == ["No", "pneumothorax"]


@pytest.mark.parametrize(
    "signs", ["<br>" + " " * 20_000, " &nbsp;" * 5_000, "\n\t" * 10_000, "<br>&shy;\n"]
)
def test_runs_of_blanks_and_ends_take_linear_time(signs: str) -> None:
    began = time.thread_time()
    plain(f"<br>x{signs * 10}x")
    assert time.thread_time() - began < 10


UNSEEN = ["<b>", "</b>", "<sub>", "<wbr>", "&lt;i&gt;", "<!-- x -->", "\xad", "\u200b", "&shy;"]
UNSEEN += ["&#8203;", "&zwnj;", "&#x200B;"]


@pytest.mark.parametrize("first", UNSEEN)
@pytest.mark.parametrize("second", ["", *UNSEEN])
def test_what_is_not_seen_parts_no_word(first: str, second: str) -> None:
    """An empty tag, or a tag beside a soft hyphen, stands in a word as one tag does."""
    labels = LABELLER.label(
        [f"Small pneumo{first}{second}thorax.", f"No pneumo{first}{second}thorax."]
    )
    place = OBSERVATIONS.index("Pneumothorax")
    assert labels[:, place].tolist() == [ClassId.POSITIVE, ClassId.NEGATIVE]


PIECES = ["<br>", "\n", "\f", "&#13;", "&#46;", "&#x31;", "&#999;", "_x000D_", "<b>", "&lt;p&gt;"]
PIECES += ["&amp;", "&#39;", r"\r\n", r"\t", "\r\n", "\u3002", "\xad", "a", " "]


def test_prose_is_no_tag_and_or_is_no_escape() -> None:
    texts = [
        "Small effusion <a third of the hemithorax. Large pneumothorax. Mass >2 cm.",
        "Nodule <i think> 3 cm. Mass <p and effusion, larger> than before.",
        r"There is a mass\nodule in the left\right lobe, ETT\tracheostomy, fracture of 5\rib 6.",
    ]
    for text in texts:
        assert join_lines(text) == text
        assert plain(text) == text


@pytest.mark.parametrize("letter", ["\u017f", "\u212a", "\u0130"])
def test_letters_that_only_look_like_others_are_read(letter: str) -> None:
    for name in ("ndash", "nbsp", "rsquo", "br", "span", "strong", "bull"):
        for sign in "sSkKiI":
            odd = name.replace(sign, letter)
            for text in (f"No &{odd}; effusion.", f"No <{odd}> effusion."):
                assert len(plain(text)) == len(text) and plain_lines(text)


def test_details_are_read_in_the_plain_text() -> None:
    assert read_details("A 3&nbsp;cm nodule.") == read_details("A 3 cm nodule.")


@example("a\xad\r\n")
@example("a&shy;\xad \r\r\n")
@given(st.lists(st.sampled_from(PIECES), max_size=12).map("".join))
def test_a_plain_text_has_as_many_characters(text: str) -> None:
    assert len(plain(text)) == len(text)
    assert plain(plain(text)) == plain(text)


def test_these_are_one_sentence():
    texts = ["A 3.5 cm mass", "Dr.Smith", "e.g.pneumonia", "See www.acr.org", "The U.S.exam"]
    texts += ["A nodule measuring\n3 cm", "A right\n-sided effusion", "hepatitis\nB is known"]
    assert [text for text in texts if len(split_sentences(text)) != 1] == []


BRITISH = table("British spelling")


def test_every_word_is_read_in_british_too():
    """Forms of the tables' words; one that is a word of the table itself stays it."""
    table, tried, wrong = phrase_table(), 0, []
    for word, lemma in table.lemma.items():
        for american, british in BRITISH:
            form = re.sub(american, british, word)
            if form != word and len(word) > 4 and form not in table.lemma:
                tried += 1
                if _misspelt(form) != lemma:
                    wrong.append((word, form, _misspelt(form)))
    assert tried > 30
    assert not wrong
