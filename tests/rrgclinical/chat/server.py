"""A chat endpoint on this machine that answers, or misbehaves, as a test tells it."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from unittest.mock import patch


@dataclass(frozen=True)
class Reply:
    """text: the model's answer. cut: bytes of the body that are sent. hang: seconds before it.
    drip: seconds between its bytes; drip_head: between those of the headers. body: sent instead of
    a chat completion. usage: what the server says that it counted. message, choice: further fields.
    """

    text: Any = "ok"
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    cut: int | None = None
    hang: float = 0.0
    drip: float = 0.0
    drip_head: float = 0.0
    body: bytes | None = None
    message: dict[str, Any] = field(default_factory=dict)
    choice: dict[str, Any] = field(default_factory=dict)
    usage: Any = field(default_factory=lambda: {"prompt_tokens": 100, "completion_tokens": 10})

    def content(self) -> bytes:
        if self.body is not None:
            return self.body
        message = {"role": "assistant", "content": self.text, **self.message}
        whole = {"choices": [{"message": message, **self.choice}], "usage": self.usage}
        return json.dumps(whole).encode()


@dataclass
class Server:
    """url: the endpoint. asked: the bodies received, in order. at_once: most at the same time.
    waits: seconds that the client paused before it tried again, none of which were slept.
    """

    url: str
    asked: list[dict[str, Any]] = field(default_factory=list)
    keys: list[str | None] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)
    at_once: int = 0


@contextmanager
def serving(answer: Callable[[int, dict[str, Any]], Reply]) -> Iterator[Server]:
    """`answer(number of the request, its body)` decides every reply."""
    lock = threading.Lock()
    closing = threading.Event()
    now = 0

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            nonlocal now
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with lock:
                number = len(server.asked)
                server.asked.append(body)
                server.keys.append(self.headers.get("Authorization"))
                server.paths.append(self.path)
                now += 1
                server.at_once = max(server.at_once, now)
            try:
                reply = answer(number, body)
                closing.wait(reply.hang)
            finally:
                # Before the reply: whoever has it may ask again before this thread goes on.
                with lock:
                    now -= 1
            # The client may have given up, as some tests want it to.
            with suppress(BrokenPipeError, ConnectionResetError):
                self._send(reply)

        def _send(self, reply: Reply) -> None:
            content = reply.content()
            if reply.drip_head:
                self._drip(b"HTTP/1.1 200 OK\r\nX: " + b"x" * 1000, reply.drip_head)
                return
            self.send_response(reply.status)
            for name, value in reply.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            sent = content[: reply.cut]
            if not reply.drip:
                self.wfile.write(sent)
                return
            self._drip(sent, reply.drip)

        def _drip(self, content: bytes, pause: float) -> None:
            for byte in content:
                self.wfile.write(bytes([byte]))
                if closing.wait(pause):
                    return

        def log_message(self, *_: object) -> None:
            """Nothing on standard error."""

    httpd = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    httpd.daemon_threads = True
    server = Server(f"http://127.0.0.1:{httpd.server_address[1]}/v1")
    thread = threading.Thread(target=httpd.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()

    async def sleep(seconds: float) -> None:
        server.waits.append(seconds)

    try:
        with patch("anyio.sleep", sleep), patch.dict(os.environ, no_proxy="127.0.0.1"):
            yield server
    finally:
        closing.set()
        httpd.shutdown()
        httpd.server_close()
        thread.join()
