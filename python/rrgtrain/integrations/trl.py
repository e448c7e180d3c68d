"""TRL's GRPOTrainer with this trainer's parts: `RRGTrainer`, or `SharedPrefix` alone."""

from __future__ import annotations

from importlib import import_module, metadata
from typing import Any

from rrgtrain.errors import UserError
from rrgtrain.integrations.trl_rows import SharedPrefix

__all__ = ["SharedPrefix"]
TESTED = (1, 16)


def __getattr__(name: str) -> Any:
    """Import `RRGTrainer`, whose base is TRL's, when it is first asked for."""
    if name != "RRGTrainer":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    refuse_untested()
    return import_module("rrgtrain.integrations.trl_steps").RRGTrainer


def refuse_untested() -> None:
    """Raise UserError for a TRL outside the tested range, or none."""
    wanted = "RRGTrainer is tested with TRL >=1.16,<1.17: pip install 'rrgkern[trl]'"
    try:
        version = metadata.version("trl")
    except metadata.PackageNotFoundError:
        raise UserError(f"TRL is not installed; {wanted}") from None
    if tuple(version.split(".")[:2]) != tuple(map(str, TESTED)):
        raise UserError(f"this is TRL {version}; {wanted}")
