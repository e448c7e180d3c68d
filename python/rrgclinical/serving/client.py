"""Ask a reward service for scores; a failure is one line, never a score.

verl, ms-swift and EasyR1 have one function each. The address stands in the environment variable
RRG_REWARD_URL, or is passed as `url`. A service that is gone, slow or wrong raises `ServiceError`,
which ends the trainer: it is never a 0.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import math
import os
import socket
import ssl
import threading
import time
from base64 import b64encode
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import lru_cache
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit

import numpy as np

from rrgclinical.common import json_reader
from rrgclinical.common.arguments import check_pairs, is_address, is_real, listed, share_of_steps
from rrgclinical.common.errors import UserError
from rrgclinical.common.shown import shown_url

_AGAIN = (
    "no report of this call has a score: start it again (`rrgtrain serve RECIPE`), and resume the "
    "training from its checkpoint"
)
_SLOWEST_RETRY = 10.0
# Seconds that every clock of the system can count.
_LONGEST = 1e9


class ServiceError(UserError):
    """Tell of a service that is gone, slow, full or wrong; nothing was scored."""


class RewardClient:
    """Callable on (reports, references, progress) as `RewardService` is; threads may share it.

    timeout: seconds for one call, waits for a full queue included.
    """

    def __init__(self, url: str = "http://127.0.0.1:8008", timeout: float = 300.0) -> None:
        """Raises UserError for an address that is none, and for a timeout that is no time."""
        self._parts = _parts(url)
        self.url = shown_url(url)
        if not is_real(timeout) or not 0 < timeout <= _LONGEST:
            raise UserError(
                f"reward service {self.url!r}, timeout {str(timeout)[:40]!r}; wanted more than 0 "
                f"seconds, and at most {_LONGEST:g}"
            )
        self.timeout = float(timeout)

    def __call__(
        self, reports: Sequence[str], references: Sequence[str], progress: float = 1.0
    ) -> dict[str, np.ndarray]:
        """Score reports beside their references.

        Returns:
            "total" and every term by name, each float64 `[R]`.

        Raises:
            ServiceError: the service is gone, slow, full, refuses, or answers with anything but
                one finite number for each report and term.
            TypeError, ValueError: as `check_pairs`, and a progress that is no share from 0 to 1.
        """
        texts, truth = check_pairs(reports, references)
        done = share_of_steps(progress)
        if not texts:
            return {"total": np.zeros(0)}
        body = {"reports": texts, "references": truth, "progress": done}
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
        return self._read(answer, len(texts))

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
        headers = {"Content-Type": "application/json"}
        if self._parts.username is not None:  # of the proxy before it: the service asks for none
            pair = unquote(f"{self._parts.username}:{self._parts.password or ''}")
            headers["Authorization"] = f"Basic {b64encode(pair.encode()).decode()}"
        try:
            connection.request("POST", f"{self._parts.path}/score", content, headers)
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
            if isinstance(error, ssl.SSLError) and not isinstance(error, ssl.SSLEOFError):
                raise ServiceError(
                    f"the reward service at {self.url} cannot be asked by https ({reason}); no "
                    "report of this call has a score: say http:// where it has no certificate, or "
                    "name its authority's in SSL_CERT_FILE"
                ) from None
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
            # false is no score, though Python takes it for 0
            if bad := [v for v in values if type(v) not in (int, float) or not math.isfinite(v)]:
                raise wrong(f"with {str(bad[0])[:40]} as a score of {name[:40]}")
        return {name: np.array(values, dtype=np.float64) for name, values in scores.items()}


def _parts(url: object) -> SplitResult:
    """Part an address; UserError for one that no request could be sent to."""
    shown = shown_url(url) if isinstance(url, str) else type(url).__name__
    try:
        parts = urlsplit(url.rstrip("/") if isinstance(url, str) else "")
        valid = isinstance(url, str) and is_address(url) and " " not in url
        valid = valid and parts.path.isascii() and not (parts.query or parts.fragment)
        (parts.hostname or "").encode("idna")
    except ValueError:  # a port that is no number, a name that no server can have
        valid = False
    if not valid:
        raise UserError(f"reward service {shown!r}; wanted an address such as http://host:8008")
    return parts


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


URL = "RRG_REWARD_URL"
# verl scores sample by sample: so many are asked for at a time, and the service batches them.
AT_ONCE = 64


async def verl_reward(  # noqa: PLR0913
    data_source: str,
    solution_str: str,
    ground_truth: str,
    extra_info: Any = None,
    *,
    url: str | None = None,
    reward_router_address: Any = None,
    reward_model_tokenizer: Any = None,
    **others: Any,
) -> dict[str, float]:
    """Score one completion as verl's `custom_reward_function` (0.9.1, which awaits it).

    `score` is the total; the terms stand beside it, for the log and for `gdpo_reward_keys`.
    The address and tokenizer of a reward model of verl's are not looked at.

    Raises ValueError for `reward_kwargs` other than `url`.
    """
    _require_no_other(others, "reward_kwargs")
    call = asyncio.get_running_loop().run_in_executor(
        _threads(), _client(url), [solution_str], [ground_truth]
    )
    scores = {name: float(values[0]) for name, values in (await call).items()}
    return {"score": scores.pop("total"), **scores}


def swift_reward(
    completions: Sequence[str], *, column: str = "report", url: str | None = None, **columns: Any
) -> list[float]:
    """Score a batch as an ORM of ms-swift does.

    `column` of its data set has the references.

    Raises ValueError for a data set without it.
    """
    if not isinstance(column, str) or column not in columns:
        lists = ", ".join(sorted(k for k, v in columns.items() if isinstance(v, list))) or "none"
        raise ValueError(f"the data set has no column {column!r}, it has {lists}; pass column=")
    return _client(url)(completions, columns[column])["total"].tolist()


def easyr1_pairs(reward_inputs: Sequence[Mapping[str, Any]]) -> tuple[list[Any], list[Any]]:
    """List `response` and `ground_truth` of the rows that EasyR1 hands to a `reward_function`.

    Raises ValueError for a row without them, or one row alone, TypeError for what is no list.
    """
    if isinstance(reward_inputs, Mapping):
        raise ValueError("one row; wanted a list of them: worker.reward.reward_type=batch")
    rows = listed(reward_inputs, "reward_inputs", "rows")
    for place, row in enumerate(rows):
        if not isinstance(row, Mapping):
            raise ValueError(
                f"row {place} is {type(row).__name__}; wanted response and ground_truth by name"
            )
        if lacking := [name for name in ("response", "ground_truth") if name not in row]:
            names = ", ".join(map(str, row)) or "none"
            raise ValueError(f"row {place} has no {lacking[0]!r}; it has {names}")
    return [row["response"] for row in rows], [row["ground_truth"] for row in rows]


def easyr1_reward(
    reward_inputs: Sequence[Mapping[str, Any]], *, url: str | None = None, **others: Any
) -> list[dict[str, float]]:
    """Score a batch as EasyR1's `reward_function`: `overall`, and the terms beside it.

    Raises as `easyr1_pairs`, and ValueError for `reward_function_kwargs` other than `url`.
    """
    _require_no_other(others, "reward_function_kwargs")
    scores = _client(url)(*easyr1_pairs(reward_inputs))
    columns = {"overall" if name == "total" else name: v.tolist() for name, v in scores.items()}
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _require_no_other(others: Mapping[str, Any], section: str) -> None:
    if others:
        raise ValueError(f"{section} has {next(iter(others))!r}; wanted url alone")


def _client(url: str | None) -> RewardClient:
    if url is None or url == "":
        url = os.environ.get(URL) or "http://127.0.0.1:8008"
    return _opened(url) if isinstance(url, str) else RewardClient(url)


@lru_cache(maxsize=8)
def _opened(url: str) -> RewardClient:
    return RewardClient(url)


@lru_cache(maxsize=1)
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(AT_ONCE, "reward client")
