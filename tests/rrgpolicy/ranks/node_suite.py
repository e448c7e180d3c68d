"""Compute on two nodes of two ranks beside what one process computes, for `test_loading`.

Rank 0 first computes the whole batch alone; then all four join, weights sharded over the two ranks
of a node.
"""

from __future__ import annotations

import os
import pickle
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from rrgpolicy.model.policy import Policy, add_lora
from rrgpolicy.ranks import gathered, nodes, ranks, sharding
from rrgpolicy.settings import LoraSettings
from rrgtrain.algorithms.base import loss_of
from rrgtrain.state.store import load_checkpoint, write_checkpoint
from rrgtrain.train.loader import PromptLoader
from rrgtrain.train.optim import adamw, apply_step, clip_gradients
from rrgtrain.train.sft import own_share, sft_gradients
from tests.operators import Operators
from tests.rrgpolicy.model.common import tiny_directory, tiny_policy
from tests.rrgpolicy.ranks.rank_suite import (
    CASES,
    THREE,
    Case,
    Found,
    computed,
    each_group_on_its_rank,
    objective_of,
    pair,
)
from tests.rrgtrain.common import groups_of, recipe, rollout_logps, studies

CHOSEN = ("one group for two ranks",)
LAYOUTS = {"2x2": 2, "4x1": 4}
"""Ranks that share one copy, of four."""
READINGS = (("1", "2x2"), ("2x2", "4x1"), ("4x1", "2x2"), ("2x2", "1"), ("4x1", "1"))
"""Layout of a checkpoint and of who reads it; whole runs go on from their own."""


def updates(mode: str) -> dict[str, Found]:
    """Gradients in fp64 and of bf16 from masters, and of an adapter."""
    found = {}
    options: dict[str, dict[str, Any]] = {
        **{name: {"dtype": torch.float64} for name in CHOSEN},
        "bf16": {"dtype": torch.bfloat16, "masters": True},
        "bf16, 4x1": {"dtype": torch.bfloat16, "masters": True},
        "LoRA": {"dtype": torch.float64},
    }
    for name, chosen in options.items():
        policy = tiny_policy(**chosen)
        if name == "LoRA":
            add_lora(policy, LoraSettings(rank=2, dropout=0.0), 0)
        policy.model.train()
        reference = pair(mode, policy)
        sharding.setup(mode, policy, reference, shard=4 if "4x1" in name else None)
        case = CASES.get(name, Case(THREE, ("rl.beta=0.1",)))
        groups = each_group_on_its_rank(groups_of(policy, case.sampled, edited=True))
        found[name] = computed(policy, reference, groups, case)
    return found


def references(mode: str) -> dict[str, torch.Tensor]:
    """The reference's log-probability of every token, in fp64, by the kind of reference: a model of
    its own, the base with its adapter off, and a second adapter."""
    found = {}
    for kind in ("model", "adapter off", "second adapter"):
        policy = tiny_policy(dtype=torch.float64)
        if kind != "model":
            add_lora(policy, LoraSettings(rank=2, dropout=0.0), 0)
        if kind == "second adapter":
            with torch.no_grad():
                for name, parameter in policy.model.named_parameters():
                    if "lora_B" in name:
                        parameter.fill_(0.02)
        reference = pair(mode, policy)
        with torch.no_grad():
            for name, parameter in policy.model.named_parameters():
                if parameter.requires_grad and "lora_A" not in name:
                    parameter.add_(0.01)  # the policy has moved since
        sharding.setup(mode, policy, reference)
        settings, case = recipe("rl.beta=0.1", "rl.epochs=2"), CASES["KL to a reference"]
        groups = each_group_on_its_rank(groups_of(policy, case.sampled, edited=True))
        spec, objective = loss_of(settings.rl, settings.rollout), objective_of(groups, case)
        batch = rollout_logps(policy, reference, groups, objective, spec, settings.rl)
        assert batch.ref is not None and batch.old is not None
        # a rank has those of its own groups, and 0 elsewhere
        found[kind] = torch.stack(ranks.gather(batch.ref)).sum(0)
        found[f"{kind}, old"] = torch.stack(ranks.gather(batch.old)).sum(0)
    return found


def stepped(policy: Policy, mode: str, shard: int | None) -> torch.optim.AdamW:
    """A step of fine-tuning with clipped gradients; the norm before is kept on the optimiser."""
    sharding.setup(mode, policy, shard=shard)
    settings = replace(recipe().sft, token_budget=1)
    batch = studies(5)
    prompts = PromptLoader(policy, "short").batch(own_share(batch))
    sft_gradients(policy, prompts, batch, settings)
    optimizer = adamw(policy.model, 1e-2, 0.01)
    optimizer.norm = apply_step(  # type: ignore[attr-defined]
        optimizer, clip_gradients(policy.model.parameters(), 0.1), 1e-2
    )
    return optimizer


def whole_state(policy: Policy, optimizer: torch.optim.AdamW) -> dict[str, torch.Tensor]:
    """Weights and moments, whole, on rank 0."""
    parameters = dict(policy.model.named_parameters())
    state = optimizer.state_dict()["state"]
    flat = {f"{i}.{k}": v for i, s in state.items() for k, v in s.items() if v.ndim}
    found = sharding.full_state_dict({**parameters, **flat})
    return {n: v.detach().clone() for n, v in found.items()} if ranks.is_main() else {}


def write(policy: Policy, optimizer: torch.optim.AdamW, path: Path) -> None:
    weights = {n: p for n, p in policy.model.named_parameters() if p.requires_grad}
    write_checkpoint(path, {"weights": weights, "optimizer": optimizer.state_dict()})


def read(path: Path, mode: str, shard: int | None) -> dict[str, torch.Tensor]:
    """Weights and moments of a checkpoint, read onto a layout and made whole."""
    policy = tiny_policy(dtype=torch.float64)
    sharding.setup(mode, policy, shard=shard)
    like = next(policy.model.parameters()) if mode != "none" else None
    saved = load_checkpoint(path).read("weights", "optimizer", like=like)
    optimizer = adamw(policy.model, 1e-2, 0.01)
    sharding.load_weights(policy, saved["weights"])
    sharding.load_optimizer(optimizer, saved["optimizer"])
    return whole_state(policy, optimizer)


def gathers_of(operator: Any, args: Any, _: Any) -> list[int]:
    """The size of the group that gathers a tensor."""
    gathers = operator is torch.ops._c10d_functional.all_gather_into_tensor.default
    return [args[1]] if gathers else []


def layout() -> dict[str, Any]:
    """Who shares with whom, how much a rank holds, and which groups a rollout gathers in."""
    policy = tiny_policy(dtype=torch.float64)
    total = sum(p.numel() for p in policy.model.parameters())
    sharding.setup("fsdp2", policy)
    weight: Any = next(policy.model.parameters())
    own = sum(p.to_local().numel() for p in policy.model.parameters())
    with Operators(gathers_of) as gathers:
        gathered.gathered(policy)
    values = {
        "mesh": tuple(weight.device_mesh.shape),
        "nodes": nodes.count(),
        "ranks": weight.device_mesh.mesh.tolist(),
        "share": own / total,
        "gathers": set(gathers.noted),
    }
    return {"of ranks": ranks.gather(values)}


def main(words: list[str]) -> int:
    """words: a directory, to which rank 0 writes `found`."""
    home = Path(words[0])
    world = {n: os.environ.pop(n) for n in ("RANK", "WORLD_SIZE")}
    found: dict[str, Any] = {"alone": {}, "together": {}}
    if world["RANK"] == "0":
        found["alone"]["updates"] = updates("none")
        found["alone"]["references"] = references("none")
        ranks.close()  # the world of one in which bf16 was computed alone
        policy = tiny_policy(dtype=torch.float64)
        optimizer = stepped(policy, "none", None)
        found["alone"]["norm"] = optimizer.norm  # type: ignore[attr-defined]
        found["states"] = {"1": whole_state(policy, optimizer)}
        write(policy, optimizer, home / "1")
    tiny_directory()  # transformers writes no checkpoint on ranks other than 0
    os.environ.update(world)
    readings = {}
    with ranks.opened("fsdp2", 300.0, cuda=False), ranks.propagate_errors():
        found["together"] = layout()
        found["together"]["updates"] = updates("fsdp2")
        found["together"]["references"] = references("fsdp2")
        for name, shard in LAYOUTS.items():
            policy = tiny_policy(dtype=torch.float64)
            optimizer = stepped(policy, "fsdp2", shard)
            found["together"][f"norm, {name}"] = optimizer.norm  # type: ignore[attr-defined]
            state = whole_state(policy, optimizer)
            if ranks.is_main():
                found["states"][name] = state
            write(policy, optimizer, home / name)
        for source, name in READINGS:
            if name in LAYOUTS:
                readings[source, name] = read(home / source, "fsdp2", LAYOUTS[name])
    is_main = ranks.is_main()
    ranks.close()
    for name in world:
        os.environ.pop(name)
    if is_main:
        for source, name in READINGS:
            if name not in LAYOUTS:
                readings[source, name] = read(home / source, "none", None)
        found["readings"] = readings
        (home / "found").write_bytes(pickle.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
