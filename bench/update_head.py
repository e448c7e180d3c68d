"""Measure head and policy loss in one beside one after the other: time and memory.

    OMP_NUM_THREADS=1 RRGKERN_ROWS=cpu-update-head python -m bench.update_head

Of `linear_policy_loss` over `linear_token_logps` and `policy_loss`, taken in turns in one run:

- update: what the trainer does with a batch where an adapter trains (reference, forward, loss,
  backward, optimiser), by a tiny Qwen2.5-VL with a head of 600 and of Qwen's 151,936 rows; and one
  after the other without csrc's kernels, as PyTorch serves an installation without a compiler;
- head: head and loss alone, forward and backward, with a head that trains and one that does not,
  in each mode.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch

from bench import rows, timing
from bench.update_step import (
    BETA,
    CLIP,
    LR,
    Batch,
    Case,
    accumulate_gradients,
    checkpoint,
    completions,
    images,
    measure,
    scores,
    studies,
)
from rrgkern import (
    PolicyLoss,
    csrc,
    dispatch,
    group_advantages,
    linear_policy_loss,
    linear_token_logps,
    loss_scale,
    policy_loss,
)
from rrgpolicy.model.load import load_policy
from rrgpolicy.model.policy import add_lora
from rrgpolicy.model.prompt import encode_prompt
from rrgtrain.algorithms.group import Group, Member, group_offsets
from rrgtrain.schema import LoraSettings, RlSettings
from rrgtrain.train.optim import adamw, apply_step, clip_gradients
from rrgtrain.train.reference import reference_of

VOCABULARIES, WIDTH = (600, 151_936), 128
ONE, TWO = "in one", "one after the other"
WITHOUT = f"{TWO}, without csrc"


def update(vocabulary: int, case: Case, home: Path) -> dict[str, Callable[[], Any]]:
    """An update of a tiny policy with an adapter; its head has `vocabulary` rows."""
    from transformers import AutoConfig, Qwen2_5_VLForConditionalGeneration

    place = checkpoint(home / str(vocabulary), case, "tiny")
    config = AutoConfig.from_pretrained(place)
    config.text_config.vocab_size = vocabulary
    Qwen2_5_VLForConditionalGeneration(config).save_pretrained(place)
    policy = load_policy(place, device="cpu", dtype=torch.float32, freeze_vision=True)
    add_lora(policy, LoraSettings(rank=8, dropout=0.05), 0)
    policy.model.train()
    reference, optimizer = reference_of(policy), adamw(policy.model, LR, 0.0)
    parts = zip(studies(case), images(case), completions(policy, case), strict=True)
    groups = [
        Group(
            b,
            study,
            encode_prompt(policy, study, [image], style="short"),
            tuple(Member(ids, "") for ids in own),
        )
        for b, (study, image, own) in enumerate(parts)
    ]
    settings = RlSettings(group=case.members, beta=BETA, max_new_tokens=case.length)
    rewards = torch.tensor(scores(case)).flatten()
    batch = Batch.of(groups, group_advantages(rewards, group_offsets(groups)), settings)
    spec = PolicyLoss(beta=BETA)

    def step(*, read_logps: bool) -> None:
        done = accumulate_gradients(policy, reference, batch, spec, settings, read_logps=read_logps)
        norm = clip_gradients(policy.model.parameters(), CLIP)
        apply_step(optimizer, done.read(norm).norm, LR)

    def step_without_csrc() -> None:
        with without_csrc():
            step(read_logps=True)

    return {
        TWO: partial(step, read_logps=True),
        ONE: partial(step, read_logps=False),
        WITHOUT: step_without_csrc,
    }


@contextmanager
def without_csrc() -> Iterator[None]:
    """Let PyTorch serve the ops that csrc serves on CPUs."""
    kernels, why_not = list(dispatch._kernels.values()), csrc.why_not
    for kernel in kernels:
        vars(kernel).pop("direct", None)  # asked again, now and afterwards
    csrc.why_not = lambda *_: "the bench wants PyTorch's"  # type: ignore[assignment]
    try:
        yield
    finally:
        csrc.why_not = why_not
        for kernel in kernels:
            vars(kernel).pop("direct", None)


def head(vocabulary: int, tokens: int, *, trains: bool) -> dict[str, Callable[[], Any]]:
    """Head and loss of `tokens` tokens in 16 reports, fp32, without old log-probabilities."""
    torch.manual_seed(0)
    hidden = torch.randn(tokens, WIDTH).requires_grad_()
    weight = (0.05 * torch.randn(vocabulary, WIDTH)).requires_grad_(trains)
    targets, advantages = torch.randint(vocabulary, (tokens,)), torch.randn(16)
    offsets = torch.arange(0, tokens + 1, tokens // 16)
    scale = loss_scale("dr_grpo", offsets, max_length=256)
    leaves = [x for x in (hidden, weight) if x.requires_grad]

    def apart() -> Any:
        logps = linear_token_logps(hidden, weight, targets).logps
        return torch.autograd.grad(
            policy_loss(logps, advantages, offsets, scale=scale).loss, leaves
        )

    def together(mode: str) -> Any:
        out = linear_policy_loss(
            *(hidden, weight, targets, advantages, offsets), scale=scale, mode=mode
        )
        return torch.autograd.grad(out.loss, leaves)

    modes = ("grad_in_forward", "recompute") if trains else ("frozen_head", "recompute")
    return {TWO: apart, **{f"{ONE}, {mode}": partial(together, mode) for mode in modes}}


def compare(work: dict[str, Callable[[], Any]], rounds: int) -> dict[str, Any]:
    """Ratios of processor time and peak memory to one after the other."""
    seconds = measure(work, rounds)
    anchor = (torch.zeros(1),)
    peaks = {n: timing.peak_mib(lambda _, run=run: run(), anchor) for n, run in work.items()}
    return {
        "time": {n: round(value / seconds[TWO], 3) for n, value in seconds.items()},
        "memory": {n: round(value / peaks[TWO], 3) for n, value in peaks.items()},
        "peak_mib": {n: round(value, 1) for n, value in peaks.items()},
    }


def main(arguments: list[str] | None = None) -> int:
    """Print each case as a row, and append it."""
    top = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    top.add_argument("--groups", type=int, default=2)
    top.add_argument("--members", type=int, default=8)
    top.add_argument("--length", type=int, default=32)
    top.add_argument("--rounds", type=int, default=5)
    top.add_argument("--tokens", type=int, nargs=2, default=(2048, 256), help="of the head alone")
    args = top.parse_args(arguments)
    case = Case(args.groups, args.members, args.length, 112)
    with tempfile.TemporaryDirectory() as home:
        cases: dict[str, dict[str, Callable[[], Any]]] = {
            f"update, adapter, V = {vocabulary}": update(vocabulary, case, Path(home))
            for vocabulary in VOCABULARIES
        }
    for vocabulary, tokens in zip(VOCABULARIES, args.tokens, strict=True):
        for trains in (True, False):
            kind = "trains" if trains else "is frozen"
            cases[f"head {kind}, V = {vocabulary}, {tokens} tokens"] = head(
                vocabulary, tokens, trains=trains
            )
    for name, work in cases.items():
        found = {"bench": "update_head", "case": name, **compare(work, args.rounds)}
        row = {**found, "versions": rows.versions(), "load": os.getloadavg()[0]}
        rows.append(torch.device("cpu"), row)
        print(json.dumps(found), flush=True)
    return 0


if __name__ == "__main__":
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    sys.exit(main())
