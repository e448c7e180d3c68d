"""Describe a variant of the policy loss, and refuse one that makes no sense."""

from __future__ import annotations

import difflib
import functools
import json
import math
from dataclasses import asdict, dataclass
from typing import Any, Self

SURROGATES = ("clip", "cispo", "sapo", "reinforce", "luspo", "vespo", "gmpo")
RATIO_LEVELS = ("token", "sequence", "sequence_token")
KLS = ("k1", "k2", "k3")
SAMPLER_LEVELS = ("token", "sequence", "geometric")
SAMPLER_MODES = ("truncate", "mask")
MAY_BE_NONE = ("eps_low", "dual_clip", "sampler_min", "sampler_max")


@dataclass(frozen=True)
class PolicyLoss:
    """One variant of the policy loss; the defaults are PPO's clip with no KL term.

    Attributes:
        surrogate: "clip" (PPO, GRPO), "cispo" (MiniMax-M1), "sapo", "reinforce", "vespo", "luspo"
            or "gmpo". The last two are of the sequence level: "luspo" clips its ratio, and weighs
            a sequence by its length through the aggregation "sum" of `loss_scale`; "gmpo" clips
            each token's log-ratio before the mean.
        ratio_level: "token"; "sequence", one ratio per sequence with its gradient through the
            mean (GSPO); "sequence_token", the same value with each token's own gradient.
        eps_low, eps_high: the ratio is clipped to [1 - eps_low, 1 + eps_high]. For "cispo" they
            bound the weight (TRL's epsilon_high is 1 + eps_high here), for "gmpo" the log-ratio, in
            [-eps_low, eps_high] (its paper has 0.4). Both go without a lower bound by eps_low=None.
        dual_clip: where the advantage is negative the ratio is also capped here; "clip" and
            "luspo" only, above 1 + eps_high. None: not capped.
        kl: estimator of the divergence from the reference, "k1", "k2" or "k3".
        beta: weight of that divergence; 0 leaves it out of the loss.
        kl_ratio_weight: multiply the estimate by the ratio, differentiably (TRL's bias
            correction).
        entropy_coef: weight of the entropy bonus.
        sampler_level, sampler_mode, sampler_min, sampler_max: correction for a rollout engine
            whose log-probabilities differ: one factor per "token", or per sequence as the product
            of its tokens' ("sequence") or their geometric mean ("geometric"), held within the
            bounds by "truncate" or set to 0 outside them by "mask". None: no bound.
        sapo_tau_pos, sapo_tau_neg: temperatures for positive and other advantages.
        vespo_k_pos, vespo_lambda_pos, vespo_k_neg, vespo_lambda_neg: the Gamma weights of TRL 1.16
            for advantages >= 0 and below 0.

    Raises:
        ValueError: on construction, one line naming the field, what it holds and what it may.
        TypeError: a field that there is not; the line names the nearest.
    """

    surrogate: str = "clip"
    ratio_level: str = "token"
    eps_low: float | None = 0.2
    eps_high: float = 0.2
    dual_clip: float | None = None
    kl: str = "k3"
    beta: float = 0.0
    kl_ratio_weight: bool = False
    entropy_coef: float = 0.0
    sampler_level: str = "token"
    sampler_mode: str = "truncate"
    sampler_min: float | None = None
    sampler_max: float | None = 3.0
    sapo_tau_pos: float = 1.0
    sapo_tau_neg: float = 1.05
    vespo_k_pos: float = 2.0
    vespo_lambda_pos: float = 3.0
    vespo_k_neg: float = 3.0
    vespo_lambda_neg: float = 2.0

    def __new__(cls, *values: Any, **fields: Any) -> Self:
        """Refuse a field that there is not, which Python's own error would leave at that."""
        for name in fields.keys() - cls.__dataclass_fields__:
            near = difflib.get_close_matches(name, cls.__dataclass_fields__, n=1)
            hint = f"did you mean {near[0]}?" if near else "see its docstring"
            raise TypeError(f"PolicyLoss has no field {name!r}; {hint}")
        return super().__new__(cls)

    def __post_init__(self) -> None:
        self._one_of("surrogate", SURROGATES)
        self._one_of("ratio_level", RATIO_LEVELS)
        self._one_of("kl", KLS)
        self._one_of("sampler_level", SAMPLER_LEVELS)
        self._one_of("sampler_mode", SAMPLER_MODES)
        for name in ("eps_low", "eps_high", "beta", "sampler_min", "sampler_max"):
            self._number(name, at_least=0.0)
        for name in ("dual_clip", "entropy_coef", "vespo_k_pos", "vespo_k_neg"):
            self._number(name)
        for name in ("sapo_tau_pos", "sapo_tau_neg", "vespo_lambda_pos", "vespo_lambda_neg"):
            self._number(name, above=0.0)
        self._flag("kl_ratio_weight")
        self._check_clip()
        self._check_levels()
        # Written now, not when asked: torch.compile can read a string, but not trace json.
        object.__setattr__(self, "_encoded", json.dumps(asdict(self)))

    def encode(self) -> str:
        """The variant as one string, the form in which it crosses an op's boundary."""
        text: str = self.__dict__["_encoded"]
        return text

    def ties_tokens(self, sampler: bool) -> bool:
        """True where a token's gradient depends on the other tokens of its sequence.

        Args:
            sampler: the rollout engine's log-probabilities are given.
        """
        per_sequence = self.ratio_level != "token" or self.surrogate == "vespo"
        return per_sequence or (sampler and self.sampler_level != "token")

    @staticmethod
    @functools.lru_cache(maxsize=128)
    def decode(text: str) -> PolicyLoss:
        """The variant that `encode` wrote."""
        return PolicyLoss(**json.loads(text))

    @staticmethod
    def unlike(value: object) -> TypeError:
        """Make the error for a `spec` that is no variant."""
        shown, instead = repr(value) if isinstance(value, str) else f"a {type(value).__name__}", ""
        if isinstance(value, dict):
            instead = ": pass PolicyLoss(**spec)"
        elif isinstance(value, type):
            shown, instead = f"the class {value.__name__}", ": pass PolicyLoss() with its fields"
        return TypeError(f"spec is {shown}; wanted a PolicyLoss{instead}")

    def _one_of(self, name: str, choices: tuple[str, ...]) -> None:
        value = getattr(self, name)
        if value not in choices:
            raise ValueError(f"{name} is {value!r}; choose one of {', '.join(map(repr, choices))}")

    def _flag(self, name: str) -> None:
        value = getattr(self, name)
        if not isinstance(value, bool):
            raise ValueError(f"{name} is {value!r}; it must be True or False")

    def _number(self, name: str, at_least: float = -math.inf, above: float = -math.inf) -> None:
        value = getattr(self, name)
        if value is None and name in MAY_BE_NONE:
            return
        # NumPy's and 0-d tensors are numbers too, but json writes none of them
        kind = str(getattr(value, "dtype", "")).removeprefix("torch.")
        number = isinstance(value, int | float) or kind.startswith(
            ("int", "uint", "float", "bfloat")
        )
        if isinstance(value, bool) or not number or getattr(value, "shape", False):
            raise ValueError(f"{name} is {value!r}; it must be a number")
        if not isinstance(value, int | float):
            value = float(value)
            object.__setattr__(self, name, value)
        if not (math.isfinite(value) and value >= at_least and value > above):
            bound = f" and above {above:g}" if above > -math.inf else ""
            bound = f" and at least {at_least:g}" if at_least > -math.inf else bound
            raise ValueError(f"{name} is {value}; it must be finite{bound}")

    def _check_clip(self) -> None:
        clips = self.surrogate in ("clip", "luspo")
        if clips and self.eps_low is None:
            raise ValueError(
                f"eps_low is None with surrogate {self.surrogate!r}; only 'cispo' and 'gmpo' go "
                "without it"
            )
        if self.dual_clip is not None and not clips:
            raise ValueError(
                f"dual_clip is {self.dual_clip} with surrogate {self.surrogate!r}; "
                "only 'clip' and 'luspo' have one: leave it None"
            )
        if self.dual_clip is not None and self.dual_clip <= 1 + self.eps_high:
            raise ValueError(
                f"dual_clip is {self.dual_clip}; it must lie above 1 + eps_high = "
                f"{1 + self.eps_high}"
            )
        low, high = self.sampler_min, self.sampler_max
        if low is not None and high is not None and low > high:
            raise ValueError(f"sampler_min is {low}, above sampler_max {high}; swap them")

    def _check_levels(self) -> None:
        levels = {"luspo": ("sequence",), "gmpo": ("sequence",), "vespo": ("token", "token")}
        names = ("ratio_level", "sampler_level")
        for name, level in zip(names, levels.get(self.surrogate, ()), strict=False):
            if (value := getattr(self, name)) != level:
                raise ValueError(
                    f"{name} is {value!r} with surrogate {self.surrogate!r}; it must be {level!r}"
                )
