"""Train by a loop of one's own under FSDP2, each arrangement and dtype (`test_scale_ranks`)."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from peft import LoraConfig, get_peft_model
from torch import Tensor, nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, Partial
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import clip_grad_norm_
from transformers import LlamaConfig, LlamaForCausalLM

from rrgpolicy import preflight
from rrgpolicy.model import probe_shared_prefix, shared_prefix_logps

STEPS = 3
ARRANGEMENTS = ("model", "layers, model", "loss", "layers, loss")
KINDS = ("fp32", "fp32 mixed", "bf16", "lora", "lora mixed")
NOT_ITS = ["foreign parameters", "parameters not held", "another norm"]
DRY = {
    **{"": [], "wrapped": [], "alone": ["unreduced gradients"], "local": ["another norm"]},
    "dense": ["gradients of another kind"],
    # the root alone is still gathered, and of an early optimiser nothing is the model's
    **{"look": NOT_ITS, "early": [*NOT_ITS[:2], "no gradient", NOT_ITS[2]]},
}
PROMPT = {"input_ids": torch.arange(1, 8)}


class Loss(nn.Module):
    """The loss as a module, whose forward makes the call."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, completions: list[list[Tensor]]) -> Tensor:
        return -shared_prefix_logps(self.model, [PROMPT], completions).logps.float().mean()


def policy_of(kind: str) -> nn.Module:
    torch.manual_seed(0)
    sizes = {"vocab_size": 40, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2}
    heads: Any = {"num_attention_heads": 2, "num_key_value_heads": 2, "attn_implementation": "sdpa"}
    model: Any = LlamaForCausalLM(LlamaConfig(**sizes, **heads))
    if not kind.startswith("fp32"):
        model = model.bfloat16()
    if kind.startswith("lora"):
        model = get_peft_model(model, LoraConfig(r=2, target_modules=["q_proj", "up_proj"]))
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.data = parameter.data.float()
    return model


def trained_of(model: nn.Module) -> list[Any]:
    return [p for p in model.parameters() if p.requires_grad]


def batch(rank: int, step: int) -> list[list[Tensor]]:
    generator = torch.Generator().manual_seed(10 * rank + step)
    return [[torch.randint(40, (n,), generator=generator) for n in (3 + rank, 5)]]


def step_of(optimizer: Any, losses: list[Tensor]) -> float:
    """Step along the mean of the losses, and return the first."""
    (sum(losses) / len(losses)).backward()
    optimizer.step()
    optimizer.zero_grad()
    return losses[0].item()


def trained(arrangement: str, kind: str, *, probed: bool, rank: int) -> dict[str, Any]:
    """Return the losses of a rank and its trained weights at the end, or the refusal.

    "plain" is the same loop without shards, over the batches of both ranks.
    """
    model = policy_of(kind)
    if probed:
        probe_shared_prefix(model, [PROMPT])
    loss = Loss(model)
    mixed = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    options = {"mp_policy": mixed} if "mixed" in kind else {}
    if arrangement.startswith("layers"):
        base: Any = model.get_base_model() if kind.startswith("lora") else model
        for layer in base.model.layers:
            fully_shard(layer, **options)
    if arrangement != "plain":
        fully_shard(model if arrangement.endswith("model") else loss, **options)
    parameters = trained_of(model)
    optimizer = torch.optim.SGD(parameters, lr=0.5)
    readers = (rank, 1 - rank) if arrangement == "plain" else (rank,)
    try:
        losses = [
            step_of(optimizer, [loss(batch(r, step)) for r in readers]) for step in range(STEPS)
        ]
    except ValueError as error:
        return {"refused": str(error)}
    whole = [p.full_tensor() if arrangement != "plain" else p for p in parameters]
    weights = torch.cat([w.detach().float().flatten() for w in whole])
    return {"losses": losses, "weights": weights.tolist()}


def dry(trap: str, rank: int) -> list[str]:
    """Name the faults of a loop with a trap; under FSDP2 but "alone" and "wrapped"."""
    model: Any = policy_of("fp32")
    probe_shared_prefix(model, [PROMPT])
    early = torch.optim.AdamW(model.parameters(), lr=1e-3)
    trained: Any = DistributedDataParallel(Loss(model)) if trap == "wrapped" else Loss(model)
    if trap not in ("alone", "wrapped"):
        for layer in model.model.layers:
            fully_shard(layer)
        fully_shard(trained)
    if trap == "look":  # its root stays gathered
        with torch.no_grad():
            trained(batch(rank, 0))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def step() -> None:
        trained(batch(rank, 0)).neg().backward()
        if trap == "dense":
            head = model.lm_head.weight
            head.grad = DTensor.from_local(head.grad.full_tensor(), head.device_mesh, [Partial()])

    def clip() -> Tensor:
        if trap != "local":
            return clip_grad_norm_(model.parameters(), 1.0)
        return torch.stack([p.grad.to_local().norm() for p in model.parameters()]).norm()

    faults = preflight(model, early if trap == "early" else optimizer, step, clip=clip)
    return [fault.name for fault in faults]


def main(words: list[str]) -> None:
    """Write what this rank has found, by arrangement, kind and whether it was probed."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    cells = {
        f"{arrangement}/{kind}": trained(arrangement, kind, probed=True, rank=rank)
        for arrangement in ("plain", *ARRANGEMENTS)
        for kind in KINDS
    }
    for arrangement in ARRANGEMENTS:
        cells[f"{arrangement}/late"] = trained(arrangement, "fp32", probed=False, rank=rank)
    cells |= {f"dry/{trap}": dry(trap, rank) for trap in DRY}
    Path(f"{words[0]}-{rank}").write_text(json.dumps(cells))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1:])
