"""What a recipe can say, with the default of everything.

Every field has a default that works on two CPU cores; a recipe writes only what differs.
`metadata` carries the allowed choices and bounds, which `config.load_config` enforces.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, make_dataclass
from typing import Any, get_type_hints

from rrgtrain.data.phantom import PhantomConfig


def one_of(default: str, *choices: str) -> Any:
    """A field that holds one of these words."""
    return field(default=default, metadata={"choices": [default, *choices]})


def at_least(default: Any, minimum: float, maximum: float | None = None) -> Any:
    """A number with bounds, both included."""
    bounds = {"min": minimum} if maximum is None else {"min": minimum, "max": maximum}
    return field(default=default, metadata=bounds)


def _phantom() -> type:
    """The recipe's view of `PhantomConfig`: the same fields and defaults, open to overrides."""
    hints = get_type_hints(PhantomConfig)
    made = [(f.name, hints[f.name], field(default=f.default)) for f in fields(PhantomConfig)]
    return make_dataclass("Phantom", made)


Phantom = _phantom()


@dataclass
class Data:
    """Where studies come from; `limit` keeps the first of each split."""

    source: str = one_of("phantom", "iu_xray", "nih")
    root: str | None = None
    images: str = one_of("all", "frontal", "none")
    limit: int | None = None
    phantom: Phantom = field(default_factory=Phantom)  # type: ignore[valid-type]


@dataclass
class Policy:
    """`path` is a checkpoint directory or a hub name; `tiny` builds one from the data."""

    path: str = "tiny"
    width: int = at_least(128, 16)
    layers: int = at_least(3, 1)
    vision_layers: int = at_least(3, 1)
    vocabulary: int = at_least(640, 300)
    warmup_steps: int = at_least(200, 0)
    warmup_lr: float = at_least(1e-3, 0.0)
    seed: int = 0
    freeze_vision: bool = False
    gradient_checkpointing: bool = False
    prompt: str = one_of("short", "editgrpo")
    dtype: str = one_of("float32", "bfloat16")
    device: str = one_of("auto", "cpu", "cuda")


@dataclass
class Sft:
    """Cross-entropy on the findings; stops at `patience` validations without `min_delta`."""

    steps: int = at_least(400, 1)
    batch: int = at_least(32, 1)
    lr: float = at_least(1e-3, 0.0)
    weight_decay: float = at_least(0.01, 0.0)
    warmup: int = at_least(20, 0)
    clip: float = at_least(1.0, 0.0)
    schedule: str = one_of("constant", "cosine")
    eval_every: int = at_least(50, 1)
    patience: int = at_least(4, 1)
    min_delta: float = at_least(0.003, 0.0)
    wall_seconds: float | None = None


@dataclass
class Rl:
    """`prompts` groups of `group` members a step; `beta` weighs the KL to the start."""

    algorithm: str = "editgrpo"
    steps: int = at_least(100, 1)
    prompts: int = at_least(8, 1)
    group: int = at_least(10, 2)
    lr: float = at_least(1e-4, 0.0)
    weight_decay: float = at_least(0.01, 0.0)
    warmup: int = at_least(0, 0)
    clip: float = at_least(1.0, 0.0)
    schedule: str = one_of("constant", "cosine")
    surrogate: str = one_of("clip", "cispo", "sapo", "reinforce")
    ratio_level: str = one_of("token", "sequence", "sequence_token")
    eps_low: float = at_least(0.2, 0.0)
    eps_high: float = at_least(0.2, 0.0)
    aggregation: str = one_of("dr_grpo", "grpo", "bnpo", "dapo", "sum")
    std: str = one_of("none", "population", "sample")
    beta: float = at_least(0.01, 0.0)
    kl: str = one_of("k3", "k1", "k2")
    temperature: float = at_least(1.0, 1e-3)
    top_p: float = at_least(1.0, 0.0, 1.0)
    max_new_tokens: int = at_least(128, 1)
    token_budget: int = at_least(16384, 1)
    eval_every: int = at_least(25, 1)


@dataclass
class Edit:
    """EditGRPO's post-rollout edit."""

    tau: float = at_least(0.6, -1.0, 1.0)
    tau_replace: float | None = None
    max_edits: int | None = 1
    rule: str = one_of("paper", "released")
    conflict_requires_spurious: bool = True


@dataclass
class Reward:
    """Weights of the terms; see `rewards/terms.py` for what each one measures."""

    terms: dict[str, float] = field(
        default_factory=lambda: {"entity_f1": 1.0, "label_f1": 1.0, "match": 1.0}
    )
    labeller: str = "rules"
    extractor: str = "rules"
    against: str = one_of("report", "labels")
    margin: float = at_least(0.0, -0.999, 0.999)
    neg_weight: float = at_least(0.3612, 0.0)


@dataclass
class Eval:
    """Greedy reports of `split`, scored; `samples` of them are kept to be read."""

    split: str = one_of("test", "val", "train")
    limit: int | None = None
    batch: int = at_least(64, 1)
    max_new_tokens: int = at_least(128, 1)
    bootstrap: int = at_least(1000, 1)
    samples: int = at_least(6, 0)


@dataclass
class Recipe:
    """One experiment, from data to report."""

    seed: int = 0
    data: Data = field(default_factory=Data)
    policy: Policy = field(default_factory=Policy)
    sft: Sft = field(default_factory=Sft)
    rl: Rl = field(default_factory=Rl)
    edit: Edit = field(default_factory=Edit)
    reward: Reward = field(default_factory=Reward)
    eval: Eval = field(default_factory=Eval)
