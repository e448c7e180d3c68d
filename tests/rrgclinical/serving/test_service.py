"""The service over HTTP, and its client beside services that are gone, slow or wrong."""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.request import Request, urlopen

import numpy as np
import pytest

from rrgclinical.common.errors import UserError
from rrgclinical.common.json_reader import DEEPEST
from rrgclinical.serving import RewardClient, ServiceError, easyr1_reward, swift_reward, verl_reward
from rrgclinical.serving import app as served
from rrgclinical.serving.app import address_of, listen
from rrgclinical.serving.batcher import BatchSettings
from tests.rrgclinical.serving.service import Lengths, answering, opened, serving, until


def asked(url: str, path: str, body: bytes | None = None) -> tuple[int, str]:
    """Status and text of a request, POST where there is a body."""
    host, port = url.removeprefix("http://").split(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=30)
    connection.request("GET" if body is None else "POST", path, body)
    response = connection.getresponse()
    text = response.read().decode()
    connection.close()
    return response.status, text


OF_VERL = {"reward_router_address": "127.0.0.1:1", "reward_model_tokenizer": None}
"""Keywords that verl 0.9.1 passes to every function where a reward model of its own runs too."""


def test_every_client_gets_the_scores_of_its_reports() -> None:
    with serving(Lengths(), BatchSettings(8, 0.005, 500)) as (url, batcher):
        client = RewardClient(url)
        with ThreadPoolExecutor(8) as pool:
            texts = [["x" * k] * (1 + k % 3) for k in range(40)]
            references = [["z"] * len(own) for own in texts]
            found = list(pool.map(lambda own, z: client(own, z, 0.5), texts, references))
        for own, scores in zip(texts, found, strict=True):
            assert scores["own"].tolist() == [len(r) / 7 for r in own]
            assert scores["total"].tolist() == [0.5 * (len(r) / 7) for r in own]
        assert client([], [])["total"].shape == (0,)

        async def many() -> list[dict[str, float]]:
            return await asyncio.gather(
                *(verl_reward("iu", "y" * k, "z", {}, url=url, **OF_VERL) for k in range(30))
            )

        assert asyncio.run(many()) == [{"score": k / 7, "own": k / 7} for k in range(30)]
        with pytest.raises(ValueError, match="reward_kwargs has 'urll'; wanted url alone"):
            asyncio.run(verl_reward("iu", "y", "z", urll=url))
        assert swift_reward(["yy"], report=["z"], url=url) == [2 / 7]
        with pytest.raises(ValueError, match="no column 'report', it has solution"):
            swift_reward(["yy"], solution=["z"], url=url)
        rows = [{"response": "yyy", "ground_truth": "z"}, {"response": "", "ground_truth": "z"}]
        assert easyr1_reward(rows, url=url) == [
            {"overall": 3 / 7, "own": 3 / 7},
            {"overall": 0.0, "own": 0.0},
        ]
        counts = batcher.counts
        assert counts.reports == sum(map(len, texts)) + 33 and counts.batches < counts.requests
        status, text = asked(url, "/metrics")
        rows = dict(line.rsplit(" ", 1) for line in text.splitlines() if line[0] != "#")
        assert status == 200 and int(rows["rrg_reward_reports_total"]) == counts.reports
        assert float(rows['rrg_reward_scorer{name="texts/read"}']) == 3
        assert asked(url, "/health") == (200, '{"status":"ok","waiting":0}')


def test_what_is_wrong_with_a_request_is_one_line() -> None:
    cases = [
        ("no", "no JSON object"),
        ("[1]", "no JSON object"),
        ("[" * DEEPEST + "[]" + "]" * DEEPEST, "no JSON object"),
        ({}, "reports is None; wanted a sequence of str"),
        ({"reports": "a", "references": ["b"]}, "reports is one str"),
        ({"reports": ["a"], "references": [None]}, "references[0] is NoneType; wanted str"),
        ({"reports": ["a"], "references": []}, "1 reports and 0 references; wanted one for"),
        ({"reports": [], "references": []}, "no reports; send at least one"),
        ({"reports": ["a", "b"], "references": ["c", " N/A"]}, "references[1] is ' N/A', and no"),
        ({"reports": ["a"], "references": ["b"], "steps": 3}, "the request has 'steps'"),
        *(
            ({"reports": ["a"], "references": ["b"], "progress": bad}, "wanted a share")
            for bad in (2, -0.1, "1", True, None, float("nan"))
        ),
        ({"reports": ["a"] * 21, "references": ["b"] * 21}, "the queue holds 20; send fewer"),
    ]
    with serving(Lengths(), BatchSettings(8, 0.0, 20)) as (url, _):
        for case, line in cases:
            body = case if isinstance(case, str) else json.dumps(case)
            status, text = asked(url, "/score", body.encode())
            message = json.loads(text)["error"]
            assert status == 400 and line in message and "\n" not in message, (case, text)
        poison = json.dumps({"reports": ["poison"], "references": ["b"]}).encode()
        status, text = asked(url, "/score", poison)
        assert status == 500 and "ArithmeticError: poison (" in text
        for path, sent, refused, line in (
            ("/scores", None, 404, "nothing at /scores; POST /score"),
            ("/score/", b"{}", 404, "nothing at /score/; POST /score"),
            ("/score", None, 405, "no GET /score; POST /score"),
            ("/health", b"{}", 405, "no POST /health; POST /score, GET /health"),
        ):
            status, text = asked(url, path, sent)
            assert status == refused and json.loads(text)["error"].startswith(line), text
        for path in ("/health", "/metrics"):
            with urlopen(Request(url + path, method="HEAD"), timeout=10) as answer:
                assert answer.status == 200 and answer.read() == b"", path
        # none of it has harmed the service
        assert RewardClient(url)(["aa"], ["b"])["own"].tolist() == [2 / 7]


def test_a_full_queue_is_waited_for_and_the_wait_has_an_end() -> None:
    scorer = Lengths()
    scorer.gate.clear()
    with serving(scorer, BatchSettings(1, 0.0, 1)) as (url, batcher), ThreadPoolExecutor(3) as pool:
        held = pool.submit(RewardClient(url), ["a"], ["z"])
        until(lambda: scorer.calls == 1)
        taken = pool.submit(RewardClient(url), ["b"], ["z"])
        until(lambda: batcher.waiting == 1)
        with pytest.raises(ServiceError, match=r"no room for 3 s \(1 reports are waiting"):
            RewardClient(url, timeout=3)(["c"], ["z"])  # of a request on a busy machine too
        patient = pool.submit(RewardClient(url, timeout=30), ["d"], ["z"])
        until(lambda: batcher.counts.refused >= 2)
        scorer.gate.set()
        for future in (held, taken, patient):
            assert future.result(30)["own"].tolist() == [1 / 7]
    assert ["c"] not in scorer.batches


def test_a_service_that_is_stopped_answers_all_that_it_took() -> None:
    scorer = Lengths()
    scorer.gate.clear()
    with ThreadPoolExecutor(8) as pool:
        with serving(scorer, BatchSettings(1, 0.0, 100)) as (url, batcher):
            futures = [pool.submit(RewardClient(url), ["x" * k], ["z"]) for k in range(1, 7)]
            until(lambda: scorer.calls == 1 and batcher.waiting == 5)
            threading.Timer(0.2, scorer.gate.set).start()
        assert [f.result(30)["own"].tolist() for f in futures] == [[k / 7] for k in range(1, 7)]
    with pytest.raises(ServiceError, match=r"is gone \(.*refused.*rrgtrain serve RECIPE"):
        RewardClient(url)(["a"], ["z"])


HALF = b"POST /score HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{"


def test_half_a_request_holds_no_stop_and_is_no_fault(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(served, "SILENT_SECONDS", 0.5)
    began = time.monotonic()
    with serving(Lengths()) as (url, _):
        with opened(url) as gone:
            gone.sendall(HALF)
        silent = opened(url)
        silent.sendall(HALF)
        assert RewardClient(url)(["a"], ["z"])["own"] == [1 / 7]
        time.sleep(0.1)
    with silent:
        told = silent.recv(1 << 16).decode()
    assert time.monotonic() - began < 20  # `serving` waits 30 s for the end
    assert " 408 " in told and "send it whole" in told and not caplog.records


def test_a_slow_request_is_read_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served, "SILENT_SECONDS", 0.5)
    body = json.dumps({"reports": ["abc"], "references": ["z"]}).encode()
    head = f"POST /score HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    with serving(Lengths()) as (url, _), opened(url) as slow:
        slow.sendall(head)
        for byte in body:
            slow.sendall(bytes([byte]))
            time.sleep(0.02)
        assert b" 200 OK" in slow.recv(1 << 16)


def test_https_that_fails_is_told_as_that_and_credentials_are_sent() -> None:
    heads = []
    sent = http.client.HTTPConnection.request
    with serving(Lengths()) as (url, _), pytest.MonkeyPatch.context() as patch:
        client = RewardClient(url.replace("http:", "https:"))
        with pytest.raises(ServiceError, match="cannot be asked by https .*SSL_CERT_FILE"):
            client(["a"], ["z"])

        def request(self: Any, *arguments: Any) -> None:
            heads.append(arguments[3])
            sent(self, *arguments)

        patch.setattr(http.client.HTTPConnection, "request", request)
        RewardClient(url.replace("//", "//me:a%40b@"))(["a"], ["z"])
        RewardClient(url)(["a"], ["z"])
    assert [head.get("Authorization") for head in heads] == ["Basic bWU6YUBi", None]


def reply(content: str, status: str = "200 OK", more: str = "") -> Callable[[socket.socket], None]:
    head = f"HTTP/1.1 {status}\r\nContent-Length: {len(content)}\r\n{more}\r\n"
    return lambda connection: connection.sendall((head + content).encode())


def scores(**values: object) -> str:
    return json.dumps({"scores": values})


def drip(connection: socket.socket) -> None:
    try:
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n")
        for _ in range(300):
            connection.sendall(b" ")
            time.sleep(0.02)
    except OSError:
        return


def test_a_service_that_is_wrong_or_slow_or_cut_gives_a_line_and_no_score() -> None:
    cases = [
        (reply(scores(total=[1.0])), "with 1 scores of total for 2 reports"),
        (reply(scores(total=[1.0, 2.0], own=[1.0])), "with 1 scores of own for 2 reports"),
        (reply(scores(total=[1.0] * 3)), "with 3 scores of total for 2 reports"),
        (reply(scores(total=[1.0, None])), "with None as a score of total"),
        (reply(scores(total=[1.0, True])), "with True as a score of total"),
        (reply(scores(total=[False, 1.0])), "with False as a score of total"),
        (reply(scores(total=[1.0, "0"])), "with 0 as a score of total"),
        (reply(scores(total=[1.0, float("nan")])), "with nan as a score of total"),
        (reply(scores(total=3)), "with int scores of total"),
        (reply(scores(own=[1.0, 1.0])), 'without "scores" and their "total"'),
        (reply("<html>"), "what is no JSON"),
        (reply("<html>", "404 Not Found"), "answered HTTP 404: <html>"),
        (reply(json.dumps({"error": "it\nbroke"}), "500 Error"), "answered HTTP 500: it broke"),
        (drip, "gave no whole answer within 0.3 s"),
        (lambda connection: time.sleep(0.6), "gave no whole answer within 0.3 s"),
        (lambda connection: None, "is gone ("),
        (lambda c: c.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{"), "is gone ("),
        (lambda connection: connection.sendall(b"nothing\r\n\r\n"), "is gone ("),
    ]
    for answer, line in cases:
        with answering(answer) as url, pytest.raises(ServiceError) as caught:
            RewardClient(url, timeout=0.3)(["a", "b"], ["c", "d"])
        message = str(caught.value)
        assert line in message and url in message and "\n" not in message, message
        assert "no report of this call has a score" in message


def test_addresses_that_are_none_are_refused() -> None:
    for bad in (
        *("localhost:8008", "ftp://host", "http://", "http://host:port", "http://host:0", ""),
        *("http://host:99999", "http://a b:80", "http://h\n:80", "http://..:80", "http://[::1"),
        *(f"http://{'a' * 300}:80", "http://h/\xe9", "http://h/a b", "http://h\u2028:80"),
        *("http://h:80/?key=x", "http://h:80#x", None, 3, b"http://h:80", ["http://h:80"]),
    ):
        with pytest.raises(UserError, match="wanted an address such as") as caught:
            RewardClient(bad)  # type: ignore[arg-type]
        assert len(str(caught.value).splitlines()) == 1
    for time_ in (0, -1.0, float("nan"), float("inf"), 1e300, 10**400, None, "3", [1], True):
        with pytest.raises(UserError, match="more than 0 seconds") as caught:
            RewardClient(timeout=time_)  # type: ignore[arg-type]
        assert len(str(caught.value)) < 150
    assert RewardClient(timeout=np.float32(2.0)).timeout == 2.0


def test_a_place_that_cannot_be_listened_at_is_told_with_its_mend() -> None:
    with listen("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UserError, match=f"cannot listen on 127.0.0.1:{port} .*another --port"):
            listen("127.0.0.1", port)
        assert address_of(taken) == f"http://127.0.0.1:{port}"
    for bad in (99999, -1):
        with pytest.raises(UserError, match=f"cannot listen on 127.0.0.1:{bad} .*from 0 to 65535"):
            listen("127.0.0.1", bad)
    for host in ("no.such.host.invalid", "300.1.1.1", "http://127.0.0.1", "a" * 300, "192.0.2.1"):
        with pytest.raises(UserError, match="--host is an address of this machine") as caught:
            listen(host, 0)
        assert "another --port" not in str(caught.value)
