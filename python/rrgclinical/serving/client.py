"""Ask a reward service for scores; a failure is one line, never a score."""

from __future__ import annotations

import http.client
import json
import math
import socket
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from rrgclinical.common import json_reader
from rrgclinical.common.errors import UserError
from rrgclinical.common.shown import shown_url

_AGAIN = (
    "no report of this call has a score: start it again (`rrgtrain serve RECIPE`), and resume the "
    "training from its checkpoint"
)
_SLOWEST_RETRY = 10.0


class ServiceError(UserError):
    """Tell of a service that is gone, slow, full or wrong; nothing was scored."""


class RewardClient:
    """Callable on (reports, references, progress) as `RewardService` is; threads may share it.

    timeout: seconds for one call, waits for a full queue included.
    """

    def __init__(self, url: str = "http://127.0.0.1:8008", timeout: float = 300.0) -> None:
        """Raises UserError for an address that is none."""
        self.url, self.timeout = shown_url(url), timeout
        try:
            parts = urlsplit(url.rstrip("/"))
            valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:  # a port that is no number
            valid = False
        if not valid or not timeout > 0:
            raise UserError(
                f"reward service {self.url!r}, timeout {timeout:g}; wanted an address such as "
                "http://host:8008, and more than 0 seconds"
            )
        self._parts = parts

    def __call__(
        self, reports: Sequence[str], references: Sequence[str], progress: float = 1.0
    ) -> dict[str, np.ndarray]:
        """Score reports beside their references.

        Returns:
            "total" and every term by name, each float64 `[R]`.

        Raises:
            ServiceError: the service is gone, slow, full, refuses, or answers with anything but
                one finite number for each report and term.
        """
        if len(reports) != len(references):
            raise ValueError(
                f"{len(reports)} reports for {len(references)} references; pass one each"
            )
        if not len(reports):
            return {"total": np.zeros(0)}
        body = {"reports": list(reports), "references": list(references), "progress": progress}
        content, until = json.dumps(body).encode(), time.monotonic() + self.timeout
        while True:
            status, headers, answer = self._post(content, until)
            if status != 503:
                break
            wait = _seconds(headers)
            if time.monotonic() + wait >= until:
                raise ServiceError(
                    f"the reward service at {self.url} had no room for {self.timeout:g} s "
                    f"({_error(answer)}); {_AGAIN}"
                )
            time.sleep(wait)
        if status != 200:
            raise ServiceError(
                f"the reward service at {self.url} answered HTTP {status}: {_error(answer)}; no "
                "report of this call has a score"
            )
        return self._read(answer, len(reports))

    def _post(self, content: bytes, until: float) -> tuple[int, Any, bytes]:
        """Send one request; status, headers and the whole body of its answer."""
        kind: type[http.client.HTTPConnection] = http.client.HTTPConnection
        if self._parts.scheme == "https":
            kind = http.client.HTTPSConnection
        left = max(1e-3, until - time.monotonic())
        assert self._parts.hostname is not None
        connection = kind(self._parts.hostname, self._parts.port, timeout=left)
        # ends a service that drips, too, which a timeout of the socket never would
        alarm = threading.Timer(left, _cut, [connection])
        alarm.daemon = True
        alarm.start()
        try:
            path = f"{self._parts.path}/score"
            connection.request("POST", path, content, {"Content-Type": "application/json"})
            response = connection.getresponse()
            return response.status, response.headers, response.read()
        except (OSError, http.client.HTTPException) as error:
            if isinstance(error, TimeoutError) or time.monotonic() >= until:
                raise ServiceError(
                    f"the reward service at {self.url} gave no whole answer within "
                    f"{self.timeout:g} s; no report of this call has a score: look at its "
                    "/metrics, raise the timeout, or send fewer reports"
                ) from None
            reason = " ".join(str(error).split()) or type(error).__name__
            raise ServiceError(
                f"the reward service at {self.url} is gone ({reason}); {_AGAIN}"
            ) from None
        finally:
            alarm.cancel()
            connection.close()

    def _read(self, answer: bytes, count: int) -> dict[str, np.ndarray]:
        def wrong(reason: str) -> ServiceError:
            return ServiceError(
                f"the reward service at {self.url} answered {reason}; no report of this call has a "
                "score: is it `rrgtrain serve` of this version?"
            )

        try:
            scores = json_reader.parse(answer, dict).get("scores")
        except ValueError as error:
            raise wrong(f"what is no JSON ({error})") from None
        if not isinstance(scores, dict) or "total" not in scores:
            raise wrong('without "scores" and their "total"')
        for name, values in scores.items():
            if not isinstance(values, list) or len(values) != count:
                held = len(values) if isinstance(values, list) else type(values).__name__
                raise wrong(f"with {held} scores of {name[:40]} for {count} reports")
            bad = next(
                (v for v in values if type(v) not in (int, float) or not math.isfinite(v)), 0
            )
            if bad != 0:
                raise wrong(f"with {str(bad)[:40]} as a score of {name[:40]}")
        return {name: np.array(values, dtype=np.float64) for name, values in scores.items()}


def _cut(connection: http.client.HTTPConnection) -> None:
    held = connection.sock
    if held is not None:
        with suppress(OSError):  # it is closed already
            held.shutdown(socket.SHUT_RDWR)


def _error(answer: bytes) -> str:
    """The line of a refusal, or the beginning of what came instead."""
    try:
        line = json_reader.parse(answer, dict).get("error")
    except ValueError:
        line = None
    text = line if isinstance(line, str) else answer[:200].decode(errors="replace")
    return " ".join(text.split())[:300]


def _seconds(headers: Any) -> float:
    """What `Retry-After` asks for; half a second where it says nothing that can be waited."""
    try:
        wait = float(headers.get("Retry-After", 0.5))
    except ValueError:
        return 0.5
    return min(max(wait, 0.05), _SLOWEST_RETRY) if math.isfinite(wait) else 0.5
