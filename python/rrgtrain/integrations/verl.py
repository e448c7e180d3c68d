"""The plug-in for verl 0.9: importing it registers losses, advantages, rewards and edits.

verl finds it by the entry point `verl.plugins`, or by VERL_USE_EXTERNAL_MODULES. It swallows what a
plug-in raises, so this module says on standard error why it did not load. `python -m
rrgtrain.integrations.verl` lists what is registered.
"""

from __future__ import annotations

import sys

from rrgtrain.errors import UserError


def registered() -> list[str]:
    """Name what this plug-in has in verl's registries: a loss_mode, an adv_estimator and so on.

    Raises UserError naming what is missing there, or is somebody else's.
    """
    from verl.experimental.agent_loop.agent_loop import _agent_loop_registry
    from verl.experimental.reward_loop.reward_manager.registry import REWARD_MANAGER
    from verl.trainer.ppo.core_algos import ADV_ESTIMATOR_REGISTRY, POLICY_LOSS_REGISTRY

    from rrgtrain.integrations import verl_edits, verl_loss, verl_rewards

    losses = {n: getattr(f, "func", None) for n, f in POLICY_LOSS_REGISTRY.items()}
    loops = {n: entry.get("_target_") for n, entry in _agent_loop_registry.items()}
    edits = f"{verl_edits.__name__}.EditAgentLoop"
    estimators, manager = ADV_ESTIMATOR_REGISTRY, REWARD_MANAGER.get(verl_rewards.MANAGER)
    plain, weighted = verl_loss.ESTIMATOR, verl_loss.WEIGHTED
    is_ours = {f"loss_mode={n}": losses.get(n) is verl_loss.verl_loss for n in verl_loss.LOSSES} | {
        f"adv_estimator={plain}": estimators.get(plain) is verl_loss.verl_advantages,
        f"adv_estimator={weighted}": estimators.get(weighted) is verl_loss.weighted_advantages,
        f"reward_manager={verl_rewards.MANAGER}": manager is verl_rewards.ReportRewardManager,
        f"agent_loop={verl_edits.LOOP}": loops.get(verl_edits.LOOP) == edits,
    }
    missing = [entry for entry, ours in is_ours.items() if not ours]
    if missing:
        raise UserError(
            f"verl's registries lack {', '.join(missing)}: another plug-in has these names, or "
            "rrgtrain.integrations.verl was not imported; set VERL_USE_EXTERNAL_MODULES to it"
        )
    return list(is_ours)


def _load() -> None:
    try:
        from rrgtrain.integrations import verl_edits, verl_loss, verl_rewards  # noqa: F401

        verl_loss.register()
        registered()
    except Exception as error:
        print(f"rrgkern's plug-in for verl did not load: {error}", file=sys.stderr)
        raise


_load()

if __name__ == "__main__":
    print("\n".join(registered()))
