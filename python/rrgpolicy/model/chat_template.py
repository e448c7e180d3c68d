"""Renders the user's turn by a tokenizer's chat template, within bounds (see `render`)."""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from rrgclinical.common import json_reader
from rrgpolicy.model import render

_PROGRAM = Path(render.__file__)


class _Renderer:
    """Keep one process that renders, started when it is first asked and again when it has ended."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = 0

    def __call__(self, template: str, values: dict[str, Any]) -> str:
        """Render; ValueError for a template that fails or takes too much."""
        line = json.dumps({"template": template, "values": values}).encode() + b"\n"
        with self._lock:
            process = self._started()
            assert process.stdin is not None and process.stdout is not None
            try:
                process.stdin.write(line)
                process.stdin.flush()
                answer = process.stdout.readline()
            except BaseException as error:
                # what it would still answer is nobody's
                self.close()
                if not isinstance(error, BrokenPipeError):
                    raise
                answer = b""
            if not answer.endswith(b"\n"):
                self.close()
                raise ValueError(
                    f"it takes more than {render.SECONDS} seconds or {render.MEMORY >> 20} MiB; "
                    "use the template that the model comes with"
                )
        told = json_reader.parse(answer, dict)
        if "text" not in told:
            raise ValueError(told["error"])
        return str(told["text"])

    def _started(self) -> subprocess.Popen[bytes]:
        # a forked process must not write into the pipe of the one that started it
        if self._process is None or self._owner != os.getpid() or self._process.poll() is not None:
            self._owner = os.getpid()
            self._process = subprocess.Popen(
                [sys.executable, "-P", str(_PROGRAM)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                # Ctrl-C and a stop are for the trainer; this one ends with its input
                start_new_session=True,
            )
        return self._process

    def close(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process is not None and self._owner == os.getpid():
            process.kill()
            process.communicate()


_render = _Renderer()
atexit.register(_render.close)


def render_turn(tokenizer: Any, content: Any, answer: Any = None) -> str:
    """Render a user's message and the beginning of the answer, as `apply_chat_template` does.

    content, answer: text, or a list of parts as chat templates take them; the answer is the
    assistant's, whole, with what closes it. Raises ValueError for a template that fails, takes more
    memory or time than any needs, or writes more than it was given.
    """
    messages = [{"role": "user", "content": content}]
    if answer is not None:
        messages.append({"role": "assistant", "content": answer})
    values = {
        **{name: str(token) for name, token in tokenizer.special_tokens_map.items()},
        "messages": messages,
        "tools": None,
        "documents": None,
        "add_generation_prompt": answer is None,
    }
    return _render(tokenizer.get_chat_template(), values)


def end_of_turn(tokenizer: Any) -> int | None:
    """Find the special token that the chat template writes behind an assistant's text.

    None where it writes none, or takes no answer. Raises ValueError as `render_turn`.
    """
    said = "The heart is normal."
    turn = render_turn(tokenizer, "Report.", said)
    if said not in turn:  # a template of a model that sees may take lists of parts alone
        part = {"type": "text"}
        turn = render_turn(tokenizer, [part | {"text": "Report."}], [part | {"text": said}])
    _, separator, behind = turn.rpartition(said)
    special = {i for i, token in tokenizer.added_tokens_decoder.items() if token.special}
    ids = tokenizer(behind, add_special_tokens=False)["input_ids"] if separator else []
    return next((i for i in ids if i in special), None)
