"""Tell the settings of a run by which its reports were judged."""

from __future__ import annotations

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
