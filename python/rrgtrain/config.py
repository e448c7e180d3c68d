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

import copy
import dataclasses
import difflib
import functools
import math
import os
import re
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import yaml
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import InterpolationValidationError, OmegaConfBaseException, ValidationError

from rrgclinical.common.files import atomic_write
from rrgclinical.common.shown import hidden, hide, redacted
from rrgtrain.errors import UserError
from rrgtrain.recipe_files import find_recipe, read_recipe
from rrgtrain.schema.keys import arms, describe_kind, hints_of, is_flat, key_names, kind_at
from rrgtrain.util.plain_yaml import Plain, read_yaml, value_of

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
    stand, for messages.

    `recipe` is a name under `recipes/`, a path, several of them joined by `+` (the last one wins),
    or None for the defaults alone. Schema fields may declare `metadata={"choices": [...]}`,
    `{"min": ...}` and `{"max": ...}`.

    Raises `UserError` for an unknown recipe, broken YAML, an unknown key, a value of the wrong
    type, outside its choices or outside its bounds.
    """
    config = _defaults_of(schema)
    places: dict[str, str] = {}
    for key, value in (defaults or {}).items():
        _apply(schema, config, _Setting(key, value, origin), places)
    for path, tree, lines in _chain(_named(recipe)) if recipe is not None else []:
        for key, value in _settings(schema, tree, ""):
            setting = _Setting(key, value, f"{path}:{lines[key]}")
            _apply(schema, config, setting, places)
    for override in overrides:
        _apply(schema, config, _override(schema, override), places)
    written = OmegaConf.to_container(config)
    _hide_variables(written)
    try:
        built = OmegaConf.to_object(config)
    except OmegaConfBaseException as error:
        raise _unresolved(schema, error, written, places) from None
    for key, value, field in _leaves(built):
        place = places.get(key, f"{schema.__name__} (default)")
        _check_allowed(key, value, field.metadata, place, _at(written, key))
    # Not a field: what was written is no setting, and two recipes of equal values are equal.
    vars(built)[_WRITTEN] = written, OmegaConf.to_container(config, resolve=True)
    _hide_values(*vars(built)[_WRITTEN])
    return typing.cast(T, built)


_structured = functools.cache(OmegaConf.structured)


def _defaults_of(schema: Any) -> DictConfig:
    """Copy a schema's defaults: it takes OmegaConf five times as long to read them."""
    return copy.deepcopy(_structured(schema))


def dump_config(cfg: Any, path: str | Path, comments: Sequence[str] = ()) -> None:
    """Write every setting of the dataclass instance `cfg` as YAML that `load_config` reads.

    A value that was written as `${...}` stays so: what `${oc.env:KEY}` stands for is not written.
    `comments` are lines that stand on top.
    A file with a key that was typed, as in an address, is for its owner alone to read: a resume
    needs the key, so that it cannot be left out.
    """
    values = OmegaConf.to_container(OmegaConf.structured(cfg))
    written, resolved = vars(cfg).get(_WRITTEN, (None, None))
    text = OmegaConf.to_yaml(OmegaConf.create(_as_written(values, written, resolved)))
    text = "".join(f"# {line}\n" for line in comments) + text
    atomic_write(path, text, private=redacted(text) != text)


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


def _hide_variables(written: Any) -> None:
    """Tell `shown` the values of the environment that a recipe names."""
    for name in re.findall(r"oc\.env:\s*([A-Za-z_]\w*)", str(written)):
        hide(os.environ.get(name, ""), f"${{oc.env:{name}}}")


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


def _unresolved(
    schema: Any, error: OmegaConfBaseException, written: Any, places: Mapping[str, str]
) -> UserError:
    """Word what `${...}` came to, without its value."""
    key = error.full_key or "the recipe"
    place, seen = places.get(key, "recipe"), _at(written, key)
    if not isinstance(error, ValidationError | InterpolationValidationError):
        mend = "give it a value, or point ${...} at a key that exists"
        return UserError(f"{place}: {key}: {hidden(_first_line(error))}; {mend}")
    wanted = describe_kind(kind_at(schema, key, place))
    return UserError(f"{place}: {key} is {seen}, which stands for something else than {wanted}")


def _as_written(value: Any, written: Any, resolved: Any) -> Any:
    """`value` with what was written where that still says the same."""
    if isinstance(written, str) and "${" in written and value == resolved:
        return written
    if isinstance(value, dict) and isinstance(written, dict) and isinstance(resolved, dict):
        return {k: _as_written(v, written.get(k), resolved.get(k)) for k, v in value.items()}
    if isinstance(value, list) and isinstance(written, list) and len(value) == len(written):
        return [_as_written(*each) for each in zip(value, written, resolved, strict=True)]
    return value


def _named(recipe: str | Path) -> list[Path]:
    """Find the files of `a+b`, one laid upon the other; a path may hold a plus of its own."""
    text = str(recipe)
    if "+" in text and not Path(text).is_file():
        return [find_recipe(part) for part in text.split("+")]
    return [find_recipe(recipe)]


def _chain(named: list[Path]) -> list[tuple[Path, dict[str, Any], dict[str, int]]]:
    """Read the recipes and their bases, bases first, each once: file, mapping, key lines."""
    chain: dict[Path, tuple[dict[str, Any], dict[str, int]]] = {}

    def add(path: Path, above: tuple[Path, ...]) -> None:
        tree, lines = read_recipe(path)
        for base in _bases(path, tree.pop("base", None)):
            found = find_recipe(base, beside=path)
            if found in (*above, path):
                loop = " -> ".join(p.stem for p in [*above, path, found])
                raise UserError(f"{path}: base {base!r} closes a loop ({loop}); break it somewhere")
            if found not in chain:
                add(found, (*above, path))
        chain[path] = tree, lines

    for path in named:
        if path not in chain:
            add(path, ())
    return [(path, tree, lines) for path, (tree, lines) in chain.items()]


def _bases(path: Path, base: Any) -> list[str]:
    base = _typed(Any, base)
    listed = [base] if isinstance(base, str) else base or []
    if not isinstance(listed, list) or not all(isinstance(name, str) for name in listed):
        raise UserError(
            f"{path}: base is {base!r}; name a recipe, as in `base: demo`, or a list of them"
        )
    return listed


def _override(schema: type, text: str) -> _Setting:
    key, equals, value = text.partition("=")
    place = f"override {redacted(repr(text))}"
    if not equals or not key.strip():
        raise UserError(f"{place} sets nothing; write it as section.key=value")
    if str in arms(kind_at(schema, key.strip(), place)):
        return _Setting(key.strip(), _text(value.strip()), place)
    try:
        return _Setting(key.strip(), read_yaml(value), place)
    except (yaml.YAMLError, RecursionError) as error:
        raise UserError(f"{place}: the value is not YAML ({_first_line(error)})") from error


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
        inner = args[1] if typing.get_origin(kind) is dict else Any
        return {str(name): _typed(inner, item) for name, item in value.items()}
    if isinstance(value, list):
        inner = args[0] if typing.get_origin(kind) in (list, tuple) else Any
        return [_typed(inner, item) for item in value]
    if isinstance(value, Plain):
        said = value_of(value)
        return str(value) if said is not None and str in arms(kind) else said
    if isinstance(value, str) and {int, float} & set(arms(kind)):
        said = value_of(Plain(value))
        return said if type(said) in (int, float) else value
    return value


def _no_number(kind: Any, value: Any) -> str | None:
    """Find a text where the type wants a number, which OmegaConf may read as another one."""
    args = typing.get_args(kind)
    if isinstance(value, list | dict) and typing.get_origin(kind) in (list, tuple, dict):
        inner, items = (args[1], value.values()) if isinstance(value, dict) else (args[0], value)
        return next(filter(None, (_no_number(inner, item) for item in items)), None)
    number = {int, float} & set(arms(kind))
    return value if number and isinstance(value, str) and "${" not in value else None


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


def _apply(schema: Any, config: DictConfig, setting: _Setting, places: dict[str, str]) -> None:
    kind = kind_at(schema, setting.key, setting.place)
    if dataclasses.is_dataclass(kind):
        if not isinstance(setting.value, Mapping):
            raise UserError(
                f"{setting.place}: {setting.key} is a section, not a value; "
                f"set one of its keys: {', '.join(key_names(kind, setting.key))}"
            )
        for key, value in _settings(kind, setting.value, f"{setting.key}."):
            _apply(schema, config, _Setting(key, value, setting.place), places)
        return
    setting = dataclasses.replace(setting, value=_typed(kind, setting.value))
    odd = _no_number(kind, setting.value)
    if odd is not None:
        raise _wrong_type(setting, kind, odd)
    if isinstance(setting.value, bool) and bool not in arms(kind) and float in arms(kind):
        # OmegaConf would take true as 1.0.
        raise _wrong_type(setting, kind)
    owner, name = _owner(schema, setting.key)
    try:
        if name:
            # the whole key would be split at the name's own dots
            OmegaConf.update(config, owner, {name: setting.value}, merge=True)
        else:
            OmegaConf.update(config, setting.key, setting.value, merge=False)
    except OmegaConfBaseException as error:
        raise _wrong_type(setting, kind) from error
    places[setting.key] = setting.place


def _wrong_type(setting: _Setting, kind: Any, odd: str = "") -> UserError:
    name = type(setting.value).__name__
    seen = "null" if setting.value is None else f"{redacted(repr(setting.value))} ({name})"
    mend = ""
    if any(letter.isdigit() for letter in odd):
        mend = ", in decimal digits, without leading zeros, underscores or colons"
    elif setting.value is None and str in arms(kind):
        mend = f"; write {setting.key}='\"null\"' where the word is meant"
    elif isinstance(setting.value, list | dict) and str in arms(kind):
        mend = "; put it in quotes"
    wanted = describe_kind(kind)
    return UserError(f"{setting.place}: {setting.key} is {seen}; wanted {wanted}{mend}")


def _owner(schema: Any, key: str) -> tuple[str, str]:
    """Split an entry of a flat mapping into mapping and name, which may hold dots; else "", ""."""
    kind: Any = schema
    parts = key.split(".")
    for depth, part in enumerate(parts):
        if is_flat(kind):
            return ".".join(parts[:depth]), ".".join(parts[depth:])
        hints = hints_of(kind) if dataclasses.is_dataclass(kind) else {}
        kind = hints.get(part)
    return "", ""


def _leaves(built: Any, prefix: str = "") -> Iterator[tuple[str, Any, dataclasses.Field[Any]]]:
    for field in dataclasses.fields(built):
        value = getattr(built, field.name)
        if dataclasses.is_dataclass(value):
            yield from _leaves(value, f"{prefix}{field.name}.")
        else:
            yield f"{prefix}{field.name}", value, field


def _check_allowed(
    key: str, value: Any, allowed: Mapping[str, Any], place: str, written: Any
) -> None:
    """Raise UserError, which shows what was written, for a value that is not allowed."""
    if value is None:
        return
    if isinstance(value, list | tuple):
        each = written if isinstance(written, list) else [written] * len(value)
        for item, one in zip(value, each, strict=True):
            _check_allowed(key, item, allowed, place, one)
        return
    if isinstance(value, dict):
        for name, item in value.items():
            one = written.get(name) if isinstance(written, dict) else written
            _check_allowed(f"{key}.{name}", item, {}, place, one)
        return
    seen = written if isinstance(written, str) and "${" in written else redacted(repr(value))
    if isinstance(value, float) and not math.isfinite(value):
        raise UserError(f"{place}: {key} is {seen}; wanted a finite number")
    choices = allowed.get("choices")
    own = allowed.get("own", False) and ":" in str(value)
    if choices is not None and value not in choices and not own:
        if seen is written:
            # neither the value nor what is near to it
            listed = ", ".join(map(str, choices))
            raise UserError(f"{place}: {key} is {seen}; wanted one of {listed}")
        close = difflib.get_close_matches(str(value), [str(c) for c in choices], n=1)
        hint = f"; did you mean {close[0]}?" if close else ""
        raise UserError(
            f"{place}: {key} is {seen}; wanted one of {', '.join(map(str, choices))}{hint}"
        )
    low, high = allowed.get("min"), allowed.get("max")
    if (low is not None and value < low) or (high is not None and value > high):
        bounds = [f">= {low}"] * (low is not None) + [f"<= {high}"] * (high is not None)
        raise UserError(f"{place}: {key} is {seen}; wanted a value {' and '.join(bounds)}")
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise UserError(f"{place}: {key} is {seen}; wanted a whole number of at most 64 bits")


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]
