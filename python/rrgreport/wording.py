"""Compare the wording of a run's systems with each other and with training reports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set

from rrgclinical.rules import split_sentences


def wording_notes(systems: Mapping[str, Sequence[str]], training: Sequence[str]) -> list[str]:
    """Count equal reports of the last two systems, and sentences that no training report has.

    systems: the reports of the same studies by the system's name, in the order of the story.
    training: reports; without any the second note is left out.
    """
    notes = []
    if len(systems) > 1:
        (before, first), (after, last) = list(systems.items())[-2:]
        equal = sum(one == two for one, two in zip(first, last, strict=True))
        notes.append(f"{equal} of {len(last)} reports of {after} equal those of {before}.")
    heard = {sentence for report in training for sentence in sentences(report)}
    if heard:
        shares = [
            f"{name} {100 * unheard_share(own, heard):.1f} %" for name, own in systems.items()
        ]
        notes.append(f"Sentences that no training report has: {', '.join(shares)}.")
    return notes


def unheard_share(reports: Sequence[str], heard: Set[str]) -> float:
    """Compute the share of sentences that are not in `heard`; 0 without a sentence."""
    unheard = [sentence not in heard for report in reports for sentence in sentences(report)]
    return sum(unheard) / max(len(unheard), 1)


def sentences(report: str) -> list[str]:
    """Split a report."""
    return [report[begin:end] for begin, end in split_sentences(report)]
