"""Answers as servers and models give them: reasoning, parts, fences, refusals, other limits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rrgclinical.chat import Unreadable, after_reasoning, parse_json
from rrgtrain.errors import UserError
from tests.rrgclinical.cases import table
from tests.rrgclinical.chat.server import Reply, serving
from tests.rrgclinical.chat.test_client import OK, chat, no_key

__all__ = ["no_key"]


@pytest.mark.parametrize(
    ("text", "value"),
    [(' {"a": 1}\n', {"a": 1}), ("```json\n[1]\n```", [1]), ("```\n{}\n```\n", {})],
)
def test_strict_json(text: str, value: Any) -> None:
    assert parse_json(text) == value


@pytest.mark.parametrize("text", table("no JSON"))
def test_what_is_no_json(text: str) -> None:
    with pytest.raises(ValueError):
        parse_json(text)


@pytest.mark.parametrize("fence", ["{}", "```json\n{}\n```", "Here it is:\n\n```\n{}\n```\nDone."])
@pytest.mark.parametrize("before", ["", "Sure! ", "The answer is below.\n"])
def test_json_behind_a_sentence_or_in_a_fence(before: str, fence: str) -> None:
    for value in ('{"a": {"b": [1, "}"]}}', "{}"):
        assert parse_json(before + fence.format(value)) == json.loads(value)


@pytest.mark.parametrize(
    "tag", ["<think>{}</think>", "<Thinking>{}</Thinking>", "[THINK]{}[/THINK]"]
)
def test_the_answer_stands_behind_the_last_block_of_reasoning(tag: str) -> None:
    draft, answer = 'I try {"ok": false}.', '{"ok": true}'
    block = tag.format(draft)
    for text in (
        block + answer,
        f"{block}\n{block}\n\n{answer}\n",
        block[block.index(draft) :] + answer,
    ):
        assert after_reasoning(text) == answer
    assert after_reasoning(answer) == answer
    for open_end in (tag.split("{")[0] + answer, block + tag.split("{")[0] + answer):
        with pytest.raises(ValueError, match="reasoning alone, whose block never ends"):
            after_reasoning(open_end)


GOOD = '{"ok": true}'
PARTS = [{"type": "thinking", "thinking": [{"text": "{}"}]}, {"type": "text", "text": GOOD}]


@pytest.mark.parametrize(
    ("first", "told"),
    [
        (Reply(f"<think>{GOOD}"), "reasoning alone"),
        (Reply('{"ok": tr', choice={"finish_reason": "length"}), "cut at the limit of tokens"),
        (Reply(GOOD, choice={"finish_reason": "length"}), "cut at the limit of tokens"),
        (
            Reply(None, message={"reasoning_content": "hm"}, choice={"finish_reason": "length"}),
            "cut",
        ),
        (Reply(None, message={"refusal": "I cannot help."}), "the model refused: 'I cannot help.'"),
        (Reply("", choice={"finish_reason": "content_filter"}), "filter kept it back"),
    ],
)
def test_what_is_no_answer_is_asked_for_again_with_the_reason(first: Reply, told: str) -> None:
    with serving(lambda number, _: Reply(GOOD) if number else first) as server:
        assert chat(server.url).ask(OK) == ["fine"]
    again = server.asked[1]["messages"]
    assert told in again[-1]["content"]
    roles = [message["role"] for message in again]
    assert roles == (["user", "assistant", "user"] if first.text else ["user"])
    with serving(lambda *_: first) as server, pytest.raises(Unreadable, match="answered twice"):
        chat(server.url).ask(OK)


@pytest.mark.parametrize(
    "reply",
    [Reply(PARTS), Reply(f"<think>{{}}</think>\n{GOOD}"), Reply(f"Here:\n```json\n{GOOD}\n```")],
)
def test_dialects_of_an_answer(reply: Reply, tmp_path: Path) -> None:
    with serving(lambda *_: reply) as server:
        assert chat(server.url, cache=tmp_path).ask(OK) == ["fine"]
        assert chat(server.url, cache=tmp_path).ask(OK) == ["fine"]
    assert len(server.asked) == 1


def test_servers_that_want_other_names_of_a_limit() -> None:
    """The line of a refusal names the setting, and with it the request is taken."""

    def strict(_: int, body: dict[str, Any]) -> Reply:
        for name, good in (("max_tokens", "max_completion_tokens"), ("temperature", "")):
            if name in body:
                said = f"Unsupported: '{name}'." + f" Use '{good}' instead." * bool(good)
                return Reply(status=400, body=json.dumps({"error": said}).encode())
        return Reply(GOOD)

    mended: dict[str, Any] = {}
    with serving(strict) as server:
        with pytest.raises(UserError, match="set limit_name to max_completion_tokens"):
            chat(server.url).ask(OK)
        mended["limit_name"] = "max_completion_tokens"
        with pytest.raises(UserError, match="set temperature to null"):
            chat(server.url, **mended).ask(OK)
        off = {"chat_template_kwargs": {"enable_thinking": False}}
        assert chat(server.url, **mended, temperature=None, request=off).ask(OK) == ["fine"]
    assert server.asked[-1]["chat_template_kwargs"] == {"enable_thinking": False}
    assert server.asked[-1]["max_completion_tokens"] == 4096
