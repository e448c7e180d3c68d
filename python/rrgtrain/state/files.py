"""Digest the files of a checkpoint, to tell whether they are those of before."""

from __future__ import annotations

from pathlib import Path

from rrgclinical.common.errors import Stopped
from rrgclinical.common.files import WEIGHTS, file_digest
from rrgpolicy.model.load import base_of_adapter
from rrgpolicy.model.whole import fetch
from rrgtrain.errors import UserError
from rrgtrain.state.remembered import FILE, read_remembered

BASE_FILES = "base_files"
"""Key of rrgtrain.json for digests of the config and weights that an adapter was trained on."""
_READ = (*WEIGHTS, ".json", ".jinja", ".txt", ".model")


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
