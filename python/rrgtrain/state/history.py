"""Keep what resumes have changed in a run's settings, and from which step on."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from rrgclinical.common.shown import one_line, redacted
from rrgtrain.state.experiment import digest_of, leaves
from rrgtrain.state.files import code_files

_BEHIND = "behind "

Change = dict[str, Any]
"""A changed setting: `step` and `resumed` (where the run went on), `row` (rows of metrics logged
before), `key`, `old` and `new`; the two are equal where what stands behind them has changed."""


def settings_of(config: Path) -> dict[str, str]:
    """Read each dotted key of a config.yaml with its value on one line.

    `${...}` stays as it is written, and what an address hides is not shown.
    """
    values = OmegaConf.to_container(OmegaConf.load(config))
    return {key: _shown(value) for key, value in leaves(values)}


def behind(values: Mapping[str, Any], written: Iterable[str]) -> dict[str, str]:
    """Digest what may change behind a setting whose text stays.

    values: of all settings. By the setting what `${...}` stands for in those that are `written`
    so, and by "reward.terms: mine.py" the file of a function of one's own.
    """
    digests = {key: digest_of(values[key]) for key in written} | code_files(values)
    return {f"{_BEHIND}{name}": digest for name, digest in digests.items()}


def changes_of(
    about: Mapping[str, Any], before: Mapping[str, str], now: Mapping[str, str], place: Change
) -> list[Change]:
    """List what resumes have changed up to the one at `place`, that one included.

    `about` describes the checkpoint that the run goes on from: it knows the changes before it and
    the settings of its steps. `before`, those of config.yaml, stands in where it does not. A
    setting that only one version of the schema has is no change.
    now: of `settings_of` and `behind`.
    """
    before = about.get("values") or before
    keys = [key for key, value in now.items() if before.get(key, value) != value]
    made = []
    for name in keys:
        key, _, file = name.removeprefix(_BEHIND).partition(": ")
        if name == key:
            made.append({**place, "key": key, "old": before[key], "new": now[key]})
        elif file or key not in keys:
            made.append({**place, "key": key, "old": file or now[key], "new": file or now[key]})
    return [*about.get("changes", []), *made]


def as_line(change: Change) -> str:
    """Write a change as "from step N: key old -> new (resumed ...)"."""
    key, old, new = change["key"], change["old"], change["new"]
    how = f"{key} {old} -> {new}"
    if old == new:
        how = "stands for another value than before" if "${" in old else "has changed"
        how = f"{key}: {old} {how}"
    return f"from step {change['step']}: {how} (resumed {change['resumed']})"


def _shown(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return one_line(redacted(text))
