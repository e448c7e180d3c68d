"""Profile the modes of the linear loss, kernel by kernel: `python -m bench.profile_head`.

One profiled step of `linear_policy_loss`, forward and backward, in the modes that keep no logits,
on the dense batch of bench/against_peers.py. Prints the costliest kernels (on a CPU: operators) and
appends a row for each mode with launches, their summed milliseconds and the ten largest shares.
"""

from __future__ import annotations

import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

from bench import rows
from bench.against_peers import DEVICE, DTYPE, HEAD, fused_head
from bench.batch import draw_head

MODES = ("grad_in_forward", "recompute")
LARGEST = 10


def main() -> None:
    """Profile each mode once, after one step that compiles."""
    cuda = DEVICE == "cuda"
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if cuda else [])]
    for mode in MODES:
        drawn = draw_head(HEAD, "dense", 0, device=DEVICE, dtype=DTYPE, frozen=False)
        run = fused_head(mode)
        run(drawn.hidden, drawn.weight, drawn.batch)
        with profile(activities=activities) as seen:
            run(drawn.hidden, drawn.weight, drawn.batch)
            if cuda:
                torch.cuda.synchronize()
        own = "self_device_time_total" if cuda else "self_cpu_time_total"
        spent = sorted(seen.key_averages(), key=lambda e: getattr(e, own), reverse=True)
        # On a GPU the kernels alone: an operator's entry counts them once more.
        where = DeviceType.CUDA if cuda else DeviceType.CPU
        spent = [e for e in spent if e.device_type == where and getattr(e, own) > 0]
        total = sum(getattr(event, own) for event in spent)
        print(f"\n{mode}: {total / 1e3:.2f} ms in {sum(e.count for e in spent)} calls")
        for event in spent[:LARGEST]:
            print(f"{getattr(event, own) / total:7.1%} {event.count:6d}  {event.key[:90]}")
        row = {"room": "linear_policy_loss", "case": "profile, dense", "provider": mode}
        row |= {"calls": sum(e.count for e in spent), "summed_ms": total / 1e3}
        row |= {"shares": {e.key[:60]: getattr(e, own) / total for e in spent[:LARGEST]}}
        rows.append(torch.device(DEVICE), row | {"versions": rows.versions()})


if __name__ == "__main__":
    main()
