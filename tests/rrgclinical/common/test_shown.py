"""Test shown text: no secret of an address, no character that a terminal obeys."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from rrgclinical.common import shown
from rrgclinical.common.arguments import whole_number
from rrgclinical.common.errors import UserError
from rrgclinical.common.shown import one_line, printable, redacted, shortened, shown_url
from rrgtrain.cli import main


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://h:8000/v1/", "http://h:8000/v1"),
        ("http://me:p@ss@h/v1?api-key=x#y", "http://h/v1"),
        ("me:pw@h/a@b", "h/a@b"),
    ],
)
def test_an_address_is_shown_without_what_it_carries(url: str, shown: str) -> None:
    assert shown_url(url) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a: 'http://me:pw@h/v1'\nmail@h", "a: 'http://***@h/v1'\nmail@h"),
        ("https://h/v1?v=2&api-key=abc&x=1 rest", "https://h/v1?v=2&api-key=***&x=1 rest"),
        ('"http://h?sig=abc", "sk"', '"http://h?sig=***", "sk"'),
        ("http://${oc.env:U}:${oc.env:P}@h", "http://***@h"),
        ("https://h?monkey=1&X-Amz-Signature=b", "https://h?monkey=1&X-Amz-Signature=***"),
        ("reward.cache=a@b key=1", "reward.cache=a@b key=1"),
    ],
)
def test_addresses_in_a_text_lose_their_secrets(text: str, shown: str) -> None:
    assert redacted(text) == shown


def test_control_characters_become_escapes() -> None:
    text = "é\x1b[2J\x00\x85\u202e\u2028\t\n\r"
    assert printable(text) == "é\\x1b[2J\\x00\\x85\\u202e\\u2028\t\n\\r"
    assert one_line(text) == "é\\x1b[2J\\x00\\x85\\u202e\\u2028\\t\\n\\r"


def test_a_replay_prints_no_control_character(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ids and texts of a record are whatever the data held."""
    monkeypatch.setattr(
        "rrgtrain.run.replay.replay_batch", lambda path, overrides: ["study \x1b[2J"]
    )
    assert main(["replay", str(tmp_path)]) == 0
    assert capsys.readouterr().out == "study \\x1b[2J\n"


def test_a_long_text_is_shown_by_its_ends() -> None:
    assert shortened("abcd", 4) == "abcd"
    assert shortened("ab" + "x" * 99 + "cd", 4) == "ab [99 characters] cd"


def test_no_part_of_a_secret_is_left_where_a_text_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shown, "_written", {})
    shown.hide("sk-1234567890", "${oc.env:KEY}")
    assert "sk-" not in shortened(f"{'x' * 10}sk-1234567890{'x' * 90}", 30)
    for show in (one_line, printable, redacted):
        assert show("by sk-1234567890.") == "by ${oc.env:KEY}."


def test_a_line_about_a_huge_word_is_short(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", f"rl.steps={'x' * 100_000}"]) == 2
    line = capsys.readouterr().err
    assert len(line) < 5_000 and line.count("\n") == 1 and "characters]" in line


def test_half_characters_are_escapes_that_a_file_can_hold() -> None:
    # the name of a directory that is no UTF-8; a page with it could not be written
    for show in (one_line, printable):
        assert show("bad\udcff \ud800") == "bad\\udcff \\ud800"


# Counts that callers hand over.
@pytest.mark.parametrize("value", ["1", 1.0, 1.5, True, None, math.nan, [1], -1, 0], ids=repr)
def test_a_count_is_a_whole_number(value) -> None:
    with pytest.raises(UserError, match="^edited is .*; wanted a whole number of at least 1$"):
        whole_number(value, "edited", 1)
    assert whole_number(np.int64(2), "edited", 1) == 2
