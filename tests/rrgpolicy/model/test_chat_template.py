"""A chat template renders as transformers has it, and takes no more than it needs."""

from __future__ import annotations

import inspect
import json
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from rrgclinical.common.errors import UserError
from rrgpolicy.model.chat_template import render_turn
from rrgpolicy.model.prompt import encode_prompt
from tests.rrgpolicy.model.common import study, tiny_policy

ALIKE = (
    "{{ messages[0].content }}{{ eos_token }}{{ add_generation_prompt }}{{ tools is none }}",
    "{% set ns = namespace(n=1) %}\n  {% for m in messages %}\n{% set ns.n = ns.n + 1 %}"
    "{% continue %}\n{% endfor %}\n{{ ns.n }}{{ messages | tojson(indent=2) }}",
    "{% generation %}x{% set q = 3 %}{% endgeneration %}{{ q is defined }}{{ dict(a=1) }}",
)
TOO_MUCH = (
    "{{ '%1000000000d' | format(1) }}",
    "{{ '%1000000000d' % 1 }}",
    "{{ '{:>1000000000}'.format(1) }}",
    "{{ 'a' * 10 ** 10 }}",
    "{{ 'a' | center(10 ** 10) }}",
    "{{ 'a'.ljust(10 ** 10) }}",
    "{{ [0] * 10 ** 10 }}",
    "{{ messages[0].content | indent(10 ** 10, true) }}",
    "{% set ns = namespace(x='a') %}{% for i in range(60) %}{% set ns.x = ns.x ~ ns.x %}"
    "{% endfor %}",
    "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
    "{{ 'a' * 300000 }}",
)
UNSAFE = (
    "{{ messages.__class__.__mro__ }}",
    "{{ ''.__class__ }}",
    "{% set ns = namespace() %}{% set ns.__class__ = 1 %}",
)


def told(template: str) -> str:
    """Encode a study by this template; give the refusal, or the text that the model reads."""
    policy = tiny_policy()
    policy.tokenizer.chat_template = template
    try:
        return policy.tokenizer.decode(encode_prompt(policy, *study("a", 0)).input_ids)
    except UserError as error:
        return f"refused: {error}"


def test_a_rendering_is_that_of_transformers() -> None:
    tokenizer = tiny_policy().tokenizer
    for template in (*ALIKE, tokenizer.chat_template):
        tokenizer.chat_template = template
        for content in ("fever é\u2028 <b>", [{"type": "image"}, {"type": "text", "text": "x"}]):
            messages = [{"role": "user", "content": content}]
            wanted = tokenizer.apply_chat_template(
                messages, tokenize=False, add_generation_prompt=True
            )
            assert render_turn(tokenizer, content) == wanted, template


def test_a_template_takes_no_more_than_it_needs() -> None:
    """The trainer goes on after each: the next template is rendered."""
    wrong = {}
    for template in TOO_MUCH:
        line = told(template)
        if "\n" in line or not any(part in line for part in ("it takes more than", "it writes 3")):
            wrong[template] = line[:300]
    wrong |= {t: line for t in UNSAFE if not (line := told(t)).startswith("refused") and line}
    assert wrong == {}
    assert told("{{ messages[0].role }}") == "user"


@pytest.mark.parametrize("template", ["{{ raise_exception('no system') }}", "{% if %}"])
def test_what_a_template_raises_is_one_line(template: str) -> None:
    line = told(template)
    assert line.startswith("refused: cannot load the chat template of ") and "\n" not in line
    assert "Template" in line


def test_a_template_renders_under_lower_limits_of_the_machine() -> None:
    """A queue or login node sets hard limits, which no process may raise."""

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_CPU, (3600, 3600))
        resource.setrlimit(resource.RLIMIT_AS, (1 << 28, 1 << 28))

    program = Path(inspect.getfile(render_turn)).with_name("render.py")
    line = json.dumps({"template": "{{ a }}", "values": {"a": "x"}}) + "\n"
    done = subprocess.run(
        [sys.executable, "-P", str(program)],
        input=2 * line,
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=limited,
    )
    assert (done.stdout, done.stderr, done.returncode) == (2 * '{"text": "x"}\n', "", 0)


def test_the_process_of_a_killed_trainer_ends_without_a_word() -> None:
    program = Path(inspect.getfile(render_turn)).with_name("render.py")
    process = subprocess.Popen(
        [sys.executable, "-P", str(program)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    process.stdout.close()
    _, told = process.communicate(b'{"template": "x", "values": {}}\n')
    assert (process.returncode, told) == (-signal.SIGPIPE, b"")
