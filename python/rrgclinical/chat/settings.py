"""Say which endpoint is asked, and how."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Any

from rrgclinical.common.arguments import is_address
from rrgclinical.common.errors import UserError
from rrgclinical.common.shown import shown_url

LIMIT_NAMES = ("max_tokens", "max_completion_tokens")


@dataclass(frozen=True)
class ChatSettings:
    """An endpoint, the model that answers there, and how it is asked.

    Raises:
        UserError: an address or number that cannot be.
    """

    endpoint: str
    """Address up to and with the version, as in http://localhost:8000/v1. A query is sent with
    every request; messages show neither it nor a user and password."""
    model: str
    """The name that the endpoint knows it by."""
    _: KW_ONLY
    key_variable: str = "OPENAI_API_KEY"
    """Environment variable with the key; none is sent where it is not set."""
    concurrency: int = 16
    """Conversations, and connections, at a time at most; a run shares them among its ranks."""
    timeout: float = 60.0
    """Seconds for one whole answer."""
    tries: int = 5
    """Requests for one answer at most; the wait between them doubles from half a second to eight,
    or is what the server asks for, up to two minutes."""
    max_tokens: int = 4096
    """Longest answer, which the server's context must hold beside the question. The facts of a
    report of 500 tokens can take 1,500; `Green` asks for 1024, as its model reads 4,096."""
    limit_name: str = "max_tokens"
    """The server's name of that limit; newer ones of OpenAI want `max_completion_tokens`."""
    temperature: float | None = 0.0
    """Sampling temperature; None sends none, for servers that take only their own."""
    request: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of each request, as `{chat_template_kwargs: {enable_thinking: false}}`."""
    json_mode: bool = True
    """Ask the server for JSON where JSON is wanted; off for servers that refuse it."""
    input_price: float = 0.0
    """Per million tokens."""
    output_price: float = 0.0
    """Per million tokens."""
    log: str | Path | None = None
    """File to which one line of JSON per request is appended."""
    cache: str | Path | None = None
    """Directory where answers are kept, by what was asked of which model."""

    def __post_init__(self) -> None:
        if not is_address(self.endpoint):
            form = "an address such as http://host:8000/v1"
            raise UserError(f"endpoint {self.shown!r}; wanted {form}")
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", self.key_variable):
            raise UserError(
                f"endpoint {self.shown}: key_variable is no name of an environment variable; "
                "wanted a name such as OPENAI_API_KEY, and the key itself in that variable"
            )
        if self.limit_name not in LIMIT_NAMES:
            raise UserError(
                f"endpoint {self.shown}: limit_name is {self.limit_name!r}; wanted one of "
                f"{', '.join(LIMIT_NAMES)}"
            )
        for name in ("concurrency", "timeout", "tries"):
            if not (value := getattr(self, name)) > 0:
                raise UserError(f"endpoint {self.shown}: {name} is {value}; wanted more than 0")

    @property
    def shown(self) -> str:
        return shown_url(self.endpoint)
