"""Ranks of several nodes: an agent of torchrun for each node, all on this machine.

An agent is torchrun's own, with its options; it is forked from the server of `runs`, and forks its
ranks in place of starting new interpreters, which would import the trainer for ten seconds each.
"""

from __future__ import annotations

import importlib
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bench.ports import free_port
from tests.rrgtrain.runs import At, Done, as_from_a_shell, ends, start_process, warm


def on_nodes(
    *words: str,
    cwd: Path,
    nodes: int = 2,
    here: int = 2,
    at: At | None = None,
    rank: int = -1,
    main: str = "rrgtrain.cli",
    patience: float = 600.0,
    homes: list[Path] | None = None,
    disturb: Callable[[Sequence[Path]], None] | None = None,
    restarts: int = 0,
    more: Sequence[str] = (),
    statuses: Sequence[int] | None = None,
) -> list[Done]:
    """The same command on `nodes` nodes of `here` ranks; how each rank ended, in their order.

    at: acts on one rank, the last by default. homes: a working directory for each node, where
    they are not one. disturb: called while they run with the places of the ranks, each of which
    holds `pid` once it has started. restarts: how often torchrun starts them again. more: options
    of torchrun. statuses: asserted of the ranks' ends. What a rank prints goes to `cwd`/<rank>, and
    torchrun's report to `cwd`/node<k>. Ranks that take more than `patience` seconds are killed; a
    rank that wrote no status has -9.
    """
    warm()
    port = free_port()
    options = ["--nnodes", str(nodes), "--nproc-per-node", str(here), "--rdzv-backend", "c10d"]
    options += ["--rdzv-endpoint", f"127.0.0.1:{port}", "--rdzv-id", "test"]
    options += ["--local-addr", "127.0.0.1", "--start-method", "fork"]
    options += ["--max-restarts", str(restarts)]
    # how a rank ended is read before torchrun looks; a rank that hangs is soon killed
    options += ["--monitor-interval", "1"]
    from torch.distributed.run import get_args_parser

    if "--shutdown-timeout" in get_args_parser().format_help():  # not in torch 2.11
        options += ["--shutdown-timeout", "5"]
    options += more
    began = time.monotonic()
    places = [cwd / str(r) for r in range(nodes * here)]
    for place in places:
        place.mkdir(exist_ok=True)
        for name in ("pid", "status"):
            (place / name).unlink(missing_ok=True)
    target = rank % (nodes * here)
    agents = []
    for k in range(nodes):
        home = homes[k] if homes else cwd
        task = (words, home, cwd, at, target, main)
        own = ["--node-rank", str(k), "--rdzv-conf", f"is_host={'false' if k else 'true'}"]
        agents.append(start_process(_agent, [*options, *own], k, task))
    if disturb is not None:
        disturb(places)
    for agent in agents:
        agent.join(max(0.0, began + patience - time.monotonic()))
        if agent.is_alive():
            agent.kill()
            agent.join()
    done = [_done(place, time.monotonic() - began) for place in places]
    assert statuses is None or [d.status for d in done] == [*statuses], ends(done)
    return done


def _done(place: Path, seconds: float) -> Done:
    status, texts = place / "status", [place / "out.txt", place / "err.txt"]
    read = [path.read_text() if path.exists() else "" for path in texts]
    return Done(int(status.read_text()) if status.exists() else -9, *read, seconds)


def _agent(options: list[str], node: int, task: tuple[Any, ...]) -> None:
    from torch.distributed.launcher.api import elastic_launch
    from torch.distributed.run import config_from_args, parse_args

    as_from_a_shell()
    place = task[2] / f"node{node}"
    place.mkdir(exist_ok=True)
    _print_to(place)
    config, _, _ = config_from_args(parse_args([*options, "forked"]))
    elastic_launch(config, _rank)(*task)


def _rank(
    words: tuple[str, ...], home: Path, cwd: Path, at: At | None, target: int, main: str
) -> None:
    rank = int(os.environ["RANK"])
    place = cwd / str(rank)
    _print_to(place)
    (place / "pid").write_text(str(os.getpid()))
    os.chdir(home)
    os.environ["XDG_CACHE_HOME"] = str(home / "cache")
    called = importlib.import_module(main).main
    if at is not None and rank == target:
        at.plant()
    status = called(list(words))
    (place / "status").write_text(str(status))
    if status:
        raise SystemExit(status)


def _print_to(place: Path) -> None:
    for number, name in ((1, "out.txt"), (2, "err.txt")):
        handle = os.open(place / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
        os.dup2(handle, number)
