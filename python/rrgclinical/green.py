"""GREEN (Ostmeier et al., 2024): matched findings against significant errors, by a language model.

score = matched / (matched + sum of clinically significant errors), 0 where nothing matches
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

from rrgclinical.chat import Message, PairJudge, Question

# The prompt's letters, and the numbers that some models write in their place.
CATEGORIES, _NUMBERED = "abcdef", "123456"
_SIGNIFICANT, _MATCHED = "Clinically Significant Errors", "Matched Findings"
_NOTHING = re.compile(r"No(?:ne|t|thing)?\b", re.IGNORECASE)
_WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
# A number of things: no time, ratio, share or date.
_COUNT = re.compile(rf"(?:(\d+)(?![\d:/%])|({'|'.join(_WORDS)})\b)", re.IGNORECASE)
_MEASURE = re.compile(r"\d+(?:[.,]\d|\s*[cm]m\b)")
_ITEM = re.compile(r"^[ \t]*(\d+)[.)] ", re.MULTILINE)
_IN_BRACKETS = re.compile(r"\([^()]*\)")

_PROMPT = """\
Compare a candidate report of a chest X-ray with the reference report of a radiologist. Judge
content, not style, and count errors and agreements.

Reference report:
{reference}

Candidate report:
{candidate}

An error is clinically significant if it could change how the patient is treated. Its categories:
(a) a finding in the candidate that the reference does not have
(b) a finding of the reference that the candidate leaves out
(c) a finding with a wrong location
(d) a finding with a wrong severity
(e) a comparison with an earlier study that the reference does not make
(f) a comparison of the reference that the candidate leaves out

Answer in these sections, with every category in both error sections:
[Explanation]:
<reasons>

[Clinically Significant Errors]:
(a) <category>: <number>. <the errors>
...
(f) <category>: <number>. <the errors>

[Clinically Insignificant Errors]:
(a) <category>: <number>. <the errors>
...
(f) <category>: <number>. <the errors>

[Matched Findings]:
<number>. <the findings that agree>
"""


class Judgement(NamedTuple):
    """One pair: findings that agree, and significant errors by category (a) to (f).

    Without any category the answer could not be read, and `text` says why.
    """

    matched: int
    errors: tuple[int, ...]
    text: str

    @property
    def score(self) -> float:
        """In [0, 1]; NaN where the answer could not be read."""
        if not self.errors:
            return math.nan
        return self.matched / (self.matched + sum(self.errors)) if self.matched else 0.0


class Green(PairJudge[Judgement]):
    """Judges pairs with the model behind an endpoint.

    The published score is that of GREEN-RadLlama2-7b with its own prompt, which `prompt` takes;
    with another model or the prompt here it is the same formula, and not GREEN's published value.
    """

    name, model, prompt = "green", "GREEN-RadLlama2-7b", _PROMPT
    # GREEN-RadLlama2-7b has 4,096 tokens for question and answer; a server refuses to promise more.
    defaults: ClassVar[Mapping[str, Any]] = {"json_mode": False, "max_tokens": 1024}

    def question(self, messages: list[Message]) -> Question[Judgement]:
        return Question(messages, parse_judgement)

    def unread(self, why: str) -> Judgement:
        return Judgement(0, (), why)


def parse_judgement(text: str) -> Judgement:
    """Read the counts in a model's answer.

    A section that begins with "No", "None", "Not" or "Nothing" counts 0, and so does a category
    that is left out or has no number: a third of the published model's own answers leave some out.
    Where no letter names a category, (1) to (6) do. The count stands directly behind the category's
    colon, in figures or as a word up to ten, or is that of the numbered lines below it.

    Answers in the layout of the prompt are read as the published parser (StanfordAIMI/GREEN) reads
    them. Of others it loses counts that stand here: one without a stop behind it ("2 things" is 0
    there, 2 here), one that is not a single blank behind its colon, all behind a blank line within
    a section, a word, a list, and a section that begins with a word such as "Nodule".

    Raises:
        ValueError: a section is missing, errors name no category, matches begin with no number, or
            a size stands where a number should. There the published parser reads 0, or the
            figure before the point, which for errors is the best that can be.
    """
    plain = text.replace("\r\n", "\n").replace("**", "").replace("__", "")
    errors = _errors(_section(plain, _SIGNIFICANT))
    section = _section(plain, _MATCHED)
    matched = _counted(section, _MATCHED)
    if matched is None and not _NOTHING.match(section):
        raise ValueError(f"[{_MATCHED}] does not begin with a number")
    return Judgement(matched or 0, errors, text)


def _errors(section: str) -> tuple[int, ...]:
    if _NOTHING.match(section):
        return (0,) * len(CATEGORIES)
    for names in (CATEGORIES, _NUMBERED):
        begins = list(re.finditer(rf"\(([{names}])\)", section))
        if begins:
            ends = [*(begin.start() for begin in begins[1:]), len(section)]
            counts: dict[str, int] = {}
            for begin, end in zip(begins, ends, strict=True):
                counts[begin[1]] = counts.get(begin[1]) or _of_category(section[begin.end() : end])
            return tuple(counts.get(name, 0) for name in names)
    raise ValueError(f"[{_SIGNIFICANT}] names no category")


def _of_category(text: str) -> int:
    """Read the count of one category, whose letter is cut off; 0 where it has none."""
    # a colon within brackets is not the category's own
    line, _, below = text.partition("\n")
    masked = _IN_BRACKETS.sub(lambda inside: " " * len(inside[0]), line)
    own = masked.find(":")
    if own < 0:
        return 0
    behind = line[own + 1 :].strip()
    count = _counted(behind or below.strip(), "a category")
    if count is None and not _NOTHING.match(behind):
        # a name that holds a colon itself: the count as the prompt has it
        later = re.search(r":[ ](\d+)\.(?!\d)", masked[own + 1 :])
        count = int(later[1]) if later else None
    return count or 0


def _counted(text: str, place: str) -> int | None:
    """Read the number that begins a text, or count its numbered lines; None without either."""
    items = [int(number) for number in _ITEM.findall(text)]
    if len(items) > 1 and items == list(range(1, len(items) + 1)) and _ITEM.match(text):
        return len(items)
    if measure := _MEASURE.match(text):
        raise ValueError(f"the size {measure[0]!r} stands where the number of {place} should")
    count = _COUNT.match(text)
    if count is None:
        return None
    return int(count[1]) if count[1] else _WORDS.index(count[2].lower())


def _section(text: str, name: str) -> str:
    heading = re.search(rf"\[{name}\]|^\W*{name}\W*$", text, re.IGNORECASE | re.MULTILINE)
    if heading is None:
        raise ValueError(f"the section [{name}] is missing")
    rest = text[heading.end() :]
    end = re.search(r"\n\W*(?:Clinically (?:In)?significant|Matched Find|Explanation)", rest, re.I)
    return rest[: end.start() if end else len(rest)].lstrip(": \t\n")
