"""Answer HTTP requests for scores, with FastAPI and uvicorn (the extra `serve`)."""

from __future__ import annotations

import asyncio
import errno
import logging
import resource
import socket
import sys
from collections.abc import Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, SupportsIndex

from rrgclinical.common import json_reader
from rrgclinical.common.arguments import check_pairs, share_of_steps
from rrgclinical.common.errors import UserError, outside_line
from rrgclinical.common.nothing import check_references
from rrgclinical.serving.batcher import Batcher, QueueFull, ScoringFailed

try:
    import uvicorn
    from fastapi import FastAPI, Request
    from fastapi.responses import JSONResponse, PlainTextResponse, Response
    from starlette.requests import ClientDisconnect
    from uvicorn.protocols.http.h11_impl import H11Protocol
except ImportError as error:
    raise UserError(
        f"the reward service needs {error.name}; install its extra: pip install 'rrgkern[serve]'"
    ) from error

LARGEST_BODY = 1 << 24
"""Bytes of a request that are read, some 50,000 pairs of reports."""
SILENT_SECONDS = 30.0
"""Without a whole head, or a further byte of the body, after which a request is given up."""
SPARE_FILES = 64
"""Files that connections leave to the scorer."""
TOLD_SECONDS = 60.0
"""Between two equal lines of the log."""
RETRY_SECONDS = 1
"""What a full queue asks a client to wait."""
_PATHS = "POST /score, GET /health, /metrics"
_READ = ["GET", "HEAD"]  # load balancers ask by HEAD
_FORM = 'wanted {"reports": [text, ...], "references": [text, ...]}'
_FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nConnection: close\r\n"
    b"Content-Length: 0\r\n\r\n"
)

Statistics = Callable[[], Mapping[str, float]]


def make_app(batcher: Batcher, statistics: Statistics = dict) -> FastAPI:
    """Make the application: POST /score, GET /health and /metrics.

    Whatever is wrong is `{"error": line}`: 400 for a request that cannot be read, 404 and 405 for
    another path or method, 408 for one whose rest does not come, 413 for one that is too large, 500
    where the scorer fails, 503 where the queue is full or the service stops.

    statistics: numbers of the scorer by name, for /metrics.
    """

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> Any:
        yield
        await asyncio.to_thread(batcher.close)

    # a redirect of /score/ has no line, and few clients send a body after it
    pages: dict[str, Any] = {"docs_url": None, "redoc_url": None, "openapi_url": None}
    app = FastAPI(lifespan=lifespan, redirect_slashes=False, **pages)

    @app.post("/score")
    async def score(request: Request) -> Response:
        try:
            reports, references, progress = _asked(await _body(request))
            future = batcher.submit(reports, references, progress)
            return JSONResponse({"scores": await asyncio.wrap_future(future)})
        except ClientDisconnect:
            return Response(status_code=400)  # nobody is there to read a line
        except TimeoutError:
            line = f"no more of the request came in {SILENT_SECONDS:g} s; send it whole"
            return _refused(408, UserError(line), {"Connection": "close"})
        except _TooLarge as error:
            return _refused(413, error)
        except QueueFull as error:
            return _refused(503, error, {"Retry-After": str(RETRY_SECONDS)})
        except ScoringFailed as error:
            return _refused(500, error)
        except UserError as error:
            return _refused(400, error)

    @app.api_route("/health", methods=_READ)
    async def health() -> Response:
        state = {"status": "ok" if batcher.alive else "stopping", "waiting": batcher.waiting}
        return JSONResponse(state, 200 if batcher.alive else 503)

    @app.api_route("/metrics", methods=_READ)
    async def metrics() -> Response:
        return PlainTextResponse(prometheus(batcher, statistics()))

    @app.exception_handler(404)
    async def nowhere(request: Request, _: Exception) -> Response:
        return _refused(404, UserError(f"nothing at {request.url.path[:80]}; {_PATHS}"))

    @app.exception_handler(405)
    async def otherwise(request: Request, error: Any) -> Response:
        line = f"no {request.method[:20]} {request.url.path[:80]}; {_PATHS}"
        return _refused(405, UserError(line), error.headers)

    return app


def prometheus(batcher: Batcher, statistics: Mapping[str, float]) -> str:
    """Write the counts of a service in the text format of Prometheus."""
    counts = batcher.counts
    rows = [
        ("requests_total", "counter", "requests that were answered with scores", counts.requests),
        ("reports_total", "counter", "reports that were scored", counts.reports),
        ("batches_total", "counter", "batches that they were scored in", counts.batches),
        ("refused_total", "counter", "requests that the full queue refused", counts.refused),
        ("failed_total", "counter", "requests that the scorer failed on", counts.failed),
        ("scoring_seconds_total", "counter", "seconds in the scorer", counts.seconds),
        ("queue_reports", "gauge", "reports that wait", batcher.waiting),
        ("queue_limit", "gauge", "reports that may wait", batcher.settings.queue),
    ]
    lines = []
    for name, kind, text, value in rows:
        lines += [f"# HELP rrg_reward_{name} {text}", f"# TYPE rrg_reward_{name} {kind}"]
        lines.append(f"rrg_reward_{name} {value}")
    if statistics:
        lines.append("# TYPE rrg_reward_scorer untyped")
    for name, value in statistics.items():
        lines.append(f'rrg_reward_scorer{{name="{name}"}} {value}')
    return "\n".join(lines) + "\n"


def listen(host: str, port: int) -> socket.socket:
    """Open the socket of a service, any free port where `port` is 0.

    Raises UserError where the address cannot be had, or is none.
    """
    if not isinstance(host, str) or isinstance(port, bool) or not isinstance(port, SupportsIndex):
        raise UserError(
            f"cannot listen on {host!r:.40}, port {port!r:.40}; wanted a text such as 127.0.0.1, "
            "and a whole number from 0 to 65535"
        )
    cause: Exception
    mend = "choose another --port, or end what is there"
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family, backlog=1024)
    except OverflowError as error:
        cause, mend = error, "choose a --port from 0 to 65535"
    except (OSError, UnicodeError, TypeError, ValueError) as error:
        cause = error  # a TypeError is a name that no machine can have
        # a number below 0 is one of the look-up of names
        number = error.errno if isinstance(error, OSError) else -1
        if number is None or number < 0 or number == errno.EADDRNOTAVAIL:
            mend = "--host is an address of this machine, such as 127.0.0.1"
    reason = str(cause).partition(" (while attempting")[0]
    raise UserError(f"cannot listen on {_address(host, port)} ({reason}); {mend}") from cause


def address_of(listening: socket.socket) -> str:
    """Write the address of a socket as clients give it: http://host:port."""
    return f"http://{_address(*listening.getsockname()[:2])}"


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def run(app: FastAPI, listening: socket.socket) -> None:
    """Serve until a signal comes; what was accepted by then is scored and answered."""
    server_of(app).run(sockets=[listening])


def server_of(app: FastAPI) -> uvicorn.Server:
    """Make the server of an application; it ends when `should_exit` is set."""
    # Its own configuration of logging would close every handler of the process, absl's with the
    # stream that was standard error when absl was imported.
    quiet: dict[str, Any] = {"log_config": None, "log_level": "warning", "access_log": False}
    config = uvicorn.Config(app, http=_Connection, lifespan="on", **quiet)
    for name in ("uvicorn.error", "asyncio"):
        logging.getLogger(name).addFilter(_seldom)
    return uvicorn.Server(config)


def _most_connections() -> int:
    """Raise the limit of open files as far as it goes; return how many connections may have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with suppress(OSError, ValueError):  # a container may forbid it
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if soft == resource.RLIM_INFINITY else max(1, soft - SPARE_FILES)


_last_told: dict[str, float] = {}


def _seldom(record: logging.LogRecord) -> bool:
    """Let a line into the log once a minute, whatever a client sends."""
    for line in [k for k, at in _last_told.items() if at + TOLD_SECONDS <= record.created]:
        del _last_told[line]  # asyncio's lines name objects, and each would stay for ever
    return _last_told.setdefault(record.msg, record.created) == record.created


class _Connection(H11Protocol):
    """A connection that is closed where too many are open, or a request's head does not come.

    Without a bound silent clients take the last file, of which asyncio writes endless lines.
    """

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        if len(self.connections) > _most_connections():
            transport.write(_FULL)
            transport.close()
            return
        self.loop.call_later(SILENT_SECONDS, self._close_silent, None)

    def _close_silent(self, last: object) -> None:
        idle = self.cycle is None or self.cycle.response_complete
        if idle and self.cycle is last:  # answered when this was asked before, if ever
            self.transport.close()
        elif not self.transport.is_closing():
            self.loop.call_later(SILENT_SECONDS, self._close_silent, self.cycle if idle else self)


class _TooLarge(UserError):
    pass


def _refused(status: int, error: Exception, headers: dict[str, str] | None = None) -> Response:
    line = " ".join((outside_line(error) or str(error)).split())
    return JSONResponse({"error": line}, status, headers)


async def _body(request: Request) -> Any:
    body, parts = bytearray(), request.stream()
    while part := await asyncio.wait_for(anext(parts), SILENT_SECONDS):  # it ends in an empty one
        body += part
        if len(body) > LARGEST_BODY:
            raise _TooLarge(f"a request of more than {LARGEST_BODY >> 20} MiB; send fewer reports")
    try:  # beside the loop: other clients are served meanwhile
        return await asyncio.to_thread(json_reader.parse, bytes(body), dict)
    except ValueError as error:
        raise UserError(f"the request is no JSON object ({error}); {_FORM}") from None


def _asked(body: dict[str, Any]) -> tuple[list[str], list[str], float]:
    """Reports, references and progress of a request; UserError for anything else."""
    unknown = sorted(set(body) - {"reports", "references", "progress"})
    if unknown:
        raise UserError(f"the request has {unknown[0][:40]!r}; {_FORM}, and progress")
    try:
        reports, references = check_pairs(body.get("reports"), body.get("references"))
        check_references(references)
        if not reports:
            raise ValueError("no reports; send at least one")
        return reports, references, share_of_steps(body.get("progress", 1.0))
    except (TypeError, ValueError) as error:
        raise UserError(str(error)) from None
