"""Record the code of a run: commit and versions of its dependencies."""

from __future__ import annotations

import platform
import subprocess
from importlib import metadata
from pathlib import Path

_PACKAGES = ("rrgkern", "torch", "triton", "transformers", "numpy")


def commit() -> str | None:
    """Read the short commit of this checkout, with "+" where files differ.

    None outside a checkout of this project.
    """
    here = Path(__file__).resolve().parent
    described = _git(here, "describe", "--always", "--abbrev=12", "--exclude=*", "--dirty=+")
    tracked = _git(here, "ls-files", "--error-unmatch", Path(__file__).name)
    return described if described and tracked else None


def versions() -> dict[str, str]:
    """Installed versions by package, Python's included; packages not installed are left out."""
    versions_of = {"python": platform.python_version()}
    for name in _PACKAGES:
        try:
            versions_of[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return versions_of


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", *arguments], cwd=folder, capture_output=True, text=True, timeout=10, check=True
        )
    except (OSError, subprocess.SubprocessError):
        # No git, or no checkout: both mean that the commit is not known.
        return None
    return done.stdout.strip()
