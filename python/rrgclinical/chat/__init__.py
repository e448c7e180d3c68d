"""Language models behind an OpenAI-compatible endpoint."""

from __future__ import annotations

from rrgclinical.chat.answers import parse_json
from rrgclinical.chat.client import Chat, ChatSettings, Question, Usage, json_question

__all__ = ["Chat", "ChatSettings", "Question", "Usage", "json_question", "parse_json"]
