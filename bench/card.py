"""Measure one row of this card in two minutes: the loss from logits.

    python -m bench.card             at the vocabulary of Qwen2.5
    python -m bench.card --models    heads too, at the widths and vocabularies of six models
    python -m bench.card --dry       the same way at a few rows on a CPU; the rows are deleted

The row holds the loss beside eager PyTorch and torch.compile, what the card's memory and products
reach, clocks, power and why the clock was held back. It goes to bench/results/CARD.jsonl.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bench import rows
from bench.ceilings import bytes_per_ms, flops_per_ms
from bench.gpu_short import Case, eager_logps, measure, our_logps
from bench.harness import difference, throughput
from rrgkern import loss_scale, policy_loss_from_logits

# Width and vocabulary, as the models' configurations have them.
MODELS = {
    "Qwen2.5-VL-3B": (2048, 151_936),
    "Qwen2.5-VL-7B": (3584, 152_064),
    "Qwen3-8B": (4096, 151_936),
    "Gemma-3-4B": (2560, 262_208),
    "Llama-3.1-8B": (4096, 128_256),
    "Mistral-7B-v0.3": (4096, 32_768),
}
MOST_ROWS, HEAD_ROWS = 8192, 3277
# Eager keeps the logits' fp32 copy, its softmax and two gradients: 14 bytes a logit, here 20.
EAGER_BYTES = 20
# ‖difference‖ / ‖eager's gradient‖ in bf16.
MOST_APART = 0.02


def eager_loss(logits: Tensor, targets: Tensor, old: Tensor, weighed: Tensor) -> Tensor:
    """Take the clipped loss as one writes it; `weighed`: advantage times scale, a row."""
    logps = torch.log_softmax(logits.float(), -1).gather(-1, targets[:, None])[:, 0]
    ratio = (logps - old).exp()
    return -torch.minimum(ratio * weighed, ratio.clamp(0.8, 1.2) * weighed).sum()


def rows_that_fit(device: torch.device, vocabulary: int) -> int:
    """Count the rows, a multiple of 16, that eager PyTorch has room for."""
    if device.type != "cuda":
        return 64
    free, _ = torch.cuda.mem_get_info(device)
    return max(16, min(MOST_ROWS, free // (EAGER_BYTES * vocabulary)) // 16 * 16)


def loss_row(device: torch.device, vocabulary: int) -> dict[str, Any]:
    """Measure the loss in place beside eager PyTorch and torch.compile."""
    count = rows_that_fit(device, vocabulary)
    leaf = torch.randn(count, vocabulary, device=device).bfloat16().requires_grad_()
    offsets = torch.arange(0, count + 1, 16, device=device)
    targets = torch.randint(vocabulary, (count,), device=device)
    scale, old = loss_scale("grpo", offsets), torch.full((count,), -12.0, device=device)
    advantages = torch.randn(count // 16, device=device)
    weighed = advantages.repeat_interleave(16) * scale.repeat_interleave(count // len(scale))

    def ours(logits: Tensor) -> tuple[Tensor, ...]:
        batch = (logits, targets, advantages, offsets)
        loss = policy_loss_from_logits(*batch, scale=scale, old=old, inplace=True).loss
        return torch.autograd.grad(loss, logits)

    def eager(loss: Callable[..., Tensor]) -> Callable[..., tuple[Tensor, ...]]:
        return lambda logits: torch.autograd.grad(loss(logits, targets, old, weighed), logits)

    calls = {"eager": eager(eager_loss), "rrgkern": ours}
    ((gradient,), (plain,)) = ours(leaf * 1.0), calls["eager"](leaf)
    apart = difference(gradient, plain)
    del gradient, plain
    if not apart < MOST_APART:
        raise AssertionError(f"the gradient differs from eager's by {apart:.2g}: no row is written")
    if device.type == "cuda":
        calls["compiled"] = eager(torch.compile(eager_loss, dynamic=False))
    measured = {}
    for name, call in calls.items():
        fresh = (lambda logits: (logits * 1.0,)) if name == "rrgkern" else None
        measured[name] = measure(Case({}, call, (leaf,), fresh=fresh), device)
    row = measured.pop("rrgkern") | {"shape": {"rows": count, "vocabulary": vocabulary}}
    row |= throughput(row["p50_ms"], 4.0 * count * vocabulary, 0.0)  # read once, written once
    row["difference"] = apart
    row["eager_host_ms"] = measured["eager"]["host_ms"]
    for name, figures in measured.items():
        row |= {f"{name}_{key}": figures[key] for key in ("p50_ms", "kernel_ms", "peak_mib")}
    return row


def head_row(device: torch.device, width: int, vocabulary: int, count: int) -> dict[str, Any]:
    """Measure log-probabilities and their gradient from hidden states, the head frozen."""
    hidden = torch.randn(count, width, device=device).bfloat16().requires_grad_()
    weight = torch.randn(vocabulary, width, device=device).bfloat16() / width**0.5
    targets = torch.randint(vocabulary, (count,), device=device)
    row: dict[str, Any] = {"shape": {"rows": count, "width": width, "vocabulary": vocabulary}}
    for name, logps in (("", our_logps), ("eager_", eager_logps)):

        def call(h: Tensor, logps: Callable[..., Tensor] = logps) -> object:
            return torch.autograd.grad(logps(h, weight, targets).sum(), h)

        figures = measure(Case({}, call, (hidden,)), device)
        keys = ("p50_ms", "kernel_ms", "peak_mib", "host_ms") if name else tuple(figures)
        row |= {f"{name}{key}": figures[key] for key in keys}
    return row | throughput(row["p50_ms"], 0.0, 6.0 * count * width * vocabulary)


def main(arguments: list[str]) -> int:
    """Measure and append the row; returns the exit status."""
    parser = argparse.ArgumentParser(prog="card", description=__doc__.splitlines()[0])
    parser.add_argument("--models", action="store_true", help=", ".join(MODELS))
    parser.add_argument("--dry", action="store_true", help="a few rows on a CPU, nothing kept")
    options = parser.parse_args(arguments)
    if not options.dry and not torch.cuda.is_available():
        print("no GPU here: wanted a CUDA device; rehearse with --dry")
        return 2
    device = torch.device("cpu" if options.dry else "cuda")
    began = time.monotonic()
    common = {"room": "card", "provider": "rrgkern", "dtype": "bfloat16"}
    with tempfile.TemporaryDirectory() as deleted:
        folder = Path(deleted) if options.dry else rows.RESULTS
        for name, (width, vocabulary) in MODELS.items():
            width, vocabulary = (16, 97) if options.dry else (width, vocabulary)
            made = {f"loss from logits, {name}": loss_row(device, vocabulary)}
            if options.models:
                count = 64 if options.dry else HEAD_ROWS
                made[f"frozen head, {name}"] = head_row(device, width, vocabulary, count)
            for case, row in made.items():
                row |= {
                    "copy_gb_s": bytes_per_ms(device) / 1e6,
                    "product_tflop_s": flops_per_ms(device, torch.bfloat16) / 1e9,
                }
                row = common | {"case": case, "versions": rows.versions()} | row
                rows.append(device, row, folder)
                ratio = row["eager_p50_ms"] / row["p50_ms"]
                print(
                    f"{case}, {rows.device_name(device)}: {row['p50_ms']:.2f} ms, {ratio:.1f} "
                    f"times as fast as eager PyTorch, {row['peak_mib']:,.0f} MiB beside "
                    f"{row['eager_peak_mib']:,.0f}",
                    flush=True,
                )
            if not options.models or options.dry:
                break
    kept = "nothing is kept" if options.dry else f"the rows are in {folder}: please send them"
    print(f"{time.monotonic() - began:.0f} s; {kept}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
