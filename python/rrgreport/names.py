"""Name edit rules and phases in print, and settings by which reports are judged."""

from __future__ import annotations

RULES: dict[str, str] = {
    "a": "conflict",
    "b": "replacement",
    "c": "deletion",
    "d": "addition",
    "e": "empty report",
}
"""The rules of EditGRPO by letter. (e) edits only an empty report; else it leaves it alone."""


_PHASES = {
    "sft": "SFT",
    "grpo": "GRPO",
    "dr_grpo": "Dr. GRPO",
    "editgrpo": "EditGRPO",
    "mrg_r1": "MRG-R1",
    "deer": "DEER",
    "ditpo": "DiTPO",
    "orapo": "OraPO",
}


def phase_name(phase: str) -> str:
    """Name a phase of the metrics log in print; other names stay."""
    return _PHASES.get(phase, phase)


# Where and at what cost reports are read: they change no score.
_UNSCORED = ("device", "cache", "cache_texts", "max_cost")
# By what labels are read in reports, and in which studies.
_LABELS = (
    *("reward.labeller", "reward.against", "reward.blocks", "reward.options"),
    *("eval.split", "eval.limit", "eval.max_new_tokens", "eval.truth"),
)


def changes_reward(key: str) -> bool:
    """Tell a dotted key that a report's reward depends on."""
    section, _, name = key.partition(".")
    return section == "reward" and name.partition(".")[0] not in _UNSCORED


def changes_labels(key: str) -> bool:
    """Tell a dotted key that the clinical metrics of an evaluation depend on."""
    return ".".join(key.split(".")[:2]) in _LABELS
