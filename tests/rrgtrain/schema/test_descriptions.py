"""Every setting is described by the text beneath its field, and every number has bounds."""

from __future__ import annotations

import pytest
from pydantic.dataclasses import dataclass

from rrgclinical.common.fields import SETTINGS
from rrgtrain.config import load_config
from rrgtrain.errors import UserError
from rrgtrain.schema import Recipe
from rrgtrain.schema.keys import settings


def test_every_setting_and_section_is_described() -> None:
    silent = [s.key for s in settings(Recipe) if not s.description.endswith(".")]
    silent += [name for name, field in Recipe.__pydantic_fields__.items() if not field.description]
    assert silent == []
    begun = {s.description.split()[0] for s in settings(Recipe)}
    assert not begun & {"What", "Which", "Whether", "Of"}


def test_a_field_without_a_text_beneath_it_has_no_description() -> None:
    @dataclass(config=SETTINGS)
    class Section:
        one: int = 1
        two: int = 2
        """Two things,
        on two lines."""
        three: int = 3

    wanted = {"one": "", "two": "Two things, on two lines.", "three": ""}
    assert {s.key: s.description for s in settings(Section)} == wanted


NUMBERS = [s.key for s in settings(Recipe) if "number" in s.type and "mapping" not in s.type]


@pytest.mark.parametrize("key", NUMBERS)
def test_a_number_below_every_use_is_refused_at_load(key: str) -> None:
    """A run that met it first would end behind the load of its policy, or go on with it."""
    with pytest.raises(UserError, match="wanted") as refused:
        load_config(Recipe, None, [f"{key}=-12345"])
    assert key.rpartition(".")[2] in str(refused.value) and "\n" not in str(refused.value)
