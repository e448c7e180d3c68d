"""Read the text of a completion: a text itself, or the messages of a conversation."""

from __future__ import annotations

from typing import Any


def completion_text(completion: Any) -> str:
    """Return the text of a completion.

    A str is its own; the messages of a conversation are joined.

    A part of a message that has no text, such as an image, adds nothing; a message whose content
    is None is empty, as one that calls a tool. Raises TypeError for anything else: text of another
    type of part is not left out.
    """
    if isinstance(completion, str):
        return completion
    if isinstance(completion, list) and completion:
        return "\n".join(_content(message) for message in completion)
    shown = "an empty list" if completion == [] else type(completion).__name__
    raise TypeError(f"a completion is {shown}; wanted text or a list of messages")


def _content(message: Any) -> str:
    if not isinstance(message, dict) or "content" not in message:
        raise TypeError(f"a message is {message!r:.80}; wanted a dict with role and content")
    content = message["content"]
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, list) or not all(isinstance(part, dict) for part in content):
        raise TypeError(f"a message's content is {content!r:.80}; wanted text or a list of parts")
    return "".join(map(_text, content))


def _text(part: dict[str, Any]) -> str:
    text = part.get("text")
    # a column of parts of several types has a None where a type has no such key
    if text is None and isinstance(part.get("type"), str) and part["type"] != "text":
        return ""
    if part.get("type") not in ("text", "output_text") or not isinstance(text, str):
        raise TypeError(f"a part of a message is {part!r:.80}; wanted its type text, and a text")
    return text
