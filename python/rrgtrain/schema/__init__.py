"""Declares every setting of a recipe: type, default, allowed values and meaning.

Every field has a default that works on two CPU cores; a recipe writes only what differs. The text
beneath a field describes it, and `rrgtrain keys` prints it.
"""

from __future__ import annotations

from pydantic import Field
from pydantic.dataclasses import dataclass

from rrgclinical.common.fields import SETTINGS
from rrgdata.settings import DataSettings
from rrgpolicy.settings import PROMPT_STYLES, LoraSettings, PolicySettings
from rrgtrain.schema.sections import (
    CheckpointSettings,
    EditSettings,
    EvalSettings,
    GenerateSettings,
    JudgeSettings,
    LogSettings,
    OracleSettings,
    PlanSettings,
    RewardSettings,
    ScaleSettings,
    SelectSettings,
    StateSettings,
    TokenWeightSettings,
)
from rrgtrain.schema.training import RlSettings, RolloutSettings, SftSettings

__all__ = [
    "PROMPT_STYLES",
    "CheckpointSettings",
    "DataSettings",
    "EditSettings",
    "EvalSettings",
    "GenerateSettings",
    "JudgeSettings",
    "LogSettings",
    "LoraSettings",
    "OracleSettings",
    "PlanSettings",
    "PolicySettings",
    "Recipe",
    "RewardSettings",
    "RlSettings",
    "RolloutSettings",
    "ScaleSettings",
    "SelectSettings",
    "SftSettings",
    "StateSettings",
    "TokenWeightSettings",
]


@dataclass(config=SETTINGS)
class Recipe:
    """Describe one experiment, from data to report."""

    # numpy and PyTorch take seeds of 64 bits, and a rank adds its number to this one
    seed: int = Field(default=0, ge=0, le=2**63 - 1)
    """Seed of sampling and of the order of studies; `policy.seed` and `data.phantom.seed` are
    others."""
    deterministic: bool = False
    """Refuse every operation of PyTorch that may differ between two runs."""
    data: DataSettings = Field(default_factory=DataSettings)
    """The studies, and which of them are trained on."""
    policy: PolicySettings = Field(default_factory=PolicySettings)
    """The model that writes reports."""
    sft: SftSettings = Field(default_factory=SftSettings)
    """Supervised fine-tuning: cross-entropy on the findings."""
    rl: RlSettings = Field(default_factory=RlSettings)
    """Reinforcement learning: algorithm, loss and optimiser."""
    rollout: RolloutSettings = Field(default_factory=RolloutSettings)
    """The engine that samples reports."""
    edit: EditSettings = Field(default_factory=EditSettings)
    """EditGRPO's post-rollout edit."""
    token_weights: TokenWeightSettings = Field(default_factory=TokenWeightSettings)
    """DiTPO's factor of each token's advantage (DEER)."""
    oracle: OracleSettings = Field(default_factory=OracleSettings)
    """OraPO's reference report as a preferred sample."""
    select: SelectSettings = Field(default_factory=SelectSettings)
    """The share of the training studies that `rrgtrain select` draws (DEER)."""
    reward: RewardSettings = Field(default_factory=RewardSettings)
    """The terms of the reward, and the models that they read reports with."""
    eval: EvalSettings = Field(default_factory=EvalSettings)
    """Greedy reports of held-out studies, scored."""
    generate: GenerateSettings = Field(default_factory=GenerateSettings)
    """Reports of images without references."""
    checkpoint: CheckpointSettings = Field(default_factory=CheckpointSettings)
    """Checkpoints that `--resume` goes on from; they change nothing in what is learned."""
    plan: PlanSettings = Field(default_factory=PlanSettings)
    """The estimate that a run begins with."""
    state: StateSettings = Field(default_factory=StateSettings)
    """Stops by a signal."""
    scale: ScaleSettings = Field(default_factory=ScaleSettings)
    """Distribution over the processes of torchrun, one a GPU."""
    log: LogSettings = Field(default_factory=LogSettings)
    """Records and trackers beside metrics.jsonl and TensorBoard."""
