"""Names of edit rules and phases in tables and figures."""

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
