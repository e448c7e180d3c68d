"""A chat template is rendered in transformers' sandbox; what goes wrong in it is one line."""

from __future__ import annotations

import pytest
from transformers import AutoTokenizer

from rrgclinical.common.errors import UserError
from rrgpolicy.model.policy import Policy
from rrgpolicy.model.prompt import encode_prompt
from rrgpolicy.model.template import parting, template_kwargs
from tests.rrgpolicy import published
from tests.rrgpolicy.model.common import EMPTY, OPENS, study, text_policy, tiny_policy


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


def thinking() -> Policy:
    """A policy whose template opens a block of reasoning unless it is told not to."""
    policy = text_policy()
    policy.tokenizer.chat_template = OPENS
    return policy


def rendered(policy: Policy, style: str) -> str:
    text: str = policy.tokenizer.decode(
        encode_prompt(policy, *study("a", 0), style=style).input_ids
    )
    return text.rpartition("<|im_start|>assistant\n")[2]


@pytest.mark.parametrize(
    ("style", "own", "ending"),
    [
        ("short", {}, EMPTY),
        ("editgrpo", {}, EMPTY),
        ("think", {}, "<think>\n"),
        ("think", {"enable_thinking": False}, EMPTY),
        ("short", {"enable_thinking": True}, "<think>\n"),
    ],
    ids=["short", "editgrpo", "think", "closed", "opened"],
)
def test_a_report_stands_in_no_reasoning_unless_the_style_asks_for_it(
    style: str, own: dict[str, bool], ending: str
) -> None:
    policy = thinking()
    policy.chat_template_kwargs = own
    assert rendered(policy, style) == ending


def test_a_value_that_the_template_does_not_read_is_refused() -> None:
    policy = text_policy()
    policy.chat_template_kwargs = {"enable_thinking": False}
    with pytest.raises(
        UserError, match=r"kwargs.enable_thinking: the chat template of .* reads no"
    ):
        rendered(policy, "short")


ANSWER = "The heart is normal."


def test_training_is_held_against_the_template_s_own_conversation() -> None:
    tokenizer = thinking().tokenizer
    assert parting(tokenizer, "Describe.", ANSWER, {"enable_thinking": False}) is None
    parts = parting(tokenizer, "Describe.", ANSWER, {"enable_thinking": True})
    assert parts is not None
    both, trained, conversation = parts
    assert both.endswith("<|im_start|>assistant\n<think>\n")
    assert trained == f"{ANSWER}<|im_end|>"
    assert conversation == f"\n</think>\n\n{ANSWER}<|im_end|>\n"


@pytest.mark.parametrize("name", ["qwen3", "gemma3", "llama3", "qwen2_5"])
def test_what_published_templates_write_is_what_training_writes(name: str) -> None:
    folder = published.fetched(name)
    if folder is None:
        pytest.skip(published.absent(name))
    tokenizer = AutoTokenizer.from_pretrained(folder)
    kwargs = template_kwargs(tokenizer)
    assert kwargs == ({"enable_thinking": False} if name == "qwen3" else {})
    assert parting(tokenizer, "Describe.", ANSWER, kwargs) is None
    if name == "qwen3":
        parts = parting(tokenizer, "Describe.", ANSWER, {"enable_thinking": True})
        assert parts is not None and parts[2].startswith("<think>\n\n</think>\n\n")
