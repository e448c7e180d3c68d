"""`rrgtrain doctor`: a check of this installation."""

from __future__ import annotations

import argparse

from rrgtrain.commands.command import Command


def _run(options: argparse.Namespace) -> int:
    from rrgkern.__main__ import main

    main([])
    return 0


COMMAND = Command("doctor", "check this installation", lambda _: None, _run, anywhere=True)
