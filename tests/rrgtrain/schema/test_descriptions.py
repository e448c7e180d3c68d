"""Every setting is described by the text beneath its field."""

from __future__ import annotations

from pydantic.dataclasses import dataclass

from rrgclinical.common.fields import SETTINGS
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
