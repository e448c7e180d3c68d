"""GREEN (Ostmeier et al., 2024): matched findings against significant errors, by a language model.

score = matched / (matched + sum of clinically significant errors), 0 where nothing matches
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rrgclinical.chat import Chat, ChatSettings, Question, Usage, filled, read_template
from rrgclinical.common.arguments import check_options, check_pairs
from rrgclinical.common.errors import UserError

# The prompt's letters, and the numbers that some models write in their place.
CATEGORIES, _NUMBERED = "abcdef", "123456"
_SIGNIFICANT, _MATCHED = "Clinically Significant Errors", "Matched Findings"
_NOTHING = re.compile(r"No(?:ne|t|thing)?\b", re.IGNORECASE)

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
    """One pair: findings that agree, and significant errors by category (a) to (f)."""

    matched: int
    errors: tuple[int, ...]
    text: str

    @property
    def score(self) -> float:
        """In [0, 1]."""
        return self.matched / (self.matched + sum(self.errors)) if self.matched else 0.0


class Green:
    """Judges pairs with the model behind an endpoint.

    The published score is that of GREEN-RadLlama2-7b with its own prompt, which `prompt` takes;
    with another model or the prompt here it is the same formula, and not GREEN's published value.
    """

    def __init__(self, chat: Chat, prompt: str | Path | None = None) -> None:
        """prompt: file with a template that holds {reference} and {candidate}; ours if None."""
        self.chat = chat
        self._template = _PROMPT if prompt is None else read_template("green", prompt)

    @property
    def usage(self) -> Usage:
        """Requests, tokens and cost so far."""
        return self.chat.usage

    def judge(self, reports: Sequence[str], references: Sequence[str]) -> list[Judgement]:
        """One judgement per pair; raises as `Chat.ask`. TypeError names a report not a str."""
        pairs = list(zip(*check_pairs(reports, references), strict=True))
        distinct = list(dict.fromkeys(pairs))
        questions = [Question(self._messages(*pair), parse_judgement) for pair in distinct]
        answers = dict(zip(distinct, self.chat.ask(questions), strict=True))
        return [answers[pair] for pair in pairs]

    def score(self, reports: Sequence[str], references: Sequence[str]) -> np.ndarray:
        """float64 `[R]` in [0, 1]."""
        judged = self.judge(reports, references)
        return np.array([judgement.score for judgement in judged], dtype=np.float64)

    def _messages(self, report: str, reference: str) -> list[dict[str, str]]:
        return [{"role": "user", "content": filled(self._template, report, reference)}]


def parse_judgement(text: str) -> Judgement:
    """Read the counts in a model's answer.

    A section that begins with "No", "None", "Not" or "Nothing" counts 0, and so does a category
    that is left out or has no number: a third of the published model's own answers leave some out.
    Where no letter names a category, (1) to (6) do.

    Answers in the layout of the prompt are read as the published parser (StanfordAIMI/GREEN) reads
    them. Of others it loses counts that stand here: one without a stop behind it ("2 things" is 0
    there, 2 here), one that is not a single blank behind its colon, all behind a blank line within
    a section, and a section that begins with a word such as "Nodule".

    Raises:
        ValueError: a section is missing, errors name no category, or matches begin with no number.
            There the published parser reads 0, which for errors is the best that can be.
    """
    errors = _errors(_section(text, _SIGNIFICANT))
    section = _section(text, _MATCHED)
    matched = re.match(r"\d+\b", section)
    if matched is None and not _NOTHING.match(section):
        raise ValueError(f"[{_MATCHED}] does not begin with a number")
    return Judgement(int(matched[0]) if matched else 0, errors, text)


def build_green(options: Mapping[str, Any], *, cache: str | Path | None = None) -> Green:
    """Build GREEN by the options of `ChatSettings`, and `prompt`.

    UserError where no endpoint is named or it does not answer.
    """
    if not options.get("endpoint"):
        raise UserError(
            "the term green needs a language model: set reward.options.green.endpoint and .model "
            "(GREEN-RadLlama2-7b behind any OpenAI-compatible server)"
        )
    # GREEN-RadLlama2-7b has 4,096 tokens for question and answer; a server refuses to promise more.
    settings = {"cache": cache, "json_mode": False, "max_tokens": 1024, **options}
    prompt = settings.pop("prompt", None)
    check_options("green", ChatSettings, settings)
    judge = Green(Chat(ChatSettings(**settings)), prompt)
    judge.chat.check()
    return judge


def _errors(section: str) -> tuple[int, ...]:
    if _NOTHING.match(section):
        return (0,) * len(CATEGORIES)
    for names in (CATEGORIES, _NUMBERED):
        if re.search(rf"\([{names}]\)", section):
            counts = dict(re.findall(rf"\(([{names}])\)[^\n]*?:\s*(\d+)\b", section))
            return tuple(int(counts.get(name, 0)) for name in names)
    raise ValueError(f"[{_SIGNIFICANT}] names no category")


def _section(text: str, name: str) -> str:
    start = text.find(f"[{name}]")
    if start < 0:
        raise ValueError(f"the section [{name}] is missing")
    start += len(name) + 2
    end = re.search(r"\n\s*\[(?:Clinically|Matched|Explanation)", text[start:])
    return text[start : start + end.start() if end else len(text)].lstrip(": \t\n")
