"""Loads recipes: YAML and `section.key=value` overrides, checked against a dataclass schema.

A recipe writes only what differs from the schema's defaults or from the recipes it names as
`base`; later ones override earlier ones, and a recipe that two of them share counts once, where it
comes first. Sections merge key by key; a free mapping (`dict[str, float]`) given by a recipe
replaces the inherited one as a whole, so a term is never left over, and an override
`reward.terms.match=0.5` sets a single entry. A text is the characters typed,
quotes around it aside: `data.root=12:30` and `id: No` say neither a number nor a flag, and numbers
are decimal. Nothing is guessed: what the schema does not know or cannot hold is a `UserError` that
names the place and the nearest valid spelling.
"""

from __future__ import annotations

import dataclasses
import difflib
import json
import os
import re
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import TypeAdapter, ValidationError

from rrgclinical.common.arguments import Loc, odd_numbers, odd_texts
from rrgclinical.common.files import atomic_write
from rrgclinical.common.plain_yaml import Plain, read_yaml, value_of
from rrgclinical.common.shown import hidden, hide, redacted
from rrgtrain.errors import UserError
from rrgtrain.recipe_files import chain_of, named_recipes
from rrgtrain.schema.keys import (
    arms,
    describe_kind,
    hints_of,
    is_flat,
    key_names,
    kind_at,
    section_of,
    setting_at,
    settings,
)

T = TypeVar("T")
_WRITTEN = "_written"


@dataclasses.dataclass(frozen=True)
class _Setting:
    """Hold one written value: its dotted key, the value, and where it stands."""

    key: str
    value: Any
    place: str


def load_config(
    schema: type[T],
    recipe: str | Path | None,
    overrides: list[str],
    *,
    defaults: Mapping[str, Any] | None = None,
    origin: str = "default",
) -> T:
    """Build the dataclass `schema` from its defaults, the recipe, then the overrides.

    `defaults` are values by dotted key that go before the schema's own; `origin` is where they
    stand, for messages. `recipe` is a name under `recipes/`, a path, several of them joined by `+`
    (the last one wins), or None for the defaults alone. The schema is of pydantic's dataclasses,
    whose fields are `Literal` or have bounds in `Field(ge=..., le=...)`.

    Raises `UserError` for an unknown recipe, broken YAML, an unknown key, a value of the wrong
    type, outside its choices or outside its bounds.
    """
    written = dataclasses.asdict(schema())  # type: ignore[call-overload]
    places: dict[str, str] = {}
    for key, value in (defaults or {}).items():
        _apply(schema, written, _Setting(key, value, origin), places)
    for _, _, tree, lines in chain_of(named_recipes(recipe)) if recipe is not None else []:
        for key, value in _settings(schema, tree, ""):
            _apply(schema, written, _Setting(key, value, lines[key]), places)
    for override in overrides:
        _apply(schema, written, _override(schema, override), places)
    resolved = _resolved(schema, written, places)
    odd, text = next(odd_numbers(resolved), None), next(odd_texts(resolved), None)
    if text is not None:
        loc, value = text
        key = ".".join(map(str, loc))
        raise UserError(
            f"{_place(schema, loc, places)}: {key!r} is {redacted(repr(value))}, which holds a NUL "
            "or a byte that is not UTF-8; write it as UTF-8 text without a NUL"
        )
    try:
        if odd and isinstance(odd[1], float):
            raise _no_number(schema, odd, written, places)
        # as JSON: strict in types, and a mapping becomes a section all the same
        built = TypeAdapter(schema).validate_json(json.dumps(resolved), strict=True)
    except ValidationError as error:
        raise _refused(schema, error, written, places) from None
    except UserError as error:
        raise UserError(hidden(str(error))) from None
    if odd:
        raise _no_number(schema, odd, written, places)
    # Not a field: what was written is no setting, and two recipes of equal values are equal.
    vars(built)[_WRITTEN] = written, resolved
    _hide_values(written, resolved)
    return built


def dump_config(cfg: Any, path: str | Path, comments: Sequence[str] = ()) -> None:
    """Write every setting of the dataclass instance `cfg` as YAML that `load_config` reads.

    A value that was written as `${...}` stays so: what `${oc.env:KEY}` stands for is not written.
    `comments` are lines that stand on top.
    A file with a key that was typed, as in an address, is for its owner alone to read: a resume
    needs the key, so that it cannot be left out.
    """
    from omegaconf import OmegaConf

    values = dataclasses.asdict(cfg)
    written, resolved = vars(cfg).get(_WRITTEN, (None, None))
    text = OmegaConf.to_yaml(OmegaConf.create(_as_written(values, written, resolved)))
    text = "".join(f"# {line}\n" for line in comments) + text
    atomic_write(path, text, private=redacted(text) != text)


def replaced(cfg: T, **changes: Any) -> T:
    """Do as `dataclasses.replace`, and keep what was written of all else, `${...}` in it."""
    other = dataclasses.replace(cfg, **changes)  # type: ignore[type-var]
    vars(other).update({name: v for name, v in vars(cfg).items() if name == _WRITTEN})
    return other


def interpolated(cfg: Any, keys: Iterable[str]) -> dict[str, Any]:
    """Return what was written for those dotted keys where that is or holds `${...}`."""
    written, resolved = vars(cfg).get(_WRITTEN, (None, None))
    values = dataclasses.asdict(cfg)
    asked = {key: _at(written, key) for key in keys if _at(values, key) == _at(resolved, key)}
    return {key: value for key, value in asked.items() if "${" in str(value)}


def _at(tree: Any, key: str) -> Any:
    for name in key.split("."):
        tree = tree.get(name) if isinstance(tree, dict) else None
    return tree


def _hide_values(written: Any, resolved: Any) -> None:
    """Tell `shown` each text that a resolver made, as it was written."""
    if isinstance(written, str) and isinstance(resolved, str) and "${oc." in written:
        hide(resolved, written)
    elif isinstance(written, dict) and isinstance(resolved, dict):
        for key, value in written.items():
            _hide_values(value, resolved.get(key))
    elif isinstance(written, list) and isinstance(resolved, list):
        for pair in zip(written, resolved, strict=False):
            _hide_values(*pair)


def _resolved(schema: Any, written: Any, places: Mapping[str, str]) -> Any:
    """Put what `${...}` stands for in its place; UserError, without its value, where it cannot."""
    if "${" not in json.dumps(written):
        return written
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    # values of the environment are never shown, nor in an error from here on
    for name in re.findall(r"oc\.env:\s*([A-Za-z_]\w*)", str(written)):
        hide(os.environ.get(name, ""), f"${{oc.env:{name}}}")
    try:
        resolved = OmegaConf.to_container(OmegaConf.create(written), resolve=True)
    except (OmegaConfBaseException, RecursionError) as error:
        place = re.search(r"full_key: (\S+)", str(error))
        key = place[1] if place else "the recipe"
        why = "nested too deep" if isinstance(error, RecursionError) else _first_line(error)
        mend = "give it a value, or point ${...} at a key that exists"
        raise UserError(f"{places.get(key, 'recipe')}: {key}: {hidden(why)}; {mend}") from None
    return _typed(schema, resolved)


def _as_written(value: Any, written: Any, resolved: Any) -> Any:
    """`value` with what was written where that still says the same."""
    if isinstance(written, str) and "${" in written and value == resolved:
        return written
    if isinstance(value, dict) and isinstance(written, dict) and isinstance(resolved, dict):
        return {k: _as_written(v, written.get(k), resolved.get(k)) for k, v in value.items()}
    if isinstance(value, list) and isinstance(written, list) and len(value) == len(written):
        return [_as_written(*each) for each in zip(value, written, resolved, strict=True)]
    return value


def undone_keys(schema: type, recipe: str | Path | None) -> list[str]:
    """Say which settings of a recipe a later one of `a+b` takes back.

    A recipe takes back what it inherits from bases of its own, and `rl.algorithm` in any way; what
    else it sets itself is what it is laid upon the others for.
    """
    lines: list[str] = []
    earlier: dict[str, tuple[Any, str]] = {}
    named = named_recipes(recipe) if recipe is not None else []
    chain = chain_of(named)
    for part, name in zip(named, str(recipe).split("+"), strict=False):
        own: dict[str, tuple[Any, bool]] = {}
        for path, brought_by, tree, places in chain:
            for key, value in _settings(schema, tree, "") if brought_by == part else ():
                own[key] = _typed(kind_at(schema, key, places[key]), value), path != part
        for key, (value, inherited) in own.items():
            before, by = earlier.get(key, (value, ""))
            if before != value and (inherited or key == "rl.algorithm"):
                line = f"{key} is {value} by {name}, no longer {before} as {by} sets it"
                lines.append(redacted(line))
            earlier[key] = value, name
    return lines


def _override(schema: type, text: str) -> _Setting:
    key, equals, value = text.partition("=")
    place = f"override {redacted(repr(text))}"
    if not equals or not key.strip():
        raise UserError(f"{place} sets nothing; write it as section.key=value")
    kinds = arms(kind_at(schema, key.strip(), place))
    if str in kinds and not (list[str] in kinds and value.strip().startswith("[")):
        return _Setting(key.strip(), _text(value.strip()), place)
    try:
        return _Setting(key.strip(), read_yaml(value), place)
    except (yaml.YAMLError, RecursionError) as error:
        raise UserError(f"{place}: not YAML ({_first_line(error)}); quote 'k={{a: 1}}'") from error


def _text(typed: str) -> str:
    """Take the characters typed as a text, but for quotes around them."""
    if typed.startswith(("'", '"')):
        try:
            quoted = read_yaml(typed)
        except yaml.YAMLError:
            return Plain(typed)
        if type(quoted) is str:
            return quoted
    return Plain(typed)


def _typed(kind: Any, value: Any) -> Any:
    """Convert what is written to what it says for this type.

    A text keeps its characters; a number in quotes is one where a number is wanted.
    """
    args = typing.get_args(kind)
    if isinstance(value, Mapping):
        hints = hints_of(kind) if dataclasses.is_dataclass(kind) else {}
        inner = args[1] if typing.get_origin(kind) is dict else Any
        return {str(name): _typed(hints.get(name, inner), item) for name, item in value.items()}
    if isinstance(value, list):
        lists = (arm for arm in arms(kind) if typing.get_origin(arm) in (list, tuple))
        inner = next((typing.get_args(arm)[0] for arm in lists), Any)
        return [_typed(inner, item) for item in value]
    if not isinstance(value, str):
        return value
    said = value_of(Plain(value))
    if str in arms(kind):
        return None if said is None and isinstance(value, Plain) else str(value)
    if bool in arms(kind) and said in (0, 1):
        return bool(said)
    if type(said) in (int, float) and {int, float} & set(arms(kind)):
        return said if type(said) is float or int in arms(kind) else float(value)
    return said if isinstance(value, Plain) else value


def _settings(schema: Any, tree: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    """(dotted key, value) of a mapping; sections are entered, any other value is a leaf."""
    hints = hints_of(schema)
    for name, value in tree.items():
        key = f"{prefix}{name}"
        section = hints.get(name)
        if dataclasses.is_dataclass(section) and isinstance(value, Mapping):
            yield from _settings(section, value, f"{key}.")
        else:
            yield key, value


def _apply(schema: Any, tree: Any, setting: _Setting, places: dict[str, str]) -> None:
    """Write a setting into the tree, and where it stands into `places`."""
    kind = kind_at(schema, setting.key, setting.place)
    if dataclasses.is_dataclass(kind):
        if not isinstance(setting.value, Mapping):
            raise UserError(
                f"{setting.place}: {setting.key} is a section, not a value; "
                f"set one of its keys: {', '.join(key_names(kind, setting.key))}"
            )
        for key, value in _settings(kind, setting.value, f"{setting.key}."):
            _apply(schema, tree, _Setting(key, value, setting.place), places)
        return
    *above, name = _parts(schema, setting.key)
    own = tree
    for part in above:
        if not isinstance(own.get(part), dict):
            own[part] = {}
        own = own[part]
    places[setting.key] = setting.place
    if not (section_of(kind) and isinstance(setting.value, Mapping)):
        own[name] = _typed(kind, setting.value)
        return
    own[name] = {str(entry): {} for entry in setting.value}
    for entry, value in setting.value.items():
        _apply(schema, tree, _Setting(f"{setting.key}.{entry}", value, setting.place), places)


def _parts(schema: Any, key: str) -> list[str]:
    """Split a dotted key; the name of an entry of a flat mapping may hold dots itself."""
    kind, parts = schema, key.split(".")
    for depth, part in enumerate(parts):
        if is_flat(kind):
            return [*parts[:depth], ".".join(parts[depth:])]
        kind = hints_of(kind).get(part) if dataclasses.is_dataclass(kind) else None
    return parts


def _no_number(
    schema: Any, odd: tuple[Loc, float], written: Any, places: Mapping[str, str]
) -> UserError:
    loc, number = odd
    key = ".".join(part for part in loc if isinstance(part, str))
    seen = f"{_place(schema, loc, places)}: {key} is {_interpolation(written, loc) or number}"
    whole = "a whole number of at most 64 bits"
    return UserError(f"{seen}; wanted {whole if isinstance(number, int) else 'a finite number'}")


def _place(schema: Any, loc: Loc, places: Mapping[str, str]) -> str:
    keys = (".".join(map(str, loc[:end])) for end in range(len(loc), 0, -1))
    return next((places[key] for key in keys if key in places), f"{schema.__name__} (default)")


def _interpolation(written: Any, loc: Loc) -> str:
    """Return the `${...}` that was written there, or for what is around it; "" where none was."""
    for part in loc:
        if not isinstance(written, dict | list):
            break
        if isinstance(written, dict) or isinstance(part, int):  # else a union's arm is named
            written = written[part]  # type: ignore[index]
    return written if isinstance(written, str) and "${" in written else ""


def _refused(
    schema: Any, error: ValidationError, written: Any, places: Mapping[str, str]
) -> UserError:
    """Word the first of pydantic's errors: what was written where, and what is wanted."""
    first = error.errors(include_url=False)[0]
    loc, value, known = first["loc"], first["input"], {s.key: s for s in settings(schema)}
    # what was set: within it are items of a list and parts of a union
    ends = range(len(loc), 0, -1)
    end = next(e for e in ends if ".".join(map(str, loc[:e])) in {**places, **known})
    key = ".".join(map(str, loc[:end]))
    place, kind = _place(schema, loc, places), kind_at(schema, key, "")
    setting, text = setting_at(schema, key), _interpolation(written, loc)
    seen = f"{place}: {key} is {text or redacted(repr(value))}"
    if setting and first["type"].startswith(("greater_than", "less_than")):
        return UserError(f"{seen}; wanted a value {' and '.join(setting.bounds)}")
    if setting and setting.choices and isinstance(value, str):
        # of an interpolation neither the value nor what is near to it
        close = [] if text else difflib.get_close_matches(value, setting.choices, n=1)
        hint = f"; did you mean {close[0]}?" if close else ""
        return UserError(f"{seen}; wanted one of {', '.join(setting.choices)}{hint}")
    if text:
        return UserError(f"{seen}, which stands for something else than {describe_kind(kind)}")
    for part in loc[:end]:
        written = written[part]
    return _wrong_type(_Setting(key, written, place), kind, value)


def _wrong_type(setting: _Setting, kind: Any, inner: Any) -> UserError:
    """Word a value of another type; `inner` is the part of it that is wrong."""
    name = type(setting.value).__name__
    seen = "null" if setting.value is None else f"{redacted(repr(setting.value))} ({name})"
    mend = ""
    if isinstance(inner, str) and any(letter.isdigit() for letter in inner):
        mend = ", in decimal digits, without leading zeros, underscores or colons"
    elif setting.value is None and str in arms(kind):
        mend = f"; write {setting.key}='\"null\"' where the word is meant"
    elif isinstance(setting.value, dict) and any(":" in str(key) for key in setting.value):
        mend = "; write a blank behind each colon, as in {id: StudyID}"
    elif isinstance(setting.value, list | dict) and str in arms(kind):
        mend = "; put it in quotes"
    wanted = describe_kind(kind)
    return UserError(f"{setting.place}: {setting.key} is {seen}; wanted {wanted}{mend}")


def _first_line(error: Exception) -> str:
    return getattr(error, "problem", None) or str(error).strip().partition("\n")[0]
