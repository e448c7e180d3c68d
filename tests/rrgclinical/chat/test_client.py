"""The client against a real server that also misbehaves."""

from __future__ import annotations

import json
import re
import socket
import time
from pathlib import Path
from typing import Any

import pytest

from rrgclinical.chat import Chat, ChatSettings, Question, json_question
from rrgclinical.common.json_reader import DEEPEST
from rrgtrain.errors import UserError
from tests.rrgclinical.chat.server import Reply, serving

USER = [{"role": "user", "content": "say ok"}]


@pytest.fixture(autouse=True)
def no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


def chat(url: str, **options: Any) -> Chat:
    return Chat(ChatSettings(url, "m", **{"timeout": 5.0, "tries": 3, **options}))


def plain(count: int = 1) -> list[Question[str]]:
    return [Question([{"role": "user", "content": str(i)}], str) for i in range(count)]


def wants_ok(value: Any) -> str:
    if value != {"ok": True}:
        raise ValueError('wanted {"ok": true}')
    return "fine"


OK = [json_question(USER, wants_ok)]


def test_what_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(lambda *_: Reply('{"ok": true}')) as server:
        assert chat(server.url + "/", max_tokens=7).ask(OK) == ["fine"]
        monkeypatch.setenv("MY_KEY", "secret")
        assert chat(server.url, key_variable="MY_KEY", json_mode=False).ask(OK) == ["fine"]
    assert server.asked[0] == {
        "model": "m",
        "messages": USER,
        "temperature": 0.0,
        "max_tokens": 7,
        "response_format": {"type": "json_object"},
    }
    assert "response_format" not in server.asked[1]
    assert server.keys == [None, "Bearer secret"]


def test_answers_come_in_order_and_no_more_at_once_than_allowed() -> None:
    def answer(_: int, body: dict[str, Any]) -> Reply:
        text = body["messages"][0]["content"]
        return Reply(f"a{text}", hang=0.04 - 0.002 * int(text))

    with serving(answer) as server:
        assert chat(server.url, concurrency=4).ask(plain(16)) == [f"a{i}" for i in range(16)]
        assert 2 <= server.at_once <= 4
        assert chat(server.url).ask([]) == []


@pytest.mark.parametrize(
    "bad",
    [
        Reply(status=429),
        Reply(status=500),
        Reply(status=503, body=b"<html>busy</html>"),
        Reply(cut=40),
        Reply(cut=0),
        Reply(body=b'{"error": {"message": "overloaded"}}'),
        Reply(body=b'{"choices": []}'),
        Reply(body=b"[]"),
        Reply(body=b'{"choices": [{"message": {"content": null}}]}'),
        Reply(body=b"[" * DEEPEST + b"[]" + b"]" * DEEPEST),
        Reply(body=b" " * 2001),
    ],
)
def test_what_passes_is_tried_again(bad: Reply, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rrgclinical.chat.transport._LARGEST", 2000)
    with serving(lambda number, _: bad if number < 2 else Reply()) as server:
        client = chat(server.url)
        assert client.ask(plain()) == ["ok"]
    assert len(server.asked) == 3
    assert (client.usage.requests, client.usage.retries) == (3, 2)


@pytest.mark.parametrize(
    "bad",
    [
        Reply(hang=20.0),
        Reply(drip=0.05),
        Reply(drip_head=0.05),
        Reply(drip=0.05, status=500),
        Reply(drip=0.05, status=401),
    ],
)
def test_a_server_that_hangs_or_drips_is_left(bad: Reply) -> None:
    began = time.monotonic()
    with serving(lambda number, _: bad if number < 1 else Reply()) as server:
        # long enough for the good answer on a busy machine
        assert chat(server.url, timeout=1.0).ask(plain()) == ["ok"]
    assert len(server.asked) == 2
    assert 0.95 < time.monotonic() - began < 5.0


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_no_redirect_is_followed(status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    with serving(lambda *_: Reply()) as other:
        there = other.url.replace("127.0.0.1", "localhost") + "/chat/completions?x=sk-secret"
        gone = Reply(status=status, headers={"Location": there})
        with (
            serving(lambda *_: gone) as server,
            pytest.raises(UserError, match=rf"{server.url} redirects to localhost; .*set endpoint"),
        ):
            chat(server.url).ask(plain())
    assert len(server.asked) == 1
    assert other.asked == []


@pytest.mark.parametrize(
    "usage",
    [
        *({"prompt_tokens": None}, [1], "many", None),
        *({"prompt_tokens": "7", "completion_tokens": -1}, {"prompt_tokens": True}),
        # more than anybody's
        {"prompt_tokens": 10**30, "completion_tokens": (1 << 40) + 1},
    ],
)
def test_a_usage_without_counts_counts_nothing(usage: Any) -> None:
    with serving(lambda *_: Reply(usage=usage)) as server:
        client = chat(server.url)
        assert client.ask(plain()) == ["ok"]
    assert len(server.asked) == 1
    assert (client.usage.prompt_tokens, client.usage.completion_tokens) == (0, 0)


def test_a_key_is_stripped_of_its_line_break(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret\n")
    with serving(lambda *_: Reply()) as server:
        chat(server.url).ask(plain())
    assert server.keys == ["Bearer sk-secret"]


@pytest.mark.parametrize("key", ["sk-sec\nret", "sk-sec\x00ret", "sk-sec ret", "sk-sec\xe9ret"])
def test_a_key_that_is_none_is_refused_by_its_variable(
    key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "\x00" in key:  # no environment takes it, a container's secret file may
        monkeypatch.setattr("os.environ", {"MY_KEY": key})
    else:
        monkeypatch.setenv("MY_KEY", key)
    with serving(lambda *_: Reply()) as server, pytest.raises(UserError) as told:
        chat(server.url, key_variable="MY_KEY").ask(plain())
    assert re.match(r"the key in MY_KEY holds '.{1,4}' as its character 7", str(told.value))
    assert "sec" not in str(told.value) and server.asked == []


def test_a_key_in_the_place_of_its_variable_is_not_told() -> None:
    with pytest.raises(UserError, match="key_variable is no name of") as told:
        chat("http://127.0.0.1:9/v1", key_variable="sk-secret")
    assert "secret" not in str(told.value)


@pytest.mark.parametrize("status", [200, 401, 403])
def test_nothing_shows_the_key_or_what_the_address_carries(
    status: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    echo = b'{"error":\n "no sk-secret, pass/word or q-secret here"}'
    log = tmp_path / "chat.jsonl"
    with serving(lambda *_: Reply(status=status, body=echo)) as server:
        carrying = server.url.replace("127.0.0.1", "me:pass%2Fword@127.0.0.1") + "?api-key=q-secret"
        with pytest.raises(UserError) as told:
            chat(carrying, log=log).ask(plain())
    assert str(told.value).startswith(server.url)
    assert "no ***, *** or *** here" in str(told.value) and "\n" not in str(told.value)
    for text in (str(told.value), log.read_text()):
        assert not any(secret in text for secret in ("sk-secret", "pass", "q-secret"))
    assert set(server.paths) == {"/v1/chat/completions?api-key=q-secret"}
    # a refusal is not tried again
    assert ("check the address" in str(told.value), len(server.asked)) == (
        (False, 3) if status == 200 else (True, 1)
    )


def test_a_server_that_is_down_is_named() -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{held.getsockname()[1]}/v1"
        with pytest.raises(
            UserError, match=r"failed 2 times, last with .*connection attempts failed.*is it up"
        ):
            chat(url, tries=2).ask(plain())


def test_waits_double_and_the_server_may_set_them() -> None:
    with serving(lambda number, _: Reply(status=500) if number < 2 else Reply()) as server:
        chat(server.url).ask(plain())
    first, second = server.waits
    assert 0.25 <= first <= 0.5 < 0.75 <= second <= 1.0

    for status in (429, 503):
        held = Reply(status=status, headers={"Retry-After": "7"})
        with serving(lambda number, _, held=held: held if number < 1 else Reply()) as server:
            chat(server.url).ask(plain())
        assert server.waits == [7.0]


def test_what_is_called_before_a_request_can_stop_the_rest() -> None:
    with serving(lambda *_: Reply()) as server:
        asker = chat(server.url, concurrency=1)

        def two_at_most() -> None:
            if asker.usage.requests == 2:
                raise UserError("no more")

        asker.before_request = two_at_most
        with pytest.raises(UserError, match="no more"):
            asker.ask(plain(5))
        assert len(server.asked) == 2


def test_the_first_failure_stops_the_rest() -> None:
    def answer(number: int, _: dict[str, Any]) -> Reply:
        return Reply(status=400) if number == 0 else Reply(hang=0.05)

    with serving(answer) as server, pytest.raises(UserError, match="HTTP 400"):
        chat(server.url, concurrency=2).ask(plain(50))
    assert len(server.asked) < 10


def test_a_wrong_form_is_repaired_once() -> None:
    replies = ["not json", '{"ok": true}']
    with serving(lambda number, _: Reply(replies[number])) as server:
        client = chat(server.url)
        assert client.ask(OK) == ["fine"]
    assert client.usage.repairs == 1
    again = server.asked[1]["messages"]
    assert again[:2] == [*USER, {"role": "assistant", "content": "not json"}]
    assert "cannot be used: Expecting value" in again[2]["content"]

    with (
        serving(lambda *_: Reply('{"ok": false}')) as server,
        pytest.raises(UserError, match=r'twice in a form that cannot be used \(wanted {"ok": true'),
    ):
        chat(server.url).ask(OK)
    assert len(server.asked) == 2


def test_answers_are_kept_by_what_was_asked_of_whom(tmp_path: Path) -> None:
    replies = iter(["junk", '{"ok": true}'])
    with serving(lambda *_: Reply(next(replies, '{"ok": true}'))) as server:
        assert chat(server.url, cache=tmp_path).ask(OK) == ["fine"]
        later = chat(server.url, cache=tmp_path)
        assert later.ask(OK) == ["fine"]
        assert later.usage.cached == 1
        assert len(server.asked) == 2  # junk was not kept, its repair was

        def stricter(value: Any) -> int:
            raise ValueError("another form")

        with pytest.raises(UserError, match="another form"):
            later.ask([json_question(USER, stricter)])
        assert len(server.asked) == 4
        chat(server.url, cache=tmp_path, max_tokens=9).ask(OK)
        Chat(ChatSettings(server.url, "other", cache=tmp_path)).ask(OK)
        assert len(server.asked) == 6


def test_cost_and_latency_are_logged(tmp_path: Path) -> None:
    log = tmp_path / "chat.jsonl"
    with serving(lambda number, _: Reply(status=500) if number == 0 else Reply()) as server:
        client = chat(server.url, log=log, input_price=2.0, output_price=30.0)
        client.ask(plain(2))
    rows = [json.loads(line) for line in log.read_text().splitlines()]
    assert len(rows) == 3
    assert sorted(row["failure"] or "" for row in rows) == ["", "", "HTTP 500"]
    assert all(row["seconds"] > 0 and row["model"] == "m" for row in rows)
    cost = 2 * (100 * 2.0 + 10 * 30.0) / 1e6
    assert client.usage.cost == pytest.approx(cost) == pytest.approx(sum(r["cost"] for r in rows))
    assert (client.usage.prompt_tokens, client.usage.completion_tokens) == (200, 20)
    logged = sum(row["seconds"] for row in rows)  # each rounded to 0.1 ms
    assert client.usage.seconds == pytest.approx(logged, rel=0, abs=len(rows) * 0.5e-4 + 1e-9)


@pytest.mark.parametrize(
    ("url", "options", "message"),
    [
        ("localhost:8000", {}, "wanted an address such as http://host:8000/v1"),
        ("http://h\n:80", {}, "wanted an address"),
        ("me:pw@host?k=v", {}, "endpoint 'host'; wanted an address"),
        ("http://x", {"concurrency": 0}, "concurrency is 0; wanted more than 0"),
        ("http://x", {"timeout": float("nan")}, "timeout is nan"),
        ("http://x", {"limit_name": "tokens"}, "limit_name is 'tokens'; wanted one of max_tokens"),
    ],
)
def test_impossible_options_are_refused(url: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        ChatSettings(url, "m", **options)
