"""Keep what resumes have changed in a run's settings, and from which step on."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from rrgclinical.common.shown import one_line, redacted
from rrgtrain.state.experiment import leaves

Change = dict[str, Any]
"""A changed setting: `step` and `resumed` (where the run went on), `row` (rows of metrics logged
before), `key`, `old` and `new`."""


def settings_of(config: Path) -> dict[str, str]:
    """Read each dotted key of a config.yaml with its value on one line.

    `${...}` stays as it is written, and what an address hides is not shown.
    """
    values = OmegaConf.to_container(OmegaConf.load(config))
    return {key: _shown(value) for key, value in leaves(values)}


def changes_of(
    about: Mapping[str, Any], before: Mapping[str, str], now: Mapping[str, str], place: Change
) -> list[Change]:
    """List what resumes have changed up to the one at `place`, that one included.

    `about` describes the checkpoint that the run goes on from: it knows the changes before it and
    the settings of its steps. `before`, those of config.yaml, stands in where it does not. A
    setting that only one version of the schema has is no change.
    """
    before = about.get("values") or before
    keys = [key for key, value in now.items() if before.get(key, value) != value]
    made = [{**place, "key": key, "old": before[key], "new": now[key]} for key in keys]
    return [*about.get("changes", []), *made]


def as_line(change: Change) -> str:
    """Write a change as "from step N: key old -> new (resumed ...)"."""
    return (
        f"from step {change['step']}: {change['key']} {change['old']} -> {change['new']} "
        f"(resumed {change['resumed']})"
    )


def _shown(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return one_line(redacted(text))
