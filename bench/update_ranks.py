"""An update on several ranks beside one process: seconds, core-seconds and gradients.

    make bench ROOM=ranks
    python -m bench.update_ranks --groups 8 --members 10 --length 64 --rounds 5

Worlds of one, two and four processes (gloo, one thread each, `scale.mode=fsdp2`) hold the same tiny
Qwen2.5-VL and take turns, so that what else the machine does falls on all alike:

- weak scaling: seconds of one rank on the groups over those of two ranks on twice as many (1 is
  perfect). Two ranks need two idle cores; on a busy machine the ratio says nothing.
- core-seconds: CPU time of all processes of a world for the same groups, over that of one process
  alone; of each the least of all rounds, since what else runs can only lengthen it. Four ranks
  took 0.3 to 0.4 core-seconds more for an update of four or eight groups (FSDP2's collectives over
  gloo, once a layer and micro-batch), so a small batch has a larger ratio.
- gradients of one group a rank: how far those of several ranks are from those of one process.

An update is all that a step does behind the rewards: the batch of all ranks, advantages, micro-
batches, forward, backward, and the optimiser.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from bench import rows
from bench.ports import free_port
from bench.update_step import (
    CLIP,
    LR,
    Batch,
    Case,
    accumulate_gradients,
    checkpoint,
    completions,
    images,
    scores,
    studies,
)
from rrgkern import PolicyLoss, group_advantages
from rrgpolicy.model.load import load_policy
from rrgpolicy.model.prompt import encode_prompt
from rrgpolicy.ranks import ranks, sharding
from rrgtrain.algorithms.group import Group, Member, group_offsets
from rrgtrain.schema import RlSettings
from rrgtrain.train.optim import adamw, apply_step, clip_gradients

WORLDS = (1, 2, 4)
WEAK, CORES = 0.8, 1.25


class Rank:
    """The part of a world that one process computes."""

    def __init__(self, place: Path, case: Case) -> None:
        """case: the largest batch that will be asked for."""
        self.policy = load_policy(place, device="cpu", dtype=torch.float32)
        self.policy.model.train()
        self.settings = RlSettings(
            group=case.members,
            max_new_tokens=case.length,
            token_budget=2 * (case.members * case.length + 1024),
        )
        ids, values = completions(self.policy, case), torch.tensor(scores(case)).double()
        # rank r draws groups r, r + n, ...: these alone have pixels here
        own = ranks.shard(range(case.groups))
        pictures, described = images(case), studies(case)
        self.groups = {
            b: Group(
                b,
                described[b],
                encode_prompt(self.policy, described[b], [pictures[b]], style="short"),
                tuple(Member(i, "") for i in ids[b]),
            )
            for b in own
        }
        self.scores = {b: values[b].numpy() for b in own}
        sharding.setup("fsdp2" if ranks.size() > 1 else "none", self.policy)
        self.optimizer = adamw(self.policy.model, LR, 0.0)

    def accumulate(self, count: int) -> None:
        """Gradients of the first `count` groups of the batch."""
        groups = [group for b, group in self.groups.items() if b < count]
        mine = [self.scores[group.index] for group in groups]
        own = {"total": torch.tensor([v for row in mine for v in row]).double().numpy()}
        batch = Batch(groups, groups, {}, own if groups else {}, {}).of_all_ranks()
        advantages = group_advantages(batch.rewards, group_offsets(batch.groups))
        batch = batch.with_objective(advantages.float(), self.settings)
        accumulate_gradients(self.policy, None, batch, PolicyLoss(), self.settings).read()

    def update(self, count: int) -> tuple[float, float]:
        """Seconds of one update, and the CPU seconds that this process took for it."""
        ranks.barrier()
        began, used = time.perf_counter(), time.process_time()
        self.accumulate(count)
        apply_step(self.optimizer, clip_gradients(self.policy.model.parameters(), CLIP), LR)
        return time.perf_counter() - began, time.process_time() - used

    def gradients(self, count: int) -> dict[str, torch.Tensor]:
        """The whole gradients by name, on rank 0; they are cleared."""
        self.accumulate(count)
        parameters = self.policy.model.named_parameters()
        found = sharding.full_state_dict({n: p.grad for n, p in parameters if p.grad is not None})
        self.policy.model.zero_grad(set_to_none=True)
        return found if ranks.is_main() else {}

    def work(self, count: int) -> int:
        """Count the floating-point operations of products for the gradients; they are cleared."""
        with FlopCounterMode(display=False) as counter:
            self.accumulate(count)
        self.policy.model.zero_grad(set_to_none=True)
        return counter.get_total_flops()


def serve(world: dict[str, str], place: Path, case: Case, asked: Connection) -> None:
    """Answer (method of `Rank`, groups) until None comes."""
    os.environ.update(world)
    torch.set_num_threads(1)
    mode = "fsdp2" if ranks.processes() > 1 else "none"
    with ranks.opened(mode, 600.0, cuda=False), ranks.propagate_errors():
        rank = Rank(place, case)
        while (call := asked.recv()) is not None:
            method, count = call
            asked.send(getattr(rank, method)(count))
    ranks.close()


class World:
    """So many processes that compute together when asked."""

    def __init__(self, count: int, place: Path, case: Case) -> None:
        port = free_port()
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["bench.update_ranks"])
        self.ends: list[Connection] = []
        self.processes = []
        for r in range(count):
            world = {"RANK": r, "LOCAL_RANK": r, "WORLD_SIZE": count, "LOCAL_WORLD_SIZE": count}
            world |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
            here, there = context.Pipe()
            named = {name: str(value) for name, value in world.items()}
            process = context.Process(target=serve, args=(named, place, case, there), daemon=True)
            process.start()
            there.close()
            self.ends.append(here)
            self.processes.append(process)

    def ask(self, method: str, count: int) -> list[Any]:
        """Return the answers of all ranks."""
        for end in self.ends:
            end.send((method, count))
        return [end.recv() for end in self.ends]

    def update(self, count: int) -> tuple[float, float]:
        """Seconds of the slowest rank, and CPU seconds of all."""
        parts = self.ask("update", count)
        return max(wall for wall, _ in parts), sum(used for _, used in parts)

    def close(self) -> None:
        for end in self.ends:
            end.send(None)
        for process in self.processes:
            process.join()


@contextmanager
def worlds(case: Case, counts: tuple[int, ...] = WORLDS) -> Iterator[dict[int, World]]:
    """Start worlds of so many ranks.

    Beside a world of two, a batch has up to twice the case's groups.
    """
    with tempfile.TemporaryDirectory() as home:
        place = checkpoint(Path(home), case, "tiny")
        most = 2 * case.groups if 2 in counts else case.groups
        opened = {n: World(n, place, replace(case, groups=most)) for n in counts}
        yield opened
        for world in opened.values():
            world.close()


def gradient_difference(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> float:
    """Norm of the difference over the norm of the first; exits where the names differ."""
    if one.keys() != other.keys():
        raise SystemExit(f"gradients of other parameters: {sorted(one.keys() ^ other.keys())[:3]}")
    apart = sum(float((one[n] - other[n]).double().square().sum()) for n in one)
    return (apart / sum(float(one[n].double().square().sum()) for n in one)) ** 0.5


def compare(
    case: Case, rounds: int, counts: tuple[int, ...] = WORLDS, enough: float = 0.0
) -> dict[str, Any]:
    """Gradients, which warm up, then up to `rounds` turns of all worlds.

    enough: from two turns on, no more are taken once every ratio of core-seconds is at most this.
    """
    with worlds(case, counts) as opened:
        few = min(case.groups, max(counts))
        gradients = {n: world.ask("gradients", few)[0] for n, world in opened.items()}
        work = {n: sum(world.ask("work", few)) for n, world in opened.items()}
        turns: list[dict[str, tuple[float, float]]] = []
        for _ in range(rounds):
            turn = {f"{n} ranks": opened[n].update(case.groups) for n in counts}
            if 2 in opened:
                turn["weak"] = opened[2].update(2 * case.groups)
            turns.append(turn)
            least = {n: min(turn[f"{n} ranks"][1] for turn in turns) for n in counts}
            if len(turns) > 1 and max(least.values()) <= enough * least[1]:
                break
    found: dict[str, Any] = {"rounds": len(turns)}
    for n in counts[1:]:
        found[f"gradient_difference_{n}"] = gradient_difference(gradients[1], gradients[n])
        found[f"work_{n}"] = work[n] / work[1]
        found[f"core_seconds_{n}"] = least[n] / least[1]
        found[f"core_seconds_more_{n}"] = least[n] - least[1]
    if 2 in counts:
        weak = [turn["1 ranks"][0] / turn["weak"][0] for turn in turns]
        found |= {"weak_scaling": statistics.median(weak), "weak_scaling_best": max(weak)}
        found["weak_scaling_cores"] = statistics.median(
            2 * turn["1 ranks"][1] / turn["weak"][1] for turn in turns
        )
    return found


def main(arguments: list[str] | None = None) -> int:
    top = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    top.add_argument("--groups", type=int, default=8)
    top.add_argument("--members", type=int, default=10)
    top.add_argument("--length", type=int, default=64)
    top.add_argument("--pixels", type=int, default=560)
    top.add_argument("--rounds", type=int, default=5)
    args = top.parse_args(arguments)
    case = Case(args.groups, args.members, args.length, args.pixels)
    found = compare(case, args.rounds)
    load = os.getloadavg()[0]
    row = {"bench": "update_ranks", **asdict(case), **found, "load": load}
    rows.append(torch.device("cpu"), row)
    print(json.dumps(row), flush=True)
    print(f"weak scaling {found['weak_scaling']:.2f} (wanted {WEAK}), load {load:.1f}")
    print(f"core-seconds of four ranks {found['core_seconds_4']:.2f} (wanted <= {CORES})")
    return 0


if __name__ == "__main__":
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    sys.exit(main())
