"""Settings are read by their type, described beneath their field, and bounded."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from rrgtrain.config import load_config
from rrgtrain.errors import UserError
from rrgtrain.schema import Recipe
from rrgtrain.schema.keys import settings
from tests.rrgtrain.test_config import Tiny, refused, write

AWKWARD = (
    *("12:30", "12:30:00", "0123", "010", "0o17", "0x1F", "1_000", "1e-6", "1.0", ".5", "5.", "+7"),
    *("no", "No", "yes", "on", "off", "y", "n", "true", "TRUE", "2020-01-01", "2020-01-01 10:00"),
    *("nan", ".inf", "=", "a=b", "C:\\runs", "a b", "é", "9" * 30, "190:20:30"),
    *("None", "-x", "a#b"),
)
# in a file these are a comment, a list, an anchor ...
ONLY_TYPED = ("/d/ #1", "#1", "a: b", "[a", "{x", "[a]", "*x", "&x", "!x", "%x", "@x", "it's")
ONLY_TYPED += ("- a", "'a' b", '"a', "a\nb", "| x", "? a", "!!int 3")
NO_NUMBERS = ("0123", "010", "-012", "00", "12:30", "12:30:00", "0o17", "0x1F", "0b11", "1_000")
NO_NUMBERS += ("1,000", "2020-01-01", "'0123'", '"1_000"', "١٢")


def test_a_text_is_what_was_typed(tmp_path: Path) -> None:
    for text in (*AWKWARD, *ONLY_TYPED):
        assert load_config(Tiny, None, [f"name={text}"]).name == text
    for text in AWKWARD:
        for written in (text, f"'{text}'", json.dumps(text)):
            path = write(tmp_path, "r", f"name: {written}  # a comment\n")
            assert load_config(Tiny, path, []).name == text, written
            assert load_config(Tiny, None, [f"name={written}"]).name == text, written


def test_texts_of_a_mapping_are_what_was_typed(tmp_path: Path) -> None:
    path = write(tmp_path, "r", "data: {columns: {id: No, report: 0123, view: 12:30}}\n")
    wanted = {"id": "No", "report": "0123", "view": "12:30"}
    assert load_config(Recipe, path, []).data.columns == wanted
    given = ["data.columns.id=No", "data.columns.report=0123", "data.columns.view=12:30"]
    assert load_config(Recipe, None, given).data.columns == wanted
    given = ["data.columns={id: No, report: 0123, view: '12:30'}"]
    assert load_config(Recipe, None, given).data.columns == wanted
    options = load_config(Recipe, None, ["reward.options={green: {a: 0123, b: 1e-6, c: no}}"])
    assert options.reward.options == {"green": {"a": "0123", "b": 1e-6, "c": False}}


def test_a_number_of_a_doubtful_spelling_is_refused(tmp_path: Path) -> None:
    for text in NO_NUMBERS:
        for key, line in (("seed", f"seed: {text}"), ("optimiser.lr", f"optimiser:\n  lr: {text}")):
            for told in (refused(None, f"{key}={text}"), refused(write(tmp_path, "r", line))):
                assert re.search(f"{key} is .*; wanted a .*number, in decimal digits", told), told
    whole = [s.key for s in settings(Recipe) if s.type.startswith("a whole number")]
    for key in whole[::7]:
        with pytest.raises(UserError, match=f"{key} is '012'.*in decimal digits"):
            load_config(Recipe, None, [f"{key}=012"])
    assert "is [1.0, '010'] (list)" in refused(None, "optimiser.betas=[1.0, 010]")
    assert "terms.match is '010'" in refused(None, "terms.match=010")


def test_numbers_and_flags_in_their_common_spellings(tmp_path: Path) -> None:
    floats = ("1e-6", "1E-6", ".5", "5.", "+1e-6", "1", "-0.0", "0", "1.0e+3", "'0.25'", "1e-06")
    for text in floats:
        wanted = float(text.strip("'"))
        assert load_config(Tiny, None, [f"edit.tau={text}"]).edit.tau == wanted
        path = write(tmp_path, "r", f"edit: {{tau: {text}}}\n")
        assert load_config(Tiny, path, []).edit.tau == wanted
    for text in ("0", "7", "+7", "-7", "'7'", str(10**15)):
        assert load_config(Tiny, None, [f"seed={text}"]).seed == int(text.strip("'"))
    for flag, texts in {True: ("true", "True", "yes", "on"), False: ("false", "no", "Off")}.items():
        for text in texts:
            assert (
                load_config(Tiny, None, [f"optimiser.nesterov={text}"]).optimiser.nesterov is flag
            )
    for text in ("null", "~", "", "Null"):
        assert load_config(Recipe, None, [f"data.root={text}"]).data.root is None
    assert "is null; wanted text; write name='\"null\"'" in refused(None, "name=null")
    assert load_config(Tiny, None, ['name="null"']).name == "null"
    assert "put it in quotes" in refused(write(tmp_path, "r", "name: [a]\n"))


def test_every_setting_is_described() -> None:
    silent = [s.key for s in settings(Recipe) if not s.description.endswith(".")]
    assert silent == []
    begun = {s.description.split()[0] for s in settings(Recipe)}
    assert not begun & {"What", "Which", "Whether", "Of"}


NUMBERS = [s.key for s in settings(Recipe) if "number" in s.type and "mapping" not in s.type]


@pytest.mark.parametrize("key", NUMBERS)
def test_a_number_below_every_use_is_refused_at_load(key: str) -> None:
    """A run that met it first would end behind the load of its policy, or go on with it."""
    with pytest.raises(UserError, match="wanted") as refused:
        load_config(Recipe, None, [f"{key}=-12345"])
    assert key.rpartition(".")[2] in str(refused.value) and "\n" not in str(refused.value)
