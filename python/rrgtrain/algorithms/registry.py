"""Builds the algorithm that a recipe names: ours, an installed one, or your own."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from rrgclinical.common.resolve import call, choose
from rrgtrain.algorithms import by_finding, ditpo, editgrpo, orapo
from rrgtrain.algorithms.base import (
    Algorithm,
    Layer,
    decoupled,
    leave_one_out,
    loss_of,
    mean_centred,
    no_completion,
    of_the_step,
)
from rrgtrain.errors import UserError
from rrgtrain.schema import Recipe, RewardSettings, RlSettings, RolloutSettings

# Packages that offer an algorithm name its function under this group of entry points.
ENTRY_POINTS = "rrgtrain.algorithms"
_MEND = "define it as a function of the recipe"

# Ours read these sections of a recipe r.
LAYERS: dict[str, Layer] = {
    "grpo": lambda r, inner: inner,
    "dr_grpo": lambda r, inner: inner,
    "rloo": lambda r, inner: replace(inner, advantages=leave_one_out),
    "reinforce_pp": lambda r, inner: replace(inner, advantages=of_the_step),
    "editgrpo": lambda r, inner: editgrpo.build(r.edit, r.reward, r.seed, inner),
    "ditpo": lambda r, inner: ditpo.build(r.token_weights, r.reward, r.seed, inner),
    "by_finding": lambda r, inner: by_finding.build(r.rl.by_finding, r.reward, inner),
    "orapo": lambda r, inner: orapo.build(r.oracle, r.rl, r.reward, inner),
}


def build_algorithm(recipe: Recipe) -> Algorithm:
    """Build the algorithm a recipe names; those joined by `+` build on each other.

    `editgrpo+ditpo+orapo` edits, weighs tokens and injects the oracle report. All start from plain
    sampling with mean-centred rewards. Raises UserError for an unknown name, a module that cannot
    be imported, or a function that does not return an `Algorithm`.
    """
    layers = find_layers(recipe.rl.algorithm)
    algorithm = _sampled(recipe.rl, recipe.reward, recipe.rollout)
    for layer in layers:
        algorithm = layer(recipe, algorithm)
    return replace(algorithm, name=recipe.rl.algorithm) if len(layers) > 1 else algorithm


def find_layers(algorithm: str) -> list[Layer]:
    """Find what the names in `rl.algorithm` stand for; UserError as `build_algorithm`."""
    names = algorithm.split("+")
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise UserError(
            f"rl.algorithm={algorithm} names {twice} twice, which would count twice; name it once"
        )
    return [_layer(name) for name in names]


def _layer(name: str) -> Layer:
    hint = "GSPO is grpo with rl.ratio_level=sequence; " if name.lower() == "gspo" else ""
    layer = choose(name, "rl.algorithm", LAYERS, ENTRY_POINTS, _MEND, hint)
    return layer if name in LAYERS else partial(_own, name, layer)


def _own(name: str, function: Callable[..., object], recipe: Recipe, inner: Algorithm) -> Algorithm:
    """Call a function of the recipe, or of the recipe and the algorithm below it."""
    positional = [
        p
        for p in inspect.signature(function).parameters.values()
        if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) and p.default is p.empty
    ]
    arguments = (recipe, inner) if len(positional) > 1 else (recipe,)
    built = call(function, f"rl.algorithm={name}", _MEND, *arguments)
    if not isinstance(built, Algorithm):
        raise UserError(
            f"rl.algorithm={name} returned a {type(built).__name__}; "
            "return an rrgtrain.algorithms.Algorithm"
        )
    return built


def _sampled(rl: RlSettings, reward: RewardSettings, rollout: RolloutSettings) -> Algorithm:
    """Build GRPO or Dr. GRPO, whose members are all sampled; all others build on it.

    They differ only in what a recipe says: GRPO divides by the group's standard deviation and
    averages per sequence (`std=sample`, `aggregation=grpo`); Dr. GRPO (Liu et al., 2025) does
    neither (`std=none`, `aggregation=dr_grpo`). MRG-R1 is GRPO with `std=population` (its eq. 2)
    and a clinical reward with a format. Terms are joined as `rl.combine` says.
    """
    return Algorithm(
        name=rl.algorithm,
        sampled=rl.group,
        complete=no_completion,
        advantages=mean_centred(rl.std) if rl.combine == "sum" else decoupled(rl, reward),
        loss=loss_of(rl, rollout),
    )
