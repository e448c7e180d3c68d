"""`rrgtrain export`: a checkpoint as others load it."""

from __future__ import annotations

import argparse
from pathlib import Path

from rrgtrain.commands.command import Command


def _words(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("checkpoint", metavar="CHECKPOINT", help="checkpoint directory")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="new directory")
    parser.add_argument(
        "--dtype", choices=("bf16", "fp16", "fp32"), default="bf16", help="default: bf16"
    )
    parser.add_argument("--merge", action="store_true", help="add the adapter to its base")


def _run(options: argparse.Namespace) -> int:
    from rrgtrain.run.export import Export, export_checkpoint

    request = Export(options.checkpoint, options.out, options.dtype, options.merge)
    print(f"export: {export_checkpoint(request)}")
    return 0


COMMAND = Command(
    "export", "write a checkpoint for others: bf16, the hub's names, a model card", _words, _run
)
