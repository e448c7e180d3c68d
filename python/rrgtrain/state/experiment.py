"""Keep the settings that identify an experiment: a resume changes none of them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from rrgpolicy.model.load import refuse_missing
from rrgtrain.errors import UserError
from rrgtrain.schema import Recipe
from rrgtrain.state.rundir import RunDir
from rrgtrain.state.store import CheckpointStore

# A resumed run must be the experiment that its checkpoints belong to.
FIXED = ("seed", "data.", "policy.", "rl.algorithm", "rl.group", "rl.reference")
# Where the same things lie now, and on what they are computed.
MOVABLE = (
    *("data.root", "data.workers", "data.read_ahead", "data.cache_mib"),
    *("policy.path", "policy.device", "policy.vision_cache_mib", "policy.sharing"),
)
# Begins a checkpoint's entries for the files that the run began from.
_BEGUN_FROM = "begun from "
# Mappings whose entries a resume may add or replace.
_FREE = ("reward.terms", "reward.starts", "reward.options", "log.trackers")


def is_fixed(key: str) -> bool:
    """Tell whether a setting is one that a resume must not change."""
    return key.startswith(FIXED) and key not in MOVABLE


def settled(recipe: Recipe, files: Mapping[str, str]) -> dict[str, str]:
    """Map the keys of a recipe to digests, "" where a resume may change them.

    Digests and no values: what `${oc.env:KEY}` stands for is not written. `files`, which are
    `files.start_files`, have entries of their own.
    """
    digests = {k: digest_of(v) if is_fixed(k) else "" for k, v in leaves(asdict(recipe))}
    return digests | {_BEGUN_FROM + name: digest for name, digest in files.items()}


def require_same_start(before: Mapping[str, str], now: Mapping[str, str]) -> None:
    """Raise UserError where files that a run began from are gone or have other content.

    Both are of `files.start_files`; a hub name, which has none, passes.
    """
    told = {name.partition(":")[0] for name in now}
    for name, digest in before.items():
        if name.partition(":")[0] in told and now.get(name) != digest:
            raise UserError(
                f"{name} is not the file that the run began from; put it back, or start a new run"
            )


_MEND = "put it back as the run wrote it, or start a new run (settings go behind --resume)"


def require_whole(run: RunDir, start: str) -> None:
    """Raise UserError where config.yaml lacks a setting, as a file that was cut short does.

    Or where `start`, which is policy.path, was a directory when the run began, and is none now,
    nor a hub name.
    """
    begun = CheckpointStore(run.resume, 1).about().get("settings", {})
    written = {key for key, _ in leaves(OmegaConf.to_container(OmegaConf.load(run.config)))}
    for key in begun:
        if key not in written and not key.startswith(_BEGUN_FROM):
            raise UserError(f"{run.config} lacks {key}: it was cut short or changed; {_MEND}")
    begun_there = any(key.startswith(f"{_BEGUN_FROM}policy.path: ") for key in begun)
    if begun_there and not Path(start).expanduser().is_dir():
        try:
            refuse_missing(start)
        except UserError as error:
            raise UserError(
                f"no directory policy.path={start}, from which the run in {run.path} began; put "
                "it back, or give its new place behind --resume: policy.path=DIR"
            ) from error


def require_settled(run: RunDir, now: Mapping[str, str]) -> None:
    """Raise UserError where config.yaml is not what the newest checkpoint was written with.

    now: of `settled`, for the recipe that was read from it. A fixed setting has another value, or
    a file that the run began from has changed.
    """
    begun = CheckpointStore(run.resume, 1).about().get("settings", {})
    require_same_start(_files_of(begun), _files_of(now))
    for key, digest in begun.items():
        if digest and (now.get(key) or digest) != digest:  # movable by now, or gone
            raise UserError(f"{run.config} has another {key} than the run's checkpoint; {_MEND}")


def _files_of(digests: Mapping[str, str]) -> dict[str, str]:
    return {k.removeprefix(_BEGUN_FROM): v for k, v in digests.items() if k.startswith(_BEGUN_FROM)}


def leaves(tree: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted keys of the schema and their values; a free mapping is one value."""
    for name, value in tree.items():
        if isinstance(value, Mapping) and f"{prefix}{name}" not in _FREE:
            yield from leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def digest_of(value: Any) -> str:
    """Digest a setting's value."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]
