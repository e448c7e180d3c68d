"""Render the user's turn by a tokenizer's chat template, in the sandbox of transformers."""

from __future__ import annotations

import re
from collections.abc import Mapping
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
    turns = [{"role": "user", "content": content}, {"role": "assistant", "content": answer}]
    rendered = _rendered(tokenizer, turns, kwargs)
    if answer in rendered:
        return rendered
    # a template of a model that sees may take lists of parts alone
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
    turns = [
        {"role": "user", "content": parts},
        {"role": "assistant", "content": [{"type": "text", "text": answer}]},
    ]
    return _rendered(tokenizer, turns, kwargs)


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
    conversation = _conversation(tokenizer, content, answer, kwargs)
    if conversation.startswith(trained):
        return None
    pairs = enumerate(zip(trained, conversation, strict=False))
    at = next((k for k, (a, b) in pairs if a != b), len(conversation))
    return trained[:at], trained[at:], conversation[at:]
