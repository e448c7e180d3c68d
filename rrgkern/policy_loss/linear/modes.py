"""Which way the gradient is computed: the rule, and what cannot be forced."""

from __future__ import annotations

from rrgkern.logps.head import NeedsGrad
from rrgkern.policy_loss.linear.policy import ties_tokens
from rrgkern.policy_loss.spec import PolicyLoss

MODES = ("frozen_head", "grad_in_forward", "recompute")
# Below this many rows the fp32 gradient of the whole weight, written and read once more, takes
# longer than forming the logits a second time (README, "Which mode").
LEAST_ROWS_IN_FORWARD = 1024


def choose_mode(
    mode: str,
    spec: PolicyLoss,
    *,
    wanted: NeedsGrad,
    sampler: bool,
    rows: int,
    half: bool = False,
    accumulate_weight_grad: bool = False,
) -> str:
    """One of MODES, for "auto" by the rule of the README; `half`: the operands are fp16.

    Raises:
        ValueError: `mode` is unknown, or cannot serve what is asked.
    """
    if mode not in ("auto", *MODES):
        names = ", ".join(map(repr, ("auto", *MODES)))
        raise ValueError(f"mode is {mode!r}; choose one of {names}")
    tied = ties_tokens(spec, sampler)
    frozen = not (wanted.weight or wanted.bias)
    if accumulate_weight_grad and mode not in ("auto", "recompute"):
        raise ValueError(
            f"accumulate_weight_grad is True with mode {mode!r}; only 'recompute' finishes the "
            "weight's gradient slice by slice: choose it, or leave the mode 'auto'"
        )
    if mode == "frozen_head" and not frozen:
        part = "weight" if wanted.weight else "bias"
        raise ValueError(
            f"mode is 'frozen_head' and {part} requires a gradient; freeze the head with "
            f"{part}.requires_grad_(False), or choose 'recompute'"
        )
    if mode == "frozen_head" and spec.entropy_coef:
        raise ValueError(
            f"mode is 'frozen_head' with entropy_coef {spec.entropy_coef}; the entropy's gradient "
            "would take as many products as 'recompute': choose that"
        )
    if mode == "grad_in_forward" and tied:
        raise ValueError(
            f"mode is 'grad_in_forward' with ratio_level {spec.ratio_level!r}, surrogate "
            f"{spec.surrogate!r} and sampler_level {spec.sampler_level!r}; one of them ties the "
            "tokens of a sequence, so no gradient is known before the last: choose 'recompute'"
        )
    if mode == "grad_in_forward" and half:
        raise ValueError(
            "mode is 'grad_in_forward' and hidden is torch.float16; the loss scale that keeps fp16 "
            "gradients above 6e-8 comes with the backward: choose 'recompute', or bfloat16"
        )
    if not any(wanted):
        return "recompute"  # whose forward is the log-probabilities and nothing else
    if mode != "auto":
        return mode
    if accumulate_weight_grad:
        return "recompute"
    if frozen and not spec.entropy_coef:
        return "frozen_head"
    if not (tied or half) and rows >= LEAST_ROWS_IN_FORWARD:
        return "grad_in_forward"
    return "recompute"
