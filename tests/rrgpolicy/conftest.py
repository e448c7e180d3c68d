"""The policy's tests compute with the ops' references, as the trainer's, and leave their world."""

from tests.rrgtrain.conftest import _leaves_its_world, _references_in_place_of_the_interpreter

__all__ = ["_leaves_its_world", "_references_in_place_of_the_interpreter"]
