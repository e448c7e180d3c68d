"""Renders chat templates in a process of bounded memory and time.

A template is a program of a checkpoint from anywhere: `{{ '%1000000000d' | format(1) }}` takes
gigabytes, three nested loops take for ever, and no list of what is forbidden is complete.
`chat_template` starts this file, which imports neither torch nor the trainer. The dialect is the
one that transformers documents for chat templates.
"""

from __future__ import annotations

import json
import resource
import signal
import sys
from datetime import datetime
from functools import lru_cache
from typing import Any, NoReturn

from jinja2 import Template, TemplateError, nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

MEMORY = 1 << 29
"""Bytes of addresses of the process; it needs 40 MB."""
SECONDS = 2
"""Seconds of a processor that a rendering may take; it needs a thousandth."""
LONGEST, TIMES = 100_000, 4
"""Characters of a rendering: this many, and this many times those that it was given."""

# They warn the trainer, which still needs this process; Slurm sends them to every one of a job.
LEFT_ALONE = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


class _Generation(Extension):
    """Read `{% generation %}`, which marks an assistant's turn, as what stands in it."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> nodes.Scope:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=line)


class _Namespace(Namespace):
    def __setitem__(self, name: str, value: Any) -> None:
        if name.startswith("_"):
            raise TemplateError(f"a namespace takes no {name}")
        super().__setitem__(name, value)


def _namespace(**values: Any) -> _Namespace:
    made = _Namespace()
    for name, value in values.items():
        made[name] = value
    return made


def _to_json(value: Any, ensure_ascii: bool = False, **options: Any) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, **options)


def _raise(message: str) -> NoReturn:
    raise TemplateError(message)


@lru_cache(maxsize=8)
def _compiled(template: str) -> Template:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", _Generation]
    )
    environment.filters["tojson"] = _to_json
    environment.globals |= {
        "raise_exception": _raise,
        "strftime_now": lambda form: datetime.now().strftime(form),
        "dict": lambda *pairs, **values: dict(*pairs, **values),
        "namespace": _namespace,
    }
    return environment.from_string(template)


def _answer(line: bytes) -> dict[str, str]:
    try:
        asked = json.loads(line)
        text = _compiled(asked["template"]).render(**asked["values"])
        most = LONGEST + TIMES * len(line)
        if len(text) > most:
            return {"error": f"it writes {len(text)} characters; wanted at most {most}"}
        return {"text": text}
    except MemoryError:
        return {"error": f"it takes more than {MEMORY >> 20} MiB"}
    except Exception as error:  # a template raises what it likes
        return {"error": f"{type(error).__name__}: {error}"}


def _limit(kind: int, most: int, *, for_good: bool = False) -> None:
    """Bound a resource; where the machine's own hard limit is lower, that one holds.

    for_good: the bound is the hard limit too.
    """
    hard = resource.getrlimit(kind)[1]
    soft = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(kind, (soft, soft if for_good else hard))


def main() -> None:
    """Answer requests, a line of JSON each, until there are no more."""
    _limit(resource.RLIMIT_AS, MEMORY, for_good=True)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for number in LEFT_ALONE:
        signal.signal(number, signal.SIG_IGN)
    # a trainer that was killed reads no answer: end without a word
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    for line in sys.stdin.buffer:
        used = resource.getrusage(resource.RUSAGE_SELF)
        _limit(resource.RLIMIT_CPU, int(used.ru_utime + used.ru_stime) + 1 + SECONDS)
        sys.stdout.write(json.dumps(_answer(line)) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
