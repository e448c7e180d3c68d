"""Name the fault that lies between two log-probs of the same tokens.

A sampler that has missed a push, or sees other images, tokens or another temperature than the
trainer, still returns plausible reports. Their log-probabilities tell. Nothing of the trainer is
needed: import it into a loop of your own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from rrgclinical.common.arguments import is_real, unwrapped
from rrgclinical.common.errors import UserError

# Mean |log-prob of the trainer - log-prob of the sampler| that is still rounding.
ROUNDING = {torch.float64: 1e-6, torch.float32: 1e-3, torch.bfloat16: 0.1, torch.float16: 0.02}
# A fault is blamed where, taken for real, it takes away that much of the gap.
EXPLAINED = 0.8
# Of the search for a temperature: passes of the trainer; in the logarithm, the first step, what two
# passes are apart that give a slope, and the farthest.
PASSES = 6
FIRST_STEP, APART, WIDEST, TINY = 0.1, 1e-3, math.log(4.0), 1e-12
# Settings of an engine that give its tokens another distribution, and the value beside 0 and None
# at which they do not.
RESHAPING = {
    **{"top_k": -1, "repetition_penalty": 1, "typical_p": 1, "min_p": 0, "min_tokens": 0},
    **{"presence_penalty": 0, "frequency_penalty": 0, "logit_bias": None, "bad_words": None},
    **{"allowed_token_ids": None, "structured_outputs": None},
    "vllm_structured_outputs_regex": None,
}
# Faults that the trainer can play, in the order in which one is blamed where several explain it.
LINES = {
    "adapter": (
        "an adapter that the sampler has lost: without it the trainer would differ by {left:.2g}; "
        "push the adapter, or the merged weights"
    ),
    "images": (
        "images that the sampler does not see: without them the trainer would differ by "
        "{left:.2g}; look at how they are sent"
    ),
    "step 0": (
        "weights of step 0 in the sampler: at these the trainer would differ by {left:.2g}; it "
        "has taken over none since, restart it"
    ),
    "template": (
        "another chat template in the sampler: with other prompt tokens the trainer would differ "
        "by {left:.2g}; use the trainer's tokenizer and template"
    ),
}


@dataclass(frozen=True)
class Run:
    """Hold what is known of the run.

    limit: of the mean gap, see `ROUNDING`. top_p: of the nucleus that the sampler drew from.
    images: bool [N], the token's prompt has images; None where nobody knows. temperature: the
    trainer's, by the name that `option` says. plays: name of `LINES` -> the trainer's log-probs [N]
    of the same tokens if that fault were real; called after an alarm only. at_temperature: the same
    at another temperature. agreed: both agreed at an earlier step.

    Raises ValueError for a limit below 0, a top_p outside (0, 1], a temperature that is not above 0
    (NaN is none of them) and a play that `LINES` does not name; TypeError for another type.
    """

    limit: float
    top_p: float = 1.0
    images: Tensor | None = None
    temperature: float = 1.0
    option: str = "temperature"
    plays: Mapping[str, Callable[[], Tensor]] = field(default_factory=dict)
    at_temperature: Callable[[float], Tensor] | None = None
    agreed: bool = False

    def __post_init__(self) -> None:
        for name in ("limit", "top_p", "temperature"):
            _check_real(name, getattr(self, name))
        if self.images is not None and self.images.is_floating_point():
            raise TypeError(f"images is {self.images.dtype}; wanted a tensor of bool [N]")
        if self.images is not None and bool(((self.images != 0) & (self.images != 1)).any()):
            raise ValueError("images holds more than 0 and 1; wanted a tensor of bool [N]")
        if unknown := [name for name in self.plays if name not in LINES]:
            raise ValueError(f"plays has {unknown[0]!r}; wanted some of {', '.join(LINES)}")
        # a limit of NaN is below every gap and above none: each step would be an alarm
        if not self.limit >= 0:
            raise ValueError(f"limit is {self.limit}; wanted a mean gap of 0 or more, see ROUNDING")
        _allowed(self.top_p)
        if not 0 < self.temperature < math.inf:
            raise ValueError(f"temperature is {self.temperature}; wanted a number above 0")


@dataclass(frozen=True)
class Fault:
    """Name a fault, one of `LINES` or "temperature", "image size", "weights", "not finite".

    line: the likely cause, for a reader.
    """

    name: str
    line: str


def gaps(trainer: Tensor, sampler: Tensor, top_p: float = 1.0) -> Tensor:
    """Compute |sampler - trainer| [N] fp64, less what a nucleus explains.

    A sampler's log-probs may be those of the nucleus: up to -log(top_p) above the trainer's.

    Raises TypeError for what is no floating-point tensor, ValueError for shapes other than [N] of
    both and a top_p outside (0, 1].
    """
    _check_logps(trainer=trainer, sampler=sampler)
    above = sampler.double() - trainer.double()
    return (above - _allowed(top_p)).clamp(min=0) + (-above).clamp(min=0)


def mean_gap(trainer: Tensor, sampler: Tensor, top_p: float = 1.0) -> float:
    """Compute the mean of `gaps`, NaN of none; their order changes no bit.

    Raises as `gaps`.
    """
    return float(gaps(trainer, sampler, top_p).sort().values.mean())


def gap_row(trainer: Tensor, sampler: Tensor, top_p: float = 1.0) -> dict[str, float]:
    """Compute what a step logs of the log-probs [N] of N > 0 tokens.

    Mean and 99th percentile of the gap, and the effective sample size of r = trainer / sampler,
    (sum r)^2 / (N sum r^2), where both are of the same distribution. Raises as `gaps`, and
    ValueError for no tokens.
    """
    if isinstance(trainer, Tensor) and not trainer.numel():
        raise ValueError("log-probs of no tokens; wanted [N] of at least one")
    ordered = gaps(trainer, sampler, top_p).sort().values
    row = {"sampler/gap_mean": float(ordered.mean())}
    # linear between two places, as numpy's; torch.quantile ends at 2^24 entries
    place = 0.99 * (len(ordered) - 1)
    low, high = ordered[math.floor(place)], ordered[math.ceil(place)]
    row["sampler/gap_p99"] = float(low + (high - low) * (place - math.floor(place)))
    if not _allowed(top_p):
        apart = trainer.double() - sampler.double()
        # by one factor, which the share does not know: a ratio of two far tokens overflows
        ratio = (apart - apart.max()).exp().sort().values
        row["sampler/ess"] = float(ratio.sum() ** 2 / (len(ratio) * ratio.square().sum()))
    return row


def reshaped_by(settings: Mapping[str, object], temperature: float, top_p: float) -> str | None:
    """Name a setting by which a sampler's distribution is not the trainer's, if any.

    An engine that reports log-probs of what it draws from (vLLM's `processed_logprobs`) is not to
    be compared then: the trainer knows `temperature` and `top_p` alone.
    """
    neutral = RESHAPING | {"temperature": temperature, "top_p": top_p}
    for name in neutral.keys() & settings.keys():
        if settings[name] and settings[name] != neutral[name]:
            return f"{name}={settings[name]!r:.40}"
    return None


def sampler_alarm(trainer: Tensor, sampler: Tensor, run: Run) -> Fault | None:
    """Name the fault between log-probs [N] of the same sampled tokens; None where they agree.

    Whatever explains most is blamed: a fault that the trainer plays, or a temperature. Without any,
    prompts with images that differ alone point to the images, an agreement in the step before to
    the weights, and what is left to the prompt's tokens. N = 0 agrees.

    Raises TypeError for what is no floating-point tensor, ValueError for tensors that do not fit,
    those of a play among them.
    """
    if not isinstance(run, Run):
        raise TypeError(f"run is {type(run).__name__}; wanted a Run, as Run(limit=1e-3)")
    _check_logps(trainer=trainer, sampler=sampler)
    if len(trainer) and run.images is not None and run.images.shape != trainer.shape:
        raise ValueError(
            f"images has shape {tuple(run.images.shape)}; wanted {tuple(trainer.shape)}, of the "
            "same tokens"
        )
    gap = mean_gap(trainer, sampler, run.top_p)
    if not len(trainer) or gap <= run.limit:
        return None
    if not math.isfinite(gap):
        return Fault("not finite", "log-probs that are not finite; look for NaN in the weights")
    explained = _played(trainer, sampler, run, (1 - EXPLAINED) * gap)
    if fault := explained or _by_images(trainer, sampler, run):
        return fault
    if run.agreed:
        return Fault(
            "weights",
            "weights that the sampler has not taken over, since both agreed in the step before; "
            "restart it",
        )
    return Fault(
        "template",
        "other prompt tokens (tokenizer, chat template), images of another size "
        "(policy.max_pixels), or other weights or another dtype in the sampler",
    )


class SamplerMonitor:
    """Compare the trainer's log-probs with the sampler's at each step; stop at a fault."""

    def __init__(self, limit: float = ROUNDING[torch.bfloat16], **facts: Any) -> None:
        """Take the largest mean gap in nats a token, and fields of `Run` that stay, as `top_p`."""
        self._facts, self._agreed = {"limit": limit, **facts}, False
        Run(**self._facts)  # a field that cannot be is refused here

    def __call__(
        self, step: int, trainer: Tensor, sampler: Tensor, **facts: Any
    ) -> dict[str, float]:
        """Return the row of `gap_row`, {} of no tokens; UserError names a fault and its cause.

        trainer, sampler: log-probs [N] of the same tokens. facts: fields of `Run` that change with
        the step, as `plays` and `images`. Raises TypeError and ValueError as `Run` and `gaps`.
        """
        run = Run(**{"agreed": self._agreed, **self._facts, **facts})
        fault = sampler_alarm(trainer, sampler, run)
        if not len(trainer):
            return {}
        row = gap_row(trainer, sampler, run.top_p)
        if fault is not None:
            raise UserError(
                f"trainer and sampler differ by {row['sampler/gap_mean']:.3g} nats a token on "
                f"average at step {step}, more than {run.limit:g}; likely {fault.line}"
            )
        self._agreed = True
        return row


def _played(trainer: Tensor, sampler: Tensor, run: Run, enough: float) -> Fault | None:
    """The fault that, played by the trainer, leaves least of the gap, and little enough."""
    left = {}
    for name in LINES:
        if name in run.plays:
            rest = _rest(f"plays[{name!r}]", run.plays[name](), sampler, run)
            # a play of NaN explains nothing, and hides none that does
            left[name] = rest if math.isfinite(rest) else math.inf
    name = min(left, key=lambda name: left[name], default="")
    if name and left[name] <= run.limit:
        return Fault(name, LINES[name].format(left=left[name]))
    if run.at_temperature is not None:
        best, rest = _temperature(run.at_temperature, trainer, sampler, run)
        if rest <= enough and rest < left.get(name, math.inf):
            return Fault(
                "temperature",
                f"another temperature: at {best:.3g} in the place of "
                f"{run.option}={run.temperature:g} they would differ by {rest:.2g}",
            )
    if name and left[name] <= enough:
        return Fault(name, LINES[name].format(left=left[name]))
    return None


def _temperature(
    at: Callable[[float], Tensor], trainer: Tensor, sampler: Tensor, run: Run
) -> tuple[float, float]:
    """The temperature at which the trainer is nearest to the sampler, and the gap there.

    Gauss-Newton in the logarithm of the temperature: a token's log-prob is nearly a line in it,
    whose slope two temperatures give. Ranks make as many passes whatever their rounding.
    """
    here, row, step = 0.0, trainer.double(), FIRST_STEP
    slope, nearest = torch.zeros_like(row), (run.temperature, math.inf)
    for _ in range(PASSES):
        there = max(-WIDEST, min(WIDEST, here + step))
        temperature = run.temperature * math.exp(there)
        moved = at(temperature)
        gap = _rest("at_temperature", moved, sampler, run)
        moved = moved.double()
        nearest = min(nearest, (temperature, gap), key=lambda each: each[1])
        if abs(there - here) > APART:
            slope = (moved - row) / (there - here)
        here, row = there, moved
        # what a nucleus adds to all of them alike is no temperature's
        flat = slope.mean() if run.top_p < 1 and len(slope) > 1 else 0.0
        # far tokens weigh less: the mean gap is judged, not the mean square
        rest = sampler.double() - row
        near = (slope - flat) / (rest.abs() + rest.abs().median() + TINY)
        step = float(near @ rest / (near @ slope))
    return nearest


def _by_images(trainer: Tensor, sampler: Tensor, run: Run) -> Fault | None:
    if run.images is None:
        return None
    chosen = run.images.bool()
    having, without = (mean_gap(trainer[c], sampler[c], run.top_p) for c in (chosen, ~chosen))
    if not without <= run.limit < having:
        return None
    return Fault(
        "image size",
        f"images of another size or preprocessing: prompts with images differ by {having:.2g}, "
        f"those without by {without:.2g}; compare the bounds of their pixels (policy.max_pixels)",
    )


def _rest(name: str, played: Tensor, sampler: Tensor, run: Run) -> float:
    """The mean gap that a play leaves; raises where its log-probs do not fit the sampler's."""
    _check_logps(sampler=sampler, **{f"the result of {name}": played})
    return mean_gap(played, sampler, run.top_p)


def _check_logps(**tensors: Tensor) -> None:
    """Raise unless all are floating-point tensors [N] of one length."""
    first, *_ = tensors.values()
    for name, values in tensors.items():
        if not isinstance(values, Tensor):
            raise TypeError(f"{name} is {type(values).__name__}; wanted a tensor of log-probs [N]")
        if not values.is_floating_point():
            raise TypeError(f"{name} is {values.dtype}; wanted log-probs in floating point")
        if values.dim() != 1 or values.shape != first.shape:
            shapes = " and ".join(str(tuple(v.shape)) for v in (first, values))
            whose = " and ".join(tensors)
            raise ValueError(
                f"log-probs of shapes {shapes}; wanted [N] of the same tokens ({whose})"
            )


def _check_real(name: str, value: object) -> None:
    if not is_real(unwrapped(value)):
        raise TypeError(f"{name} is {value!r:.40}; wanted a number")


def _allowed(top_p: float) -> float:
    _check_real("top_p", top_p)
    if not 0 < top_p <= 1:
        raise ValueError(f"top_p is {top_p}; wanted more than 0, and at most 1")
    return -math.log(top_p) if top_p < 1 else 0.0
