"""What the service does with connections, files and bodies, whatever is asked."""

from __future__ import annotations

import resource
import socket
import threading
from typing import Any

import pytest

from rrgclinical.serving import RewardClient
from rrgclinical.serving import app as served
from tests.rrgclinical.serving.service import Lengths, serving, until
from tests.rrgclinical.serving.test_service import asked


def opened(url: str) -> socket.socket:
    host, port = url.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=30)


def test_a_connection_that_asks_nothing_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served, "SILENT_SECONDS", 0.2)
    with serving(Lengths()) as (url, _), opened(url) as silent, opened(url) as slow:
        slow.sendall(b"POST /score HTTP/1.1\r\nHost: a\r\n")
        assert silent.recv(1) == b"" and slow.recv(1) == b""
        assert asked(url, "/health")[0] == 200


def test_more_connections_than_files_are_told_to_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served, "_most_connections", lambda: 2)
    with serving(Lengths()) as (url, _):
        held = [opened(url) for _ in range(2)]
        until(lambda: asked(url, "/health")[0] == 503)
        for connection in held:
            connection.close()
        until(lambda: asked(url, "/health")[0] == 200)


def test_a_service_leaves_files_to_its_scorer() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(256, hard), hard))
        assert served._most_connections() == hard - served.SPARE_FILES
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == hard
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_request_is_read_beside_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    threads, parse = [], served.json_reader.parse

    def seen(*arguments: Any) -> Any:
        threads.append(threading.current_thread())
        return parse(*arguments)

    monkeypatch.setattr(served.json_reader, "parse", seen)
    with serving(Lengths()) as (url, _):
        assert RewardClient(url)(["ab"], ["z"])["own"] == [2 / 7]
    assert threads[0].name.startswith("asyncio_")  # the second is of the answer, in the client
