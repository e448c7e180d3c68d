"""Read what another trainer's configuration and samples hold; one line says what is wrong."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from rrgtrain.config import load_config
from rrgtrain.errors import UserError

T = TypeVar("T")


def read_settings(schema: type[T], written: Any, place: str) -> T:
    """Build a section of settings from a mapping of another trainer's configuration.

    written: a mapping, or OmegaConf's; None sets nothing. place: its name there, for messages.

    Raises UserError as `load_config`: an unknown key, or a value that the schema cannot hold.
    """
    if type(written).__module__.startswith("omegaconf."):
        from omegaconf import OmegaConf
        from omegaconf.errors import OmegaConfBaseException

        try:
            written = OmegaConf.to_container(written, resolve=True, throw_on_missing=True)
        except OmegaConfBaseException as error:
            raise UserError(f"{place}: {str(error).partition(chr(10))[0]}") from None
    if written is None:
        return schema()
    if not isinstance(written, Mapping):
        raise UserError(f"{place} is {written!r:.80}; wanted its keys and their values")
    if odd := [key for key in written if not isinstance(key, str)]:
        raise UserError(f"{place} has the key {odd[0]!r:.40}; wanted names")
    try:
        return load_config(schema, None, [], defaults=written, origin=place)
    except TypeError as error:  # a value that no YAML has, as a Path
        raise UserError(f"{place}: {error}; wanted numbers, texts and lists of them") from error


def reference_of(sample: Mapping[str, Any]) -> str:
    """Return the reference report of a sample of verl, `reward_model.ground_truth`.

    Raises UserError where it is absent, or no text.
    """
    holder = sample.get("reward_model")
    if not isinstance(holder, Mapping) or not isinstance(holder.get("ground_truth"), str):
        have = ", ".join(sorted(map(str, sample))) or "none"
        shown = f"reward_model={holder!r:.60}" if "reward_model" in sample else f"fields: {have}"
        raise UserError(
            f"a sample has {shown}; wanted reward_model.ground_truth, the text of its reference"
        )
    return holder["ground_truth"]
