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
    "TokenWeightSettings",
]


@dataclass(config=SETTINGS)
class Recipe:
    """Describe one experiment, from data to report, by a class a section."""

    # numpy and PyTorch take seeds of 64 bits, and a rank adds its number to this one
    seed: int = Field(default=0, ge=0, le=2**63 - 1)
    """Seed of sampling and of the order of studies; `policy.seed` and `data.phantom.seed` are
    others."""
    deterministic: bool = False
    """Refuse every operation of PyTorch that may differ between two runs."""
    data: DataSettings = Field(default_factory=DataSettings)
    policy: PolicySettings = Field(default_factory=PolicySettings)
    sft: SftSettings = Field(default_factory=SftSettings)
    rl: RlSettings = Field(default_factory=RlSettings)
    rollout: RolloutSettings = Field(default_factory=RolloutSettings)
    edit: EditSettings = Field(default_factory=EditSettings)
    token_weights: TokenWeightSettings = Field(default_factory=TokenWeightSettings)
    oracle: OracleSettings = Field(default_factory=OracleSettings)
    select: SelectSettings = Field(default_factory=SelectSettings)
    reward: RewardSettings = Field(default_factory=RewardSettings)
    eval: EvalSettings = Field(default_factory=EvalSettings)
    generate: GenerateSettings = Field(default_factory=GenerateSettings)
    checkpoint: CheckpointSettings = Field(default_factory=CheckpointSettings)
    plan: PlanSettings = Field(default_factory=PlanSettings)
    scale: ScaleSettings = Field(default_factory=ScaleSettings)
    log: LogSettings = Field(default_factory=LogSettings)
