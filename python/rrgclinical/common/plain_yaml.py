"""Read YAML whose unquoted values keep their characters until their type is known.

YAML 1.1 makes 83 of 0123, 750 of 12:30 and False of no; who writes a text means these characters.
"""

from __future__ import annotations

import re
from typing import Any, ClassVar

import yaml

_TAGS = "tag:yaml.org,2002:"
_MERGE = f"{_TAGS}merge"
_NO_JSON = [f"{_TAGS}{name}" for name in ("binary", "timestamp", "set")]
"""Tags whose values JSON, and so a recipe, has no room for."""
_WHOLE = re.compile(r"[-+]?(?:0|[1-9][0-9]*)")
_NUMBER = re.compile(
    r"[-+]?(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?|\.[0-9]+)(?:e[-+]?[0-9]+)?"
    r"|[-+]?\.?(?:inf|infinity)|\.?nan",
    re.I,
)
_MOST = 2**20
"""Characters of a file: what is larger was not typed, and is parsed for minutes."""
_NULLS = ("", "~", "null", "Null", "NULL")
_WORDS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}


class Plain(str):
    """An unquoted value, as typed."""


class _Loader(yaml.SafeLoader):
    # no unquoted value is more than its characters, and `<<` a key like any other
    yaml_implicit_resolvers: ClassVar[dict[str, Any]] = {}

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        # a value that holds itself is refused where it is built
        self.deep_construct = True

    def construct_object(self, node: Any, deep: bool = False) -> Any:
        problem = f"{node.tag.replace(_TAGS, '!!')} is not read here; write a plain value"
        if node.tag in _NO_JSON:
            raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark)
        try:
            return super().construct_object(node, deep=deep)
        except (AttributeError, KeyError, IndexError, ValueError) as error:
            # PyYAML reads `!!int x` and `!!bool 3` without looking
            raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark) from error

    def construct_scalar(self, node: Any) -> Any:
        value = super().construct_scalar(node)
        return Plain(value) if node.style is None else value

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        keys = set()
        for key, _ in node.value:
            merges = key.tag == _MERGE or (isinstance(key, yaml.ScalarNode) and key.value == "<<")
            if merges or (isinstance(key, yaml.ScalarNode) and key.value in keys):
                kind = "merging" if merges else "duplicate"
                raise yaml.constructor.ConstructorError(
                    "while constructing a mapping",
                    node.start_mark,
                    f"found {kind} key {key.value}",
                    key.start_mark,
                )
            keys.add(key.value if isinstance(key, yaml.ScalarNode) else id(key))
        return super().construct_mapping(node, deep=deep)


def check_size(text: str) -> None:
    """Raise yaml.YAMLError for more than _MOST characters, before they are parsed."""
    if len(text) > _MOST:
        raise yaml.YAMLError(f"{len(text):,} characters; wanted at most {_MOST:,}")


def read_yaml(text: str) -> Any:
    """Read a document whose unquoted values are `Plain`; yaml.YAMLError where it is broken.

    A key that stands twice in one mapping is an error; see also `check_size`.
    """
    check_size(text)
    return yaml.load(text, Loader=_Loader)


def read_values(text: str) -> Any:
    """Read a document with every unquoted value as `value_of` says; keys stay texts.

    Raises yaml.YAMLError as `read_yaml` does.
    """
    return _valued(read_yaml(text))


def _valued(read: Any) -> Any:
    if isinstance(read, dict):
        return {str(key): _valued(value) for key, value in read.items()}
    if isinstance(read, list):
        return [_valued(value) for value in read]
    return value_of(read) if isinstance(read, Plain) else read


def value_of(plain: Plain) -> Any:
    """Return the null, flag or number that an unquoted value says, else its text.

    Numbers are decimal: 0123, 1_000, 0x1F and 12:30 are texts.
    """
    if plain in _NULLS:
        return None
    if plain.lower() in _WORDS:
        return _WORDS[plain.lower()]
    try:
        if _WHOLE.fullmatch(plain):
            return int(plain)
        if _NUMBER.fullmatch(plain):
            return float(plain.lower().replace(".inf", "inf").replace(".nan", "nan"))
    except ValueError:
        pass  # more digits than Python reads
    return str(plain)
