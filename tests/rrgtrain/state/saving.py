"""A store that writes a checkpoint while the caller waits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rrgpolicy.ranks import ranks
from rrgtrain.state.store import CheckpointStore


class SavingStore(CheckpointStore):
    """Adds `save`; a `Checkpointer` begins a write and goes on with its step."""

    def save(self, *arguments: Any, **options: Any) -> Path:
        """Begin and wait."""
        with ranks.propagate_errors():
            path = self.begin(*arguments, **options)
            self.wait()
        return path
