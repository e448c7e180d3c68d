"""A chat template is rendered in transformers' sandbox; what goes wrong in it is one line."""

from __future__ import annotations

import pytest

from rrgclinical.common.errors import UserError
from rrgpolicy.model.prompt import encode_prompt
from tests.rrgpolicy.model.common import study, tiny_policy


def told(template: str) -> str:
    """Encode a study by this template; give the refusal, or the text that the model reads."""
    policy = tiny_policy()
    policy.tokenizer.chat_template = template
    try:
        return policy.tokenizer.decode(encode_prompt(policy, *study("a", 0)).input_ids)
    except UserError as error:
        return f"refused: {error}"


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        ("{{ raise_exception('no system') }}", "TemplateError: no system"),
        ("{% if %}", "TemplateSyntaxError: Expected an expression"),
        ("{{ messages[0].content + 1 }}", "TypeError: "),
        ("{{ messages.__class__.__name__ }}", "SecurityError: access to attribute '__class__'"),
        ("{{ messages.append(1) }}", "SecurityError: "),
    ],
)
def test_what_a_template_raises_is_one_line(template: str, reason: str) -> None:
    line = told(template)
    assert line.startswith("refused: cannot load the chat template of ") and "\n" not in line
    assert reason in line


def test_a_policy_goes_on_after_a_template_that_failed() -> None:
    assert told("{% if %}").startswith("refused")
    assert told("{{ messages[0].role }}") == "user"
