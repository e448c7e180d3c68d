"""`rrgtrain data check`: what a data set holds, and what of it is broken."""

from __future__ import annotations

import argparse
from pathlib import Path

from rrgtrain.commands.command import Command, add_settings
from rrgtrain.errors import UserError


def _words(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("root", type=Path, help="directory of the data set")
    text = "settings of data (see `rrgtrain keys data`); without data.source it is guessed"
    add_settings(parser, text)
    parser.add_argument(
        "--out", type=Path, help="file for all broken studies, a JSON object a line"
    )
    parser.add_argument("--no-images", action="store_true", help="do not decode the images")
    parser.add_argument(
        "--properties",
        action="store_true",
        help="read reports wrapped, in capitals, from HL7, RTF ... too: labels must not change",
    )


def _run(options: argparse.Namespace) -> int:
    from rrgdata.check import check_data_set
    from rrgtrain.config import load_config
    from rrgtrain.schema import Recipe

    other = [o for o in options.overrides if not o.startswith("data.")]
    if other:
        raise UserError(f"{other[0]!r} is no setting of data; `rrgtrain keys data` lists them")
    data = load_config(Recipe, None, options.overrides).data
    named = any(override.startswith("data.source=") for override in options.overrides)
    return check_data_set(
        options.root,
        data,
        source=data.source if named else None,
        out=options.out,
        images=not options.no_images,
        properties=options.properties,
    )


COMMAND = Command(
    "data check", "report what a data set holds and what of it is broken", _words, _run, needed={}
)
