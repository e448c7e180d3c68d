"""What an algorithm is: a way to complete a group, and a way to turn rewards into advantages.

The loop calls the two functions and knows no algorithm by name. A new one is a function
`build(recipe) -> Algorithm` in any module, named in a recipe as
`rl.algorithm=package.module:build`.
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import torch

from rrgkern import PolicyLoss, group_advantages
from rrgtrain.algorithms.group import Group, group_offsets
from rrgtrain.errors import UserError
from rrgtrain.schema import Recipe

# (ids of a sampled report, changed text, first changed character) -> ids of the changed report
Reencode = Callable[[torch.Tensor, str, int], torch.Tensor]
# (groups with sampled members, step, reencode) -> groups with all members, and counts to log
Complete = Callable[[list[Group], int, Reencode], tuple[list[Group], dict[str, float]]]
# (groups, total reward [S]) -> advantages, [S] or one per token [N]
Advantages = Callable[[list[Group], torch.Tensor], torch.Tensor]


@dataclass(frozen=True)
class Algorithm:
    """`sampled` of the group's members are drawn from the policy; `complete` adds the rest."""

    name: str
    sampled: int
    complete: Complete
    advantages: Advantages
    loss: PolicyLoss
    needs_reports: bool = False


def nothing_to_add(
    groups: list[Group], step: int, reencode: Reencode
) -> tuple[list[Group], dict[str, float]]:
    """`complete` of an algorithm whose members are all sampled."""
    return groups, {}


def centred(std: str) -> Advantages:
    """Rewards minus the group's mean, divided by its spread as `std` says."""

    def advantages(groups: list[Group], rewards: torch.Tensor) -> torch.Tensor:
        return group_advantages(rewards, group_offsets(groups), std=cast(Any, std))

    return advantages


def loss_of(recipe: Recipe) -> PolicyLoss:
    """The policy loss that the section `rl` describes; UserError where its options clash."""
    rl = recipe.rl
    try:
        return PolicyLoss(
            surrogate=rl.surrogate,
            ratio_level=rl.ratio_level,
            eps_low=rl.eps_low,
            eps_high=rl.eps_high,
            kl=rl.kl,
            beta=rl.beta,
        )
    except ValueError as error:
        raise UserError(f"rl: {error}") from error


def build_algorithm(recipe: Recipe) -> Algorithm:
    """The algorithm a recipe names: one of ours, or `module:function` of the user's own.

    Raises UserError for an unknown name, a module that cannot be imported, or a function that
    does not return an `Algorithm`.
    """
    from rrgtrain.algorithms import editgrpo, grpo

    ours = {"grpo": grpo.build, "dr_grpo": grpo.build, "editgrpo": editgrpo.build}
    name = recipe.rl.algorithm
    if name in ours:
        return ours[name](recipe)
    built = _of_the_user(name, list(ours))(recipe)
    if not isinstance(built, Algorithm):
        raise UserError(
            f"rl.algorithm={name} returned a {type(built).__name__}; "
            "return an rrgtrain.algorithms.Algorithm"
        )
    return built


def _of_the_user(name: str, ours: list[str]) -> Callable[[Recipe], object]:
    module, _, function = name.partition(":")
    if not module or module.startswith(".") or not function:
        close = difflib.get_close_matches(name, ours, n=1)
        hint = f"did you mean {close[0]}? " if close else ""
        raise UserError(
            f"rl.algorithm={name!r} is unknown; {hint}choose {', '.join(ours)}, "
            "or your own as package.module:function"
        )
    try:
        imported = importlib.import_module(module)
    except (ImportError, SyntaxError) as error:
        raise UserError(
            f"rl.algorithm={name}: {module} cannot be imported ({error}); "
            "repair it, or put its folder on PYTHONPATH"
        ) from error
    found = getattr(imported, function, None)
    if not callable(found):
        seen = "has no" if found is None else "holds no function"
        raise UserError(
            f"rl.algorithm={name}: {imported.__file__} {seen} {function}; "
            "define it as a function of the recipe"
        )
    return found
