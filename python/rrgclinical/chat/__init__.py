"""Language models behind an OpenAI-compatible endpoint."""

from __future__ import annotations

from rrgclinical.chat.answers import after_reasoning, parse_json
from rrgclinical.chat.client import Chat, ChatSettings, Question, Unreadable, Usage, json_question
from rrgclinical.chat.templates import filled, read_template

__all__ = [
    "Chat",
    "ChatSettings",
    "Question",
    "Unreadable",
    "Usage",
    "after_reasoning",
    "filled",
    "json_question",
    "parse_json",
    "read_template",
]
