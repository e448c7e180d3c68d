"""Runs the blocks of pages, each page in a folder of its own: `python -m tests.docs.run PAGE...`.

The Python blocks of a page share a namespace. A command of the trainer runs at the size of a test,
on phantoms where it names no data; `DIR` stands for a tiny data set. A resume, and what torchrun,
make and pip start, is checked and not run.
"""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import sys
import time
import traceback
import types
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from rrgdata.phantom import write_phantom
from rrgtrain import cli
from tests.docs.blocks import Block, blocks_of, commands
from tests.rrgtrain.common import PHANTOM
from tests.rrgtrain.runs import TINY_RUN

TINY = [
    *(s for s in TINY_RUN if not s.startswith(("deterministic", "sft.steps", "rl.steps"))),
    *("sft.steps=2", "rl.steps=2"),
    *("token_weights.distil_steps=4", "select.samples=2", "log.records=0", "eval.meteor=false"),
]
TRAINER = ("demo", "sft", "rl", "eval", "select", "data", "generate")


def failures(page: Path, shared: Path) -> Iterator[str]:
    """Run the blocks of a page in the working directory; yield the blocks that fail, and why."""
    # a real module: dataclasses and pickles look their names up in it
    module = types.ModuleType("__main__")
    for block in blocks_of(page):
        if block.file:
            Path(block.file).write_text(block.text)
        if block.flag == "no-run":
            continue
        output = io.StringIO()
        try:
            with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
                if block.language == "python":
                    exec(compile(block.text, str(block.at), "exec"), vars(module))
                elif block.language == "bash":
                    _run_commands(block, shared)
        except BaseException as error:  # a block may raise or exit with anything
            last = traceback.format_exception(error)[-1].strip()
            yield f"{block.at}: {last}\n{output.getvalue()[-2000:]}"


def _run_commands(block: Block, shared: Path) -> None:
    for words in commands(block.text):
        # a service ends by a signal alone
        if words[0] != "rrgtrain" or "--resume" in words or words[1] == "serve":
            continue
        words = [w.replace("DIR", str(shared / "data")) for w in words[1:]]
        status = cli.main([*words, *_tiny(words)])
        if status:
            raise RuntimeError(f"rrgtrain {' '.join(words)}: exit status {status}")


def _tiny(words: list[str]) -> list[str]:
    if words[0] not in TRAINER or words[:2] == ["data", "check"]:
        return []
    if "--predictions" in words:
        return [setting for setting in TINY if setting.startswith("eval.")]
    # the sizes of a tiny policy are for one that is built, not for one that is loaded
    loaded = "--from" in words or words[0] == "generate"
    return [s for s in TINY if not (loaded and s.startswith("policy."))]


def run(of_pages: list[Path]) -> list[str]:
    """Run the pages one after the other; return the failures."""
    failed: list[str] = []
    with TemporaryDirectory() as folder:
        shared, before = Path(folder) / "shared", os.getcwd()
        if any("DIR" in b.text for p in of_pages for b in blocks_of(p) if b.flag != "no-run"):
            write_phantom(PHANTOM, shared / "data")
        for number, page in enumerate(of_pages):
            begin, place = time.perf_counter(), Path(folder) / str(number)
            place.mkdir()
            os.chdir(place)
            sys.path.insert(0, str(place))
            failed += failures(page, shared)
            sys.path.remove(str(place))
            os.chdir(before)
            shutil.rmtree(place)
            print(f"{page.name}: {time.perf_counter() - begin:.1f} s", file=sys.stderr)
    return failed


def main(names: list[str]) -> int:
    """Print the failures of pages; return 1 where there are any."""
    failed = run([Path(name).resolve() for name in names])
    print("\n".join(failed))
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
