"""Reports as files and systems hold them: a mail, XML written twice, a terminal, a tokenizer.

Each way over real reports and over all findings, found and denied: labels and entities stay.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import pytest

from rrgclinical.rules import RulesExtractor, RulesLabeller, join_lines, split_sentences
from rrgclinical.rules.plain import plain
from rrgdata.check import CARRIERS
from tests.rrgclinical.test_rules_as_written import MARK, needs_data, reports, sentences, wrapped
from tests.rrgclinical.test_rules_signs_of_systems import FINDINGS

COUNT, MOST = 150, 0.01
"""Reports, and the share of them that one way may change; all ways together 0.3 %."""
SAID = "There is {f}.|No {f}.|Small {f}. The heart is normal.|No scoliosis or {f}. Clear lungs."
TEMPLATES = [said.replace("{f}", f) for f in FINDINGS.values() for said in SAID.split("|")]
WORDS = re.compile(
    r"\b(?:no|not|normal|clear|enlarged|without|effusion|pneumothorax|opacity)\b", re.I
)
Write = Callable[[str], str]


def quoted(mark: str) -> Write:
    return lambda text: mark + wrapped(66, f"\n{mark}", str)(text)


def blanks(sign: str) -> Write:
    return lambda text: text.replace(" ", sign)


def hidden(sign: str) -> Write:
    return lambda text: re.sub(r"(?<=\w\w)(?=\w\w)", sign, text)


def marked(before: str, after: str) -> Write:
    return lambda text: WORDS.sub(lambda word: before + word[0] + after, text)


def parted(sign: str) -> Write:
    said = lambda text: [MARK.sub("", one).rstrip(". ") for one in sentences(text)]  # noqa: E731
    return lambda text: sign.join(said(text))


def carried(write: Write) -> Write:
    return lambda text: write(wrapped(50, "\n", str.upper)(text))


def misread(text: str) -> str:
    for _ in range(2):
        text = text.replace(" ", "\xa0", 3).encode().decode("latin-1")
    return text


LINE_ENDS = ["=0A", "_x000D__x000D_\n", "&#13;&#13;\n", "\\\\n", "\\u000a", "\\x0a", "\u2424"]
LINE_ENDS += ["&amp;lt;br&amp;gt;", "&amp;#10;", "\\\n", "=20\n"]
ENDS_OF_TEXT = ["</s>", "<|im_end|>", "[SEP]", "<eos>", "\xb6", "\u23ce", "&#x0A;", "</item><item>"]
BLANKS = ["=C2=A0", "&amp;nbsp;", "&amp;#160;", "&nbsp", "\\u00a0", "\\xa0", "\u2800", "\u2423"]
BLANKS += ["\xc2\xc2 ", "\xc2\xc2\xa0", "\xc3\x82\xc2\xa0", "\xc3\u201a\xc2\xa0"]
HIDDEN = "\x00\x08\x1a\x7f\u061c\u180e\u202a\u202e\u2063\u2066\u206a\ufe0f\ufff9\U000e0020"
MARKED = [("<mark>", "</mark>"), ("<code>", "</code>"), ("[", "](https://x.org/a)"), ("**", "**")]
MARKED += [("\x1b[1m", "\x1b[0m"), ("<content ID='f1'>", "</content>")]
LOOKS = dict(zip("aeopcxyi", "\u0430\u0435\u043e\u0440\u0441\u0445\u0443\u0456", strict=True))

WAYS: dict[str, Write] = {
    **{f"quoted by {m!r}": quoted(m) for m in ("> ", ">", ">> ", "> > ")},
    **{f"wrapped by {end!r}": wrapped(60, end, str.upper) for end in LINE_ENDS},
    **{f"carried by {name}": carried(write) for name, write in CARRIERS.items()},
    **{f"parted by {end!r}": parted(end) for end in ENDS_OF_TEXT},
    **{f"blanks as {b!r}": blanks(b) for b in BLANKS},
    **{f"with {sign!r}": hidden(sign) for sign in HIDDEN},
    **{f"marked by {b!r}": marked(b, a) for b, a in MARKED},
    "bold sentences": lambda text: " ".join(f"**{one}**" for one in sentences(text)),
    "braced": lambda text: " ".join(f"{{{one}}}" for one in sentences(text)),
    "misread": misread,
    "JSON twice": lambda text: json.dumps(json.dumps(wrapped(70, "\n", str)(text))),
    "small stops": lambda text: text.replace(". ", "\ufe52 ").replace(", ", "\ufe50 "),
    "quotes": lambda text: text.replace(",", "&amp;#44;").replace("'", "&amp;#39;"),
    "look-alikes": lambda text: re.sub(
        "(?<=[b-df-hj-nq-wz])[aeopcxyi]", lambda sign: LOOKS[sign[0]], text
    ),
}


def reading(text: str) -> tuple[object, ...]:
    entities = RulesExtractor().extract([text])
    keys = sorted(zip(entities.key.tolist(), entities.presence.tolist(), strict=True))
    return RulesLabeller().label([text]).tolist(), keys


@pytest.mark.realdata
@needs_data
def test_real_reports_say_the_same_however_they_are_stored() -> None:
    texts = reports()[:COUNT]
    plainly, changed, wrong = list(map(reading, texts)), 0, {}
    for number, (name, write) in enumerate(WAYS.items()):
        pairs = list(zip(texts, plainly, strict=True))[number % 3 :: 3]
        differing = [write(text) for text, said in pairs if reading(write(text)) != said]
        changed += len(differing)
        if len(differing) > max(2, MOST * len(pairs)):
            wrong[name] = (len(differing), differing[0])
    assert not wrong
    assert changed <= 0.003 * COUNT * len(WAYS) / 3


@pytest.mark.parametrize("way", WAYS)
def test_each_finding_is_read(way: str) -> None:
    stored = [WAYS[way](text) for text in TEMPLATES]
    assert [reading(text) for text in stored] == [reading(text) for text in TEMPLATES]
    for text in stored:
        assert len(plain(text)) == len(text) and plain(plain(text)) == plain(text)
        assert join_lines(join_lines(text)) == join_lines(text)


SAME = """
    size=20mm|EF=20 % and d=20 cm|Findings: [**Name 12**] and ___|\u0413\u0420\u0423\u0414\u042c
    ribs; spine; heart
    Pneumothorax \x7c None \x7c Edema \x7c Mild|x = y|\u0430 \u043e|left\\xiphoid|**|a ** b
    <x>|[1](2)
"""


@pytest.mark.parametrize(
    "text", [one.strip() for one in re.split(r"(?<! )\||\n", SAME) if one.strip()]
)
def test_what_only_looks_like_a_sign_stays(text: str) -> None:
    text = text.replace(r"\x7c", "|")
    assert join_lines(text) == text and len(split_sentences(text)) <= 1


def test_items_and_rows_are_no_quotation() -> None:
    for text in (
        "> no pneumothorax\n> small effusion",
        "| No mass | x |\n| Small effusion. It | x |",
    ):
        assert len(split_sentences(text)) > 1
        assert text[0] in join_lines(text)


# A line that breaks behind an adjective goes on, whatever the case of what follows.
ADJECTIVES = "acute focal large overt recent suspicious confluent displaced loculated worrisome"
NOUNS = ("Pneumonia", "T8 compression fracture", "Effusion", "Lung Nodule", "L1 fracture")
OPENINGS = ("No evidence of ", "Without ", "no ", "No Consolidation, Edema, Or ", "There is no ")
CASES = (str, str.upper, str.lower)


@pytest.mark.parametrize("adjective", ADJECTIVES.split())
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_a_break_behind_an_adjective_ends_nothing(adjective, case):
    for opening in OPENINGS:
        for noun in NOUNS:
            for stop in (".", ""):
                text = case(f"{opening}{adjective}\n{noun}{stop}")
                assert split_sentences(text) == [(0, len(text))], text


PARTICIPLES = "enlarged worsening suspected congestive persistent dilated noticeable troublesome"
LEADING = "due to|and|there is|now|newly|stable|moderately|the chronically|No effusion.|As before,|"
NAMED = ("cardiac silhouette as before.", "pulmonary edema.", "heart failure or pneumonia.")


@pytest.mark.parametrize("participle", PARTICIPLES.split())
def test_a_break_behind_a_participle_ends_nothing(participle):
    for leading in LEADING.split("|"):
        for noun in NAMED:
            text = f"{leading} {participle}\n{noun}".strip().upper()
            assert len(split_sentences(text)) == 1 + ("." in leading), text
            said = f"The heart is not {participle}\nPleural thickening".upper()
            assert len(split_sentences(said)) == 2


@pytest.mark.parametrize(
    "text",
    [
        "Heart size is normal\nEffusion is present",
        "No effusion identified\nPulmonary edema",
        "Effusion is unchanged\nCardiomegaly",
        "The effusion is small\nNo pneumothorax",
        "EFFUSION SLIGHTLY INCREASED\nPULMONARY EDEMA",
        "HEART: ENLARGED\nPULMONARY EDEMA",
    ],
)
def test_a_break_behind_a_statement_ends_it(text):
    assert len(split_sentences(text)) == 2
