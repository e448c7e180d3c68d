"""The commands of `rrgtrain`, one file each: options beside what they start."""

from __future__ import annotations

from rrgtrain.commands import (
    check,
    data,
    data_check,
    demo,
    doctor,
    eval,
    export,
    generate,
    init,
    keys,
    plan,
    recipes,
    replay,
    report,
    rl,
    select,
    serve,
    sft,
    stress,
)

COMMANDS = {
    module.COMMAND.name: module.COMMAND
    for module in (
        *(demo, sft, rl, eval, stress, serve, plan, check, select, generate, export),
        *(data, data_check, init, report, replay, recipes, keys, doctor),
    )
}
"""Every command by its name, in the order of `rrgtrain --help`."""

__all__ = ["COMMANDS"]
