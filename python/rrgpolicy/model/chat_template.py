"""Render the user's turn by a tokenizer's chat template, in the sandbox of transformers."""

from __future__ import annotations

from typing import Any


def render_turn(tokenizer: Any, content: Any, answer: Any = None) -> str:
    """Render a user's message and the beginning of the answer by `apply_chat_template`.

    content, answer: text, or a list of parts as chat templates take them; the answer is the
    assistant's, whole, with what closes it. Raises whatever the template raises: callers go
    through `whole.fetch`, which makes one line of it.
    """
    messages = [{"role": "user", "content": content}]
    if answer is not None:
        messages.append({"role": "assistant", "content": answer})
    rendered: str = tokenizer.apply_chat_template(
        messages, tokenize=False, add_generation_prompt=answer is None
    )
    return rendered


def end_of_turn(tokenizer: Any) -> int | None:
    """Find the special token that the chat template writes behind an assistant's text.

    None where it writes none, or takes no answer. Raises as `render_turn`.
    """
    said = "The heart is normal."
    turn = render_turn(tokenizer, "Report.", said)
    if said not in turn:  # a template of a model that sees may take lists of parts alone
        part = {"type": "text"}
        turn = render_turn(tokenizer, [part | {"text": "Report."}], [part | {"text": said}])
    _, separator, behind = turn.rpartition(said)
    special = {i for i, token in tokenizer.added_tokens_decoder.items() if token.special}
    ids = tokenizer(behind, add_special_tokens=False)["input_ids"] if separator else []
    return next((i for i in ids if i in special), None)
