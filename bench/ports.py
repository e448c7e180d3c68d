"""Choose ports for processes that are yet to start."""

from __future__ import annotations

import contextlib
import random
import socket


def free_port() -> int:
    """Find a free port below those that the system gives out.

    None of the system's own choices takes it before it is used.
    """
    for port in random.SystemRandom().sample(range(20_000, 32_000), 100):
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
    raise OSError("a hundred ports between 20000 and 32000 are all taken")
