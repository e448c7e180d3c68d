"""GRPO in a loop with accelerate: each prompt is computed once for all its reports.

    python examples/accelerate_loop.py
    accelerate launch --num_processes 2 --cpu examples/accelerate_loop.py

accelerate wraps `Loss`, which holds the model and calls `shared_prefix_logps` in its own forward:
the wrapper's forward is the one that is called, and it averages the gradients of the processes.
"""

from __future__ import annotations

import sys

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from tiny_grpo import STUDIES, Loss, open_rewards, roll_out


def main(steps: int = 40) -> list[float]:
    """Train for some steps; returns the mean reward of each on this process."""
    accelerator = Accelerator()
    set_seed(0)
    loss, service = Loss(), open_rewards()
    loss, optimizer = accelerator.prepare(loss, torch.optim.AdamW(loss.parameters(), lr=3e-3))
    policy = accelerator.unwrap_model(loss).model
    set_seed(1, device_specific=True)
    means = []
    with accelerator.split_between_processes(STUDIES) as studies:
        for step in range(steps):
            rollout = roll_out(policy, studies, service)
            accelerator.backward(loss(rollout.prompts, rollout.reports, rollout.advantages))
            optimizer.step()
            optimizer.zero_grad()
            means.append(rollout.reward)
            if step % 10 == 0 or step == steps - 1:
                accelerator.print(f"step {step:2}: reward {rollout.reward:.3f}")
    return means


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
