"""Digest the files of a checkpoint, to tell whether they are those of before."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rrgclinical.common.errors import Stopped
from rrgclinical.common.files import WEIGHTS, file_digest
from rrgclinical.common.resolve import own_files
from rrgclinical.common.shown import hidden
from rrgpolicy.model.load import base_of_adapter
from rrgpolicy.model.whole import fetch
from rrgtrain.errors import UserError
from rrgtrain.schema import PROMPT_STYLES, PolicySettings, RewardSettings, RlSettings
from rrgtrain.state.remembered import FILE, TINY, known_base, read_remembered

# Settings that may name functions of one's own.
_CODE = (
    *("reward.terms", "reward.labeller", "reward.extractor", "edit.extractor"),
    *("token_weights.labeller", "rl.algorithm"),
)
BASE_FILES = "base_files"
"""Key of rrgtrain.json for digests of the config and weights that an adapter was trained on."""
_READ = (*WEIGHTS, ".json", ".jinja", ".txt", ".model")


def start_files(policy: PolicySettings, rl: RlSettings, reward: RewardSettings) -> dict[str, str]:
    """Map the files that a run begins from to digests.

    They are those of policy.path, rl.reference, policy.prompt and severity's table; a key is
    "policy.path: model.safetensors". Hub names, and a tiny policy, which lies in its run, have
    none.
    """
    start, reference = policy.path, rl.reference
    found = {} if start == TINY else {"policy.path": file_digests(start)}
    if reference == "base":
        reference = (known_base(start) if start != TINY else None) or "start"
    if reference != "start":
        found["rl.reference"] = file_digests(reference)
    prompt = Path(policy.prompt).expanduser()
    if policy.prompt not in PROMPT_STYLES and prompt.is_file():
        found["policy.prompt"] = {Path(hidden(policy.prompt)).name: file_digest(prompt)}
    table = reward.options.get("severity", {}).get("table")
    if table and (file := Path(str(table)).expanduser()).is_file():
        found["reward.options.severity.table"] = {Path(hidden(str(table))).name: file_digest(file)}
    return {f"{key}: {name}": d for key, files in found.items() for name, d in files.items()}


def code_files(values: Mapping[str, Any]) -> dict[str, str]:
    """Map files of one's own functions, as "reward.terms: mine.py", to digests; no imports."""
    named = {key: values[key] for key in _CODE if values.get(key)}
    files = {k: own_files(v.split("+") if isinstance(v, str) else v) for k, v in named.items()}
    return {f"{k}: {name}": file_digest(f) for k, fs in files.items() for name, f in fs.items()}


def named_code(recipe: Mapping[str, Any]) -> list[tuple[str, str]]:
    """List what of a recipe, as nested mappings, will be imported: keys, `module:function`."""
    keys = (*_CODE, "data.source", "rollout.engine")
    values = [(key, recipe[key.split(".")[0]][key.split(".")[1]] or "") for key in keys]
    named = [(k, n) for k, v in values for n in (v.split("+") if isinstance(v, str) else v)]
    return [(key, name) for key, name in named if ":" in name]


def file_digests(checkpoint: str) -> dict[str, str]:
    """Map the files of a checkpoint directory to digests; empty for a hub name.

    Of an adapter, the files of its base too; UserError where it names none.
    """
    path = Path(checkpoint).expanduser()
    if not path.is_dir():
        return {}
    files = [f for f in sorted(path.iterdir()) if f.suffix in _READ and f.name != FILE]
    digests = fetch(checkpoint, lambda: {f.name: file_digest(f) for f in files if f.is_file()})
    if (path / "adapter_config.json").is_file():
        base = file_digests(base_of_adapter(str(path)))
        digests |= {f"{name} of its base": digest for name, digest in base.items()}
    return digests


def base_files(checkpoint: str | Path) -> dict[str, dict[str, str]]:
    """Digest an adapter's base, as rrgtrain.json keeps it; empty where none can be read here."""
    try:
        digests = _of_base(str(checkpoint))
    except Stopped:
        raise
    except (UserError, OSError):  # no reason to lose what was trained
        return {}
    return {BASE_FILES: digests} if digests else {}


def require_base(checkpoint: str) -> None:
    """Raise UserError for an adapter whose base has other files than when it was trained."""
    file = Path(checkpoint).expanduser() / FILE
    before = read_remembered(file).get(BASE_FILES) if file.is_file() else None
    if not isinstance(before, dict):
        return
    now = _of_base(checkpoint)
    if now and (other := [name for name, digest in before.items() if now.get(name) != digest]):
        raise UserError(
            f"{base_of_adapter(checkpoint)} has other files than when the adapter in {checkpoint} "
            f"was trained on it; put them back: {other[0]}"
        )


def _of_base(checkpoint: str) -> dict[str, str]:
    """Map the config and weights of an adapter's base to digests; empty for a hub name."""
    path = Path(checkpoint).expanduser()
    if not (path / "adapter_config.json").is_file():
        return {}
    files = file_digests(base_of_adapter(str(path)))
    return {n: d for n, d in files.items() if n == "config.json" or Path(n).suffix in WEIGHTS}
