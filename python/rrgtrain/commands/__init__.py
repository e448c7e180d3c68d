"""The commands of `rrgtrain`: options beside what they start."""

from __future__ import annotations

from rrgtrain.commands import checkpoint, data, eval, plan, rewards, show, train

COMMANDS = {
    command.name: command
    for command in (
        *(train.DEMO, train.SFT, train.RL, eval.COMMAND, rewards.STRESS, rewards.SERVE),
        *(plan.COMMAND, checkpoint.CHECK, data.SELECT, checkpoint.GENERATE, checkpoint.SHOW),
        *(checkpoint.EXPORT, data.DATA, data.CHECK, data.INIT, train.REPORT),
        *(show.RECIPES, show.KEYS, show.DOCTOR),
    )
}
"""Every command by its name, in the order of `rrgtrain --help`."""

__all__ = ["COMMANDS"]
