"""Language models behind an OpenAI-compatible endpoint."""

from __future__ import annotations

from rrgclinical.chat.answers import parse_json
from rrgclinical.chat.client import Chat, ChatSettings, Question, Usage, json_question
from rrgclinical.chat.templates import filled, read_template

__all__ = [
    "Chat",
    "ChatSettings",
    "Question",
    "Usage",
    "filled",
    "json_question",
    "parse_json",
    "read_template",
]
