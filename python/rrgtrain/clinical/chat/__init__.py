"""Language models behind an OpenAI-compatible endpoint."""

from __future__ import annotations

from rrgtrain.clinical.chat.answers import parse_json
from rrgtrain.clinical.chat.client import Chat, Question, Usage, json_question

__all__ = ["Chat", "Question", "Usage", "json_question", "parse_json"]
