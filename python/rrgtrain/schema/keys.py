"""List a schema's settings by dotted key; find the nearest to a wrong one."""

from __future__ import annotations

import dataclasses
import difflib
import functools
import re
import types
import typing
from collections.abc import Iterator
from typing import Any, Literal

from pydantic.fields import FieldInfo

from rrgtrain.errors import UserError

ENTRY = "NAME"
"""Stands in a key for the user's own name of an entry, as in data.mix.NAME.root."""


def hints_of(schema: Any) -> dict[str, Any]:
    """Read the types of a dataclass's settings (a shared dict); a choice is a text."""
    return _hints(schema)


@functools.cache
def _hints(schema: Any) -> dict[str, Any]:
    hints = typing.get_type_hints(schema)
    return {name: str if _choices(kind) else kind for name, kind in hints.items()}


@dataclasses.dataclass(frozen=True)
class Setting:
    """One setting of a schema, as `rrgtrain keys` shows it."""

    key: str
    type: str
    default: Any
    choices: tuple[str, ...] | None
    bounds: tuple[str, ...]
    """Of the value, as `>= 0`."""
    description: str
    # of a mapping whose keys are the user's own, as reward.terms
    free: bool


def settings(schema: Any, prefix: str = "") -> Iterator[Setting]:
    """List the settings of a dataclass, sections entered, in the order of their fields."""
    fields: dict[str, FieldInfo] = schema.__pydantic_fields__
    for name, field in fields.items():
        kind, key = hints_of(schema)[name], f"{prefix}{name}"
        if dataclasses.is_dataclass(kind):
            yield from settings(kind, f"{key}.")
            continue
        limits = {
            sign: getattr(bound, name)
            for name, sign in (("ge", ">="), ("gt", ">"), ("le", "<="), ("lt", "<"))
            for bound in field.metadata
            if hasattr(bound, name)
        }
        yield Setting(
            key,
            describe_kind(kind),
            field.get_default(call_default_factory=True),
            _choices(field.annotation),
            tuple(f"{sign} {limit}" for sign, limit in limits.items()),
            " ".join((field.description or "").split()),
            typing.get_origin(kind) is dict,
        )
        if section := section_of(kind):
            yield from settings(section, f"{key}.{ENTRY}.")


def setting_at(schema: Any, key: str) -> Setting | None:
    """Find the setting of a dotted key, an entry's by its own name."""
    own = (s for s in settings(schema) if ENTRY in s.key or s.key == key)
    return next((s for s in own if re.fullmatch(s.key.replace(ENTRY, "[^.]+"), key)), None)


def section_of(kind: Any) -> Any:
    """Return the section that each entry of a mapping is, None of any other kind."""
    args = typing.get_args(kind)
    is_mapping = typing.get_origin(kind) is dict and dataclasses.is_dataclass(args[1])
    return args[1] if is_mapping else None


def _choices(kind: Any) -> tuple[str, ...] | None:
    """Find the words of a `Literal`, which may stand in a union."""
    words = (typing.get_args(arm) for arm in arms(kind) if typing.get_origin(arm) is Literal)
    return next(words, None)


def kind_at(schema: Any, key: str, place: str) -> Any:
    """Find the declared type of a dotted key.

    Entries of a free mapping have its value type.

    Raises:
        UserError: the schema has no such key. The line begins with `place`.
    """
    kind: Any = schema
    parts = key.split(".")
    for depth, part in enumerate(parts):
        if dataclasses.is_dataclass(kind):
            hints = hints_of(kind)
            if part not in hints:
                raise UserError(f"{place}: {_unknown(schema, kind, parts, depth)}")
            kind = hints[part]
        elif is_flat(kind):
            return typing.get_args(kind)[1]
        elif typing.get_origin(kind) is dict:
            kind = typing.get_args(kind)[1]
        else:
            owner = ".".join(parts[:depth])
            raise UserError(
                f"{place}: unknown key {key!r}: {owner} is {describe_kind(kind)} "
                f"and has no keys of its own; write {owner}=value"
            )
    return kind


def _unknown(schema: Any, section: Any, parts: list[str], depth: int) -> str:
    """Say which valid key is nearest to an unknown one.

    It is a misspelt sibling, the same name in another section, or what resembles it most. The
    first `depth` parts of the key are those of `section`.
    """
    key, prefix = ".".join(parts), ".".join(parts[:depth])
    siblings = list(hints_of(section))
    everything = list(key_names(schema))
    namesakes = [p for p in everything if p.rpartition(".")[2] == parts[-1]]
    misspelt = difflib.get_close_matches(parts[depth], siblings, n=1, cutoff=0.8)
    if not namesakes or (misspelt and depth < len(parts) - 1):
        misspelt = misspelt or difflib.get_close_matches(parts[depth], siblings, n=1)
    if misspelt:
        stem = ".".join([*parts[:depth], misspelt[0]])
        repaired = ".".join([stem, *parts[depth + 1 :]])
        best = [repaired if repaired in everything else stem]
    else:
        # of data.csv, data.subset is not what was meant
        best = namesakes or difflib.get_close_matches(key, everything, n=1, cutoff=0.7)
    where = prefix or "the top level"
    if not best:
        return f"unknown key {key!r}; {where} has {', '.join(siblings)}"
    return f"unknown key {key!r}; did you mean {' or '.join(best)}?"


def key_names(schema: Any, prefix: str = "") -> Iterator[str]:
    """List the dotted keys of a dataclass, sections entered, each after `prefix`."""
    for name, kind in hints_of(schema).items():
        path = f"{prefix}.{name}" if prefix else name
        if dataclasses.is_dataclass(kind):
            yield from key_names(kind, path)
        else:
            yield path


def arms(kind: Any) -> tuple[Any, ...]:
    """Split a union into its types."""
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        return typing.get_args(kind)
    return (kind,)


def describe_kind(kind: Any) -> str:
    """Describe a type in words, as `a number or null`."""
    options = arms(kind)
    if len(options) > 1:
        return " or ".join("null" if a is type(None) else describe_kind(a) for a in options)
    if dataclasses.is_dataclass(kind):
        return "a section"
    names = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
    if kind in names:
        return names[kind]
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin in (list, tuple):
        inner = next((a for a in args if a is not Ellipsis), str)
        return f"a list with each item {describe_kind(inner)}"
    if origin is dict:
        return f"a mapping with each value {describe_kind(args[1])}"
    return getattr(kind, "__name__", str(kind))


def is_flat(kind: Any) -> bool:
    """Tell a mapping of names to single values from any other kind."""
    args = typing.get_args(kind)
    return typing.get_origin(kind) is dict and args[1] in (int, float, bool, str)
