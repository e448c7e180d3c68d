"""Language models behind an OpenAI-compatible endpoint."""

from __future__ import annotations

from rrgclinical.chat.client import (
    Chat,
    ChatSettings,
    Message,
    Question,
    Unreadable,
    Usage,
    after_reasoning,
    json_question,
    parse_json,
)
from rrgclinical.chat.pair_judge import PairJudge

__all__ = [
    "Chat",
    "ChatSettings",
    "Message",
    "PairJudge",
    "Question",
    "Unreadable",
    "Usage",
    "after_reasoning",
    "json_question",
    "parse_json",
]
