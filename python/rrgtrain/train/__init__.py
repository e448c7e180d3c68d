"""The loops: supervised fine-tuning and reinforcement learning."""

from rrgtrain.train.batch import Batch
from rrgtrain.train.best import save_policy
from rrgtrain.train.gradients import Gradients, accumulate_gradients, with_rollout_logps
from rrgtrain.train.sample import sample_groups
from rrgtrain.train.sampler_gap import SamplerWatch
from rrgtrain.train.step_log import batch_row, reward_rows, zero_variance

__all__ = [
    "Batch",
    "Gradients",
    "SamplerWatch",
    "accumulate_gradients",
    "batch_row",
    "reward_rows",
    "sample_groups",
    "save_policy",
    "with_rollout_logps",
    "zero_variance",
]
