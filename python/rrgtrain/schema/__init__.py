"""Declares every setting of a recipe: type, default, allowed values and meaning.

Every field has a default that works on two CPU cores; a recipe writes only what differs. The text
beneath a field describes it, and `rrgtrain keys` prints it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from rrgtrain.schema.data import Data
from rrgtrain.schema.fields import at_least
from rrgtrain.schema.methods import Edit, Oracle, Select, TokenWeights
from rrgtrain.schema.policy import Lora, Policy
from rrgtrain.schema.rewards import Eval, Reward
from rrgtrain.schema.run import Checkpoint, Log, Scale
from rrgtrain.schema.training import Rl, Rollout, Sft

__all__ = [
    "Checkpoint",
    "Data",
    "Edit",
    "Eval",
    "Log",
    "Lora",
    "Oracle",
    "Policy",
    "Recipe",
    "Reward",
    "Rl",
    "Rollout",
    "Scale",
    "Select",
    "Sft",
    "TokenWeights",
]


@dataclass
class Recipe:
    """Describe one experiment, from data to report."""

    # numpy and PyTorch take seeds of 64 bits, and a rank adds its number to this one
    seed: int = at_least(0, 0, 2**63 - 1)
    """Seed of sampling and of the order of studies; `policy.seed` and `data.phantom.seed` are
    others."""
    deterministic: bool = False
    """Refuse every operation of PyTorch that may differ between two runs."""
    data: Data = field(default_factory=Data)
    """The studies, and which of them are trained on."""
    policy: Policy = field(default_factory=Policy)
    """The model that writes reports."""
    sft: Sft = field(default_factory=Sft)
    """Supervised fine-tuning: cross-entropy on the findings."""
    rl: Rl = field(default_factory=Rl)
    """Reinforcement learning: algorithm, loss and optimiser."""
    rollout: Rollout = field(default_factory=Rollout)
    """The engine that samples reports."""
    edit: Edit = field(default_factory=Edit)
    """EditGRPO's post-rollout edit."""
    token_weights: TokenWeights = field(default_factory=TokenWeights)
    """DiTPO's factor of each token's advantage (DEER)."""
    oracle: Oracle = field(default_factory=Oracle)
    """OraPO's reference report as a preferred sample."""
    select: Select = field(default_factory=Select)
    """The share of the training studies that `rrgtrain select` draws (DEER)."""
    reward: Reward = field(default_factory=Reward)
    """The terms of the reward, and the models that they read reports with."""
    eval: Eval = field(default_factory=Eval)
    """Greedy reports of held-out studies, scored."""
    checkpoint: Checkpoint = field(default_factory=Checkpoint)
    """Checkpoints that `--resume` goes on from; they change nothing in what is learned."""
    scale: Scale = field(default_factory=Scale)
    """Distribution over the processes of torchrun, one a GPU."""
    log: Log = field(default_factory=Log)
    """Records and trackers beside metrics.jsonl and TensorBoard."""
