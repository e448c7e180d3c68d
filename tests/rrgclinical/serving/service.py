"""A service in a thread on a free port, with a scorer of lengths; and servers that misbehave."""

from __future__ import annotations

import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from rrgclinical.serving.app import listen, make_app, server_of
from rrgclinical.serving.batcher import Batcher, BatchSettings


class Lengths:
    """Scores by length, and keeps the sizes of its batches; `gate` holds it."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.calls = 0
        self.progress: list[float] = []
        self.gate = threading.Event()
        self.gate.set()

    def __call__(self, reports: Sequence[str], references: Sequence[str], progress: float):
        self.calls += 1
        assert self.gate.wait(30)
        self.batches.append(list(reports))
        self.progress.append(progress)
        if any("poison" in report for report in reports):
            raise ArithmeticError("poison\nis not read")
        if "exit" in reports:
            sys.exit(3)
        own = np.array([len(r) / 7 for r in reports])
        return {"total": progress * own, "own": own}


@contextmanager
def serving(
    score: Callable, settings: BatchSettings | None = None
) -> Iterator[tuple[str, Batcher]]:
    """The address of a service, and its batcher; at the end it is stopped as a signal stops it."""
    batcher = Batcher(score, settings)
    listening = listen("127.0.0.1", 0)
    server = server_of(make_app(batcher, lambda: {"texts/read": 3.0}))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        until(lambda: server.started)
        yield f"http://127.0.0.1:{listening.getsockname()[1]}", batcher
    finally:
        server.should_exit = True
        thread.join(30)
        listening.close()


@contextmanager
def answering(answer: Callable[[socket.socket], None]) -> Iterator[str]:
    """The address of a server that reads a request and leaves its connection to `answer`."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def work() -> None:
            while True:
                try:
                    connection, _ = listening.accept()
                except OSError:
                    return
                with connection:
                    connection.recv(1 << 16)
                    answer(connection)

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        listening.shutdown(socket.SHUT_RDWR)
        thread.join(30)


def opened(url: str) -> socket.socket:
    """Connect to a service."""
    host, port = url.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=30)


def until(reached: Callable[[], bool]) -> None:
    """Wait for what another thread does."""
    end = time.monotonic() + 30
    while not reached():
        assert time.monotonic() < end, "it was not reached in 30 s"
        time.sleep(0.002)
