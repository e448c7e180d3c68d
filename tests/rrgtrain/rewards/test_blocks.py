"""The blocks of MRG-R1 and their quarters."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rrgclinical.backends import FILES, absent_files
from rrgclinical.stress import NOTHING
from rrgdata.study import Study
from rrgtrain.rewards import TERMS, RewardService
from rrgtrain.rewards.batch import parse_blocks
from rrgtrain.schema import RewardSettings
from tests.rrgclinical.text.conftest import few_paraphrases, short_package

GOOD = "<think>a</think><report>b</report>"


@pytest.mark.parametrize(
    ("text", "format_reward", "report"),
    [
        (GOOD, 1.0, "b"),
        (f"x {GOOD} y", 1.0, "b"),
        ("<think>\na\n</think>\n\n<report>\n b c \n</report>", 1.0, "b c"),
        ("", 0.0, None),
        ("b", 0.0, None),
        ("<report>b</report>", 0.0, "b"),
        ("<think>a</think>", 0.0, None),
        ("<think>a</think><report>b", 0.0, None),
        ("<think>a<report>b</report>", 0.0, "b"),
        ("</report>b<report><think>a</think>", 0.0, None),
        # present, balanced, filled, but the other way round
        ("<report>b</report><think>a</think>", 0.75, "b"),
        # interleaved: `</think>` comes after `<report>`
        ("<think>a<report>b</think>c</report>", 0.75, "b</think>c"),
        # a tag too many
        (f"{GOOD}</report>", 0.75, "b"),
        (f"{GOOD}<report>c</report>", 0.75, "b"),
        # an empty block
        ("<think></think><report>b</report>", 0.75, "b"),
        ("<think>a</think><report> \n</report>", 0.75, ""),
        # two faults, three faults
        ("<report></report><think>a</think>", 0.5, ""),
        ("<report></report><think></think></think>", 0.25, ""),
        ("<THINK>a</THINK><REPORT>b</REPORT>", 0.0, None),
    ],
)
def test_blocks(text: str, format_reward: float, report: str | None) -> None:
    found = parse_blocks(text)
    assert (found.format, found.report) == (format_reward, report)


PARTS = st.lists(
    st.sampled_from(["<think>", "</think>", "<report>", "</report>", "a ", "\n", "<", "é"]),
    max_size=12,
)


@given(PARTS)
def test_any_text_is_read(parts: list[str]) -> None:
    text = "".join(parts)
    found = parse_blocks(text)
    assert found.format in (0.0, 0.25, 0.5, 0.75, 1.0)
    assert (found.format > 0) is (found.think is not None and found.report is not None)
    for name, inside in (("think", found.think), ("report", found.report)):
        if inside is None:
            assert f"</{name}>" not in text.partition(f"<{name}>")[2]
        else:
            assert inside in text and f"</{name}>" not in inside and inside == inside.strip()
    if found.format == 1.0:
        assert found.think and found.report
        assert text.index("</think>") < text.index("<report>")


@given(st.text(min_size=1).filter(lambda t: t.strip() and "<" not in t))
def test_a_whole_answer_earns_all(text: str) -> None:
    found = parse_blocks(f"<think>{text}</think> <report>{text}</report>")
    assert found == (text.strip(), text.strip(), 1.0)


# A report that says nothing earns what the empty one does, by every term without a model file.
__all__ = ["few_paraphrases", "short_package"]

ENDPOINTS = {"green", "crimson"}
OFFICIAL = {"radgraph-official", "ratescore-official"}
BY_RULES = sorted(
    name for name in set(TERMS) - ENDPOINTS - OFFICIAL if not absent_files([name], {})
)
REFERENCES = (
    "No acute cardiopulmonary disease.",
    "The heart is normal. The lungs are clear. No effusion or pneumothorax.",
    "Small left pleural effusion. Cardiomegaly.",
    "Support devices in place.",
)


def test_only_terms_of_models_are_left_out():
    assert {"label_f1", "mccs", "facts", "severity", "entity_f1", "match"} <= set(BY_RULES)
    left = {name.split("_")[0] for name in set(TERMS) - set(BY_RULES) - ENDPOINTS - OFFICIAL}
    assert left <= {*FILES, "radcliq"}


@pytest.mark.usefixtures("few_paraphrases")
@pytest.mark.parametrize("term", BY_RULES)
def test_nothing_said_is_worth_what_the_empty_report_is(term):
    if term in ("meteor", "nlg") and shutil.which("java") is None:
        pytest.skip("METEOR 1.5 is a Java program")
    service = RewardService(RewardSettings(terms={term: 1.0}))
    service.fit([Study(f"t{i}", "train", text, None, ()) for i, text in enumerate(REFERENCES)])
    for reference in REFERENCES:
        ((_, empty),) = service.measure([term], [""], [reference])
        ((_, said),) = service.measure([term], list(NOTHING), [reference] * len(NOTHING))
        np.testing.assert_allclose(said, np.repeat(empty, len(NOTHING)), err_msg=reference)
