"""Check what callers hand over: sequences, reports, completions, counts, shares, options."""

from __future__ import annotations

import difflib
import inspect
import math
import numbers
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from typing import Any, TypeVar
from urllib.parse import urlsplit

from rrgclinical.common.errors import UserError, odd_text

T = TypeVar("T")


def check_options(owner: str, target: Callable[..., Any], options: Mapping[str, Any]) -> None:
    """UserError where `options` are not the parameters of `target`: one unknown, or one missing."""
    parameters = inspect.signature(target).parameters
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return
    options_of = {n: p for n, p in parameters.items() if p.kind is not p.VAR_POSITIONAL}
    takes = ", ".join(options_of) or "no options"
    if unknown := sorted(set(options) - set(options_of)):
        close = difflib.get_close_matches(unknown[0], options_of, n=1)
        hint = f" (did you mean {close[0]}?)" if close else ""
        raise UserError(f"{owner}: unknown option {unknown[0]!r}{hint}; it takes {takes}")
    needed = [n for n, p in options_of.items() if p.default is p.empty and n not in options]
    if needed:
        raise UserError(f"{owner}: option {needed[0]!r} is missing; it takes {takes}")


def listed(values: Iterable[T], name: str, of: str = "str") -> list[T]:
    """List values in their order.

    name, of: what the caller calls the argument, and its members.

    Raises TypeError for one text, for what has no members, and for a mapping or a set, whose order
    says nothing of which value belongs to which.
    """
    if isinstance(values, (str, bytes)):
        raise TypeError(f"{name} is one {type(values).__name__}; wanted a sequence of {of}")
    try:
        members = iter(values)
    except TypeError:
        members = None
    if members is None or isinstance(values, (Mapping, Set)):
        shown = "None" if values is None else type(values).__name__
        raise TypeError(f"{name} is {shown}; wanted a sequence of {of}")
    return list(members)


def first_twice(names: Iterable[str]) -> str | None:
    """Return the first name that stands more than once, in linear time."""
    return next((name for name, times in Counter(names).items() if times > 1), None)


def unwrapped(value: object) -> object:
    """Return the Python value of a NumPy scalar or 0-dimensional tensor; else what came."""
    item = getattr(value, "item", None)
    return item() if item is not None and getattr(value, "ndim", None) == 0 else value


def is_real(value: object) -> bool:
    """Tell whether `value` is a number, and no flag."""
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def whole_number(value: object, place: str, least: int) -> int:
    """Return a whole number of at least `least`.

    place: what the caller calls it. Raises UserError for a text, a flag or a fraction.
    """
    if not isinstance(value, numbers.Integral) or isinstance(value, bool) or value < least:
        raise UserError(f"{place} is {value!r:.40}; wanted a whole number of at least {least}")
    return int(value)


def share_of_steps(progress: object) -> float:
    """Read the share of a run's steps that are done.

    Raises ValueError for anything but a number from 0 to 1.
    """
    value: Any = unwrapped(progress)
    if not is_real(value) or not 0 <= value <= 1:
        raise ValueError(f"progress is {progress!r:.40}; wanted a share of the steps, 0 to 1")
    return float(value)


def share_of_state(state: Any) -> float:
    """Read the share of the steps that are done of TRL's `trainer_state`.

    All are where it is None, or knows no end. Raises ValueError for a state without numbers.
    """
    if state is None:
        return 1.0
    steps: Any = getattr(state, "max_steps", None)
    step: Any = getattr(state, "global_step", None)
    if not all(isinstance(n, numbers.Real) and math.isfinite(n) for n in (steps, step)):
        raise ValueError(
            f"trainer_state has max_steps {steps!r:.40} and global_step {step!r:.40}; wanted the "
            "numbers of transformers' TrainerState"
        )
    return min(1.0, step / steps) if steps > 0 else 1.0


def check_reports(reports: Sequence[str], name: str = "reports") -> list[str]:
    """List reports; TypeError names the first index that is no str.

    name: what the caller calls the argument.
    """
    texts = listed(reports, name)
    for index, report in enumerate(texts):
        if not isinstance(report, str):
            raise TypeError(f"{name}[{index}] is {type(report).__name__}; wanted str")
    return texts


def check_pairs(reports: Any, references: Any) -> tuple[list[str], list[str]]:
    """List reports and the reference of each.

    Raises TypeError for what is no list of str, ValueError where they differ in number.
    """
    texts, truth = check_reports(reports), check_reports(references, "references")
    if len(texts) != len(truth):
        raise ValueError(f"{len(texts)} reports and {len(truth)} references; wanted one for each")
    return texts, truth


Loc = tuple[str | int, ...]


def odd_numbers(tree: Any) -> Iterator[tuple[Loc, float]]:
    """Find numbers that no setting takes, and where in the tree they are."""
    for loc, leaf in _leaves(tree):
        if isinstance(leaf, int):
            fits = -(2**63) <= leaf < 2**63
        else:
            fits = not isinstance(leaf, float) or math.isfinite(leaf)
        if not fits:
            yield loc, leaf


def odd_texts(tree: Any) -> Iterator[tuple[Loc, str]]:
    """Find texts, keys too, that no JSON can hold, with the way there."""
    for loc, leaf in _leaves(tree):
        for text in (*loc, leaf):
            if isinstance(text, str) and odd_text(text):
                yield loc, text


def _leaves(tree: Any, loc: Loc = ()) -> Iterator[tuple[Loc, Any]]:
    if isinstance(tree, dict | list) and tree:
        for part, item in tree.items() if isinstance(tree, dict) else enumerate(tree):
            yield from _leaves(item, (*loc, part))
    else:
        yield loc, tree


def completion_text(completion: Any) -> str:
    """Return the text of a completion.

    A str is its own; the messages of a conversation are joined.

    A part of a message that has no text, such as an image, adds nothing; a message whose content
    is None is empty, as one that calls a tool. Raises TypeError for anything else: text of another
    type of part is not left out.
    """
    if isinstance(completion, str):
        return completion
    if isinstance(completion, list) and completion:
        return "\n".join(_content(message) for message in completion)
    shown = "an empty list" if completion == [] else type(completion).__name__
    raise TypeError(f"a completion is {shown}; wanted text or a list of messages")


def _content(message: Any) -> str:
    if not isinstance(message, dict) or "content" not in message:
        raise TypeError(f"a message is {message!r:.80}; wanted a dict with role and content")
    content = message["content"]
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, list) or not all(isinstance(part, dict) for part in content):
        raise TypeError(f"a message's content is {content!r:.80}; wanted text or a list of parts")
    return "".join(map(_text, content))


def _text(part: dict[str, Any]) -> str:
    text = part.get("text")
    # a column of parts of several types has a None where a type has no such key
    if text is None and isinstance(part.get("type"), str) and part["type"] != "text":
        return ""
    if part.get("type") not in ("text", "output_text") or not isinstance(text, str):
        raise TypeError(f"a part of a message is {part!r:.80}; wanted its type text, and a text")
    return text


def is_address(text: str) -> bool:
    """Tell whether a text is an address of HTTP with a host."""
    try:
        parts = urlsplit(text if text.isprintable() else "")  # it would drop line ends
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is no number, half an IPv6 address
        return False
