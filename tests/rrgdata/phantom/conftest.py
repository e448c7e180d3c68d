"""As the trainer's tests: with the ops' references where only an interpreter would serve."""

from __future__ import annotations

from tests.rrgtrain.conftest import _references_in_place_of_the_interpreter

__all__ = ["_references_in_place_of_the_interpreter"]
