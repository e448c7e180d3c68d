"""Word the user's turn by a file (`policy.prompt=FILE`), render it by a chat template.

A line of the file whose placeholders are all empty for a study is left out of its prompt, as that
of a section which the study lacks. A brace that is no placeholder is doubled. A placeholder is a
name and no more: a width as in `{current:>9}` could ask for any memory. Chat templates run in the
sandbox of transformers.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from rrgclinical.common.errors import UserError

THINKING = "enable_thinking"
"""Name by which templates are told whether the answer begins with reasoning."""
NO_KWARGS: Mapping[str, Any] = MappingProxyType({})


def template_kwargs(
    tokenizer: Any, own: Mapping[str, Any] = NO_KWARGS, *, reasons: bool = False
) -> dict[str, Any]:
    """Collect the values that a chat template is rendered with, beside the messages.

    `enable_thinking` is `reasons` where the template reads it: a template may open a block of
    reasoning else, in which the report would stand. own: values by name, which go before that.

    Raises UserError for a name in `own` that the template does not read, and for `own` that is no
    mapping, as in somebody's checkpoint.
    """
    if not isinstance(own, Mapping):
        raise UserError(f"policy.chat_template_kwargs is {own!r}; wanted values by their names")
    template = tokenizer.get_chat_template()
    for name in own:
        if not _reads(template, name):
            raise UserError(
                f"policy.chat_template_kwargs.{name}: the chat template of "
                f"{tokenizer.name_or_path} reads no {name}; leave it out"
            )
    return ({THINKING: reasons} if _reads(template, THINKING) else {}) | dict(own)


def _reads(template: str, name: str) -> bool:
    return re.search(rf"\b{re.escape(name)}\b", template) is not None


def render_turn(tokenizer: Any, content: Any, kwargs: Mapping[str, Any] = NO_KWARGS) -> str:
    """Render a user's message and the beginning of the answer by `apply_chat_template`.

    content: text, or a list of parts as chat templates take them; kwargs: see `template_kwargs`.
    Raises whatever the template raises: callers go through `whole.fetch`, which makes one line of
    it.
    """
    return _rendered(tokenizer, [{"role": "user", "content": content}], kwargs, begins=True)


def _conversation(
    tokenizer: Any, content: Any, answer: str, kwargs: Mapping[str, Any] = NO_KWARGS
) -> str:
    """Render a user's message and the assistant's whole answer, as the template writes both."""
    # a template of a model that sees may take lists of parts alone
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
    rendered = ""
    for asks, says in ((content, answer), (parts, [{"type": "text", "text": answer}])):
        turns = [{"role": "user", "content": asks}, {"role": "assistant", "content": says}]
        rendered = _rendered(tokenizer, turns, kwargs)
        if answer in rendered:
            break
    return rendered


def _rendered(
    tokenizer: Any, turns: list[dict[str, Any]], kwargs: Mapping[str, Any], *, begins: bool = False
) -> str:
    text: str = tokenizer.apply_chat_template(
        turns, tokenize=False, add_generation_prompt=begins, **kwargs
    )
    return text


def end_of_turn(tokenizer: Any) -> int | None:
    """Find the special token that the chat template writes behind an assistant's text.

    None where it writes none, or takes no answer. Raises as `render_turn`.
    """
    answer = "The heart is normal."
    _, separator, behind = _conversation(tokenizer, "Report.", answer).rpartition(answer)
    special = {i for i, token in tokenizer.added_tokens_decoder.items() if token.special}
    ids = tokenizer(behind, add_special_tokens=False)["input_ids"] if separator else []
    return next((i for i in ids if i in special), None)


def parting(
    tokenizer: Any, content: Any, answer: str, kwargs: Mapping[str, Any]
) -> tuple[str, str, str] | None:
    """Find where prompt, answer and end of turn leave the template's own conversation.

    Returns what both write before that, what training writes from there on, and what the template
    does; None where training writes the beginning of the conversation. Raises as `render_turn`.
    """
    end = end_of_turn(tokenizer)
    closing = "" if end is None else tokenizer.convert_ids_to_tokens(end)
    trained = render_turn(tokenizer, content, kwargs) + answer + closing
    return parted(trained, _conversation(tokenizer, content, answer, kwargs))


def parted(trained: str, conversation: str) -> tuple[str, str, str] | None:
    """Split two texts where the first leaves the second, as `parting` does."""
    if conversation.startswith(trained):
        return None
    pairs = enumerate(zip(trained, conversation, strict=False))
    at = next((k for k, (a, b) in pairs if a != b), len(conversation))
    return trained[:at], trained[at:], conversation[at:]


LONGEST = 20_000
"""Characters of a template, as many as of a report (`data.longest_text`)."""
_BRACES = re.compile(r"{{|}}|{[^{}]*}|[{}]")
PLACEHOLDERS = ("current", "prior", "indication", "technique", "comparison")


def filled(path: str, values: Mapping[str, str]) -> str:
    """The template in `path` with the study's `values`, one for each of PLACEHOLDERS."""
    lines = []
    for line, named in _lines(path):
        if not named or any(values[name] for name in named):
            lines.append(line.format(**values))
    return "\n".join(lines)


def check_prompt(prompt: str, styles: Sequence[str]) -> None:
    """Raise UserError unless it is a wording in `styles` or a file to fill."""
    if prompt in styles:
        return
    if not Path(prompt).expanduser().is_file():
        near = difflib.get_close_matches(prompt, styles, n=1)
        meant = f"; did you mean {near[0]}?" if near else f"; use one of {', '.join(styles)}"
        raise UserError(f"policy.prompt={prompt} is no file and no wording{meant}")
    _lines(prompt)


@lru_cache(maxsize=8)
def _lines(path: str) -> list[tuple[str, list[str]]]:
    """Each line with its placeholders; UserError for what is none, or a file without any."""
    try:
        with Path(path).expanduser().open(encoding="utf-8-sig") as file:
            text = file.read(LONGEST + 1)
    except (OSError, ValueError) as error:
        raise UserError(f"policy.prompt={path} cannot be read ({error}); wanted UTF-8") from error
    if len(text) > LONGEST:
        raise UserError(f"policy.prompt={path} has more than {LONGEST:,} characters; shorten it")
    lines = []
    listed = ", ".join(f"{{{name}}}" for name in PLACEHOLDERS)
    for line in text.strip("\n").splitlines():
        named = [mark for mark in _BRACES.findall(line) if mark not in ("{{", "}}")]
        if foreign := next((mark for mark in named if mark[1:-1] not in PLACEHOLDERS), None):
            raise UserError(
                f"policy.prompt={path} holds {foreign[:40]}; there are {listed}, each a name "
                "alone; double a brace that is no placeholder"
            )
        lines.append((line, [mark[1:-1] for mark in named]))
    if not any(named for _, named in lines):
        raise UserError(
            f"policy.prompt={path} has no placeholder, so nothing of a study would stand in it; "
            f"write at least one of {listed}"
        )
    return lines
