"""Digest the files of a checkpoint, to tell whether they are those of before."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

from rrgclinical.common.shown import hidden
from rrgpolicy.model.load import base_of_adapter
from rrgpolicy.model.whole import fetch
from rrgtrain.schema import PROMPT_STYLES, PolicySettings, RewardSettings, RlSettings
from rrgtrain.state.remembered import FILE, TINY, known_base

# Another training moves weights everywhere: it shows in blocks along a file.
_BLOCKS, _BLOCK = 64, 1 << 16
_WEIGHTS = (".safetensors", ".bin")
_READ = (*_WEIGHTS, ".json", ".jinja", ".txt", ".model")


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
        found["policy.prompt"] = {_name(policy.prompt): file_digest(prompt)}
    table = reward.options.get("severity", {}).get("table")
    if table and (file := Path(str(table)).expanduser()).is_file():
        found["reward.options.severity.table"] = {_name(table): file_digest(file)}
    return {f"{key}: {name}": d for key, files in found.items() for name, d in files.items()}


def code_files(named: Mapping[str, Iterable[str]]) -> dict[str, str]:
    """Map the files of functions of one's own to digests, "reward.terms: mine.py" for instance.

    named: by the setting, names of which those of `package.module:function` count. What such a file
    imports is not followed.
    """
    found = {}
    for key, name in ((key, name) for key, names in named.items() for name in names):
        module, colon, _ = name.partition(":")
        with suppress(ImportError, SyntaxError, ValueError):  # told where the function is called
            spec = find_spec(module) if colon else None
            if spec is not None and spec.has_location and spec.origin is not None:
                file = Path(spec.origin)
                depth = module.count(".") + 1 + (spec.submodule_search_locations is not None)
                shown = str(Path(*file.parts[-depth:])) if hidden(name) == name else hidden(name)
                found[f"{key}: {shown}"] = file_digest(file)
    return found


def _name(file: str) -> str:
    """Name a file as a checkpoint may keep it: of `${oc.env:KEY}` what was written."""
    return Path(hidden(str(file))).name


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


def file_digest(file: Path) -> str:
    """Digest a file; of weights the size and 64 blocks along it."""
    with file.open("rb") as stream:
        if file.suffix not in _WEIGHTS:
            return hashlib.file_digest(stream, "sha256").hexdigest()[:16]
        size = file.stat().st_size
        digest = hashlib.sha256(f"{size}\n".encode())
        for place in range(_BLOCKS):
            stream.seek(size * place // _BLOCKS)
            digest.update(stream.read(_BLOCK))
    return digest.hexdigest()[:16]
