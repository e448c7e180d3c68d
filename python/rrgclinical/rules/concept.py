"""The record of a finding or structure of the rules."""

from __future__ import annotations

from dataclasses import dataclass

from rrgclinical.labels import OBSERVATIONS

LUNG = "lung"
"""Side, zone and severity distinguish one such finding from another."""
SIDED = "sided"
"""Side and severity do; a zone says nothing."""
PLAIN = "plain"
"""Only severity does."""


@dataclass(frozen=True)
class Concept:
    """name: canonical text. family: concepts of one family are related, others unrelated.

    states, suggests: columns of the label matrix it counts for, fully or as uncertain at most.
    layout: LUNG, SIDED or PLAIN. disease: a diagnosis (RaTE's DISEASE) rather than an
    abnormality seen. anatomy: takes no part in presence. phrases: the ways to say it, in the
    notation of `PhraseTable`.
    """

    name: str
    family: str
    layout: str
    states: tuple[int, ...] = ()
    suggests: tuple[int, ...] = ()
    phrases: tuple[str, ...] = ()
    disease: bool = False
    anatomy: bool = False


def finding(
    name: str,
    family: str,
    layout: str = PLAIN,
    *,
    states: str | None = None,
    suggests: str | None = None,
    disease: bool = False,
) -> Concept:
    """A finding that counts for the observation it `states` and the one it `suggests`."""
    return Concept(
        name,
        family,
        layout,
        states=_columns(states),
        suggests=_columns(suggests),
        disease=disease,
    )


def structure(name: str) -> Concept:
    """An anatomical structure: an entity of its own, neither present nor absent."""
    return Concept(name, f"anatomy of {name}", SIDED, anatomy=True)


def _columns(observation: str | None) -> tuple[int, ...]:
    return () if observation is None else (OBSERVATIONS.index(observation),)
