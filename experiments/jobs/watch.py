"""End a job's process after its slice of time, or without a scheduler."""

from __future__ import annotations

import os
import signal
import threading
import time


def stop_after(seconds: float | None) -> None:
    """End this process by SIGTERM after `seconds`, or when its parent has gone."""
    parent, began = os.getppid(), time.monotonic()

    def watch() -> None:
        while os.getppid() == parent:
            if seconds is not None and time.monotonic() - began > seconds:
                break
            time.sleep(0.5)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()
