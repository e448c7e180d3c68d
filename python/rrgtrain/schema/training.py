"""Declares the settings of fine-tuning and of reinforcement learning."""

from __future__ import annotations

from typing import Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from rrgclinical.common.fields import SETTINGS

# More is a slip of the keys, and would be counted out before anything is said.
MOST_STEPS, MOST_AT_ONCE = 10**9, 10**6


@dataclass(config=SETTINGS)
class SftSettings:
    """Fine-tune by cross-entropy on the findings, up to the validation plateau."""

    steps: int = Field(default=400, ge=1, le=MOST_STEPS)
    """Largest number of optimiser steps."""
    batch: int = Field(default=32, ge=1, le=MOST_AT_ONCE)
    """Studies in a step, of all processes together."""
    lr: float = Field(default=1e-3, ge=0.0)
    """Peak learning rate."""
    optimizer: Literal["adamw", "adamw_8bit"] = "adamw"
    """AdamW, or AdamW with a state of 8 bits, as `rl.optimizer`."""
    beta1: float = Field(default=0.9, ge=0.0, le=0.9999999)
    """AdamW's decay of the gradient's mean."""
    beta2: float = Field(default=0.999, ge=0.0, le=0.9999999)
    """AdamW's decay of the gradient's square."""
    weight_decay: float = Field(default=0.01, ge=0.0)
    """Decoupled weight decay."""
    warmup: int = Field(default=20, ge=0)
    """Steps in which the learning rate rises to `sft.lr`."""
    clip: float = Field(default=1.0, ge=0.0)
    """Norm to which gradients are clipped; 0 clips none."""
    schedule: Literal["constant", "cosine"] = "constant"
    """Course of the learning rate after the warm-up; `cosine` falls to 0 at the last step."""
    eval_every: int = Field(default=50, ge=1)
    """Steps between validations."""
    patience: int = Field(default=4, ge=1)
    """Validations without `sft.min_delta` after which the training stops."""
    min_delta: float = Field(default=0.003, ge=0.0)
    """Gain that counts as progress, in units of `eval.best_by`."""
    drops: int = Field(default=0, ge=0)
    """Number of plateaus that do not stop the training: the best weights come back, and the
    learning rate is multiplied by `sft.drop_factor`."""
    drop_factor: float = Field(default=0.25, ge=0.0)
    """Factor of the learning rate at such a plateau."""
    choose: Literal["best", "before_convergence"] = "best"
    """Checkpoint that is kept: the best by `eval.best_by`, or the validation before the last one
    that brought `sft.min_delta` (EditGRPO starts RL from the epoch before convergence)."""
    wall_seconds: float | None = Field(default=None, ge=0)
    """Seconds after which the training stops; null sets no limit."""
    train: Literal["all", "vision"] = "all"
    """Weights that train: all, or the vision tower with its projector, the language model frozen
    (DEER)."""
    template: str = "{report}"
    """Text that the policy learns to write: `{report}` and, if it asks for them, `{findings}`, the
    positive labels by name: the study's own, or those that `reward.labeller` reads in its
    report."""
    token_budget: int | None = Field(default=None, ge=1)
    """Tokens of a micro-batch; null computes a process's share of the batch at once."""


@dataclass(config=SETTINGS)
class RlSettings:
    """Train by reinforcement: groups of sampled reports, scored and compared."""

    algorithm: str = "editgrpo"
    """Algorithm: a name, several joined by `+`, or your own as `module:function`
    (`algorithms/README.md`)."""
    by_finding: float = Field(default=1.0, ge=0.0)
    """Weight of `by_finding`'s advantages of sentences beside those of the algorithm before it."""
    steps: int = Field(default=100, ge=1, le=MOST_STEPS)
    """Number of steps; each samples, scores and updates."""
    prompts: int = Field(default=8, ge=1, le=MOST_AT_ONCE)
    """Groups in a step, one study each, of all processes together."""
    resample: int = Field(default=0, ge=0)
    """Rounds of further prompts that a step may draw until `rl.prompts` groups have differing
    rewards, which are then all it trains on (DAPO's dynamic sampling); 0 keeps what is drawn."""
    group: int = Field(default=10, ge=2, le=MOST_AT_ONCE)
    """Reports of a group."""
    ahead: int = Field(default=0, ge=0, le=1)
    """Updates by which the weights that draw a step's reports are older than those it trains: 1
    samples the next batch while a batch is trained on, from a `vllm_server` with GPUs of its own.
    """
    lr: float = Field(default=1e-4, ge=0.0)
    """Peak learning rate."""
    weight_decay: float = Field(default=0.01, ge=0.0)
    """Decoupled weight decay."""
    warmup: int = Field(default=0, ge=0)
    """Steps in which the learning rate rises to `rl.lr`."""
    clip: float = Field(default=1.0, ge=0.0)
    """Norm to which gradients are clipped; 0 clips none."""
    schedule: Literal["constant", "cosine"] = "constant"
    """Course of the learning rate after the warm-up; `cosine` falls to 0 at the last step."""
    optimizer: Literal["adamw", "adamw_8bit"] = "adamw"
    """AdamW, or AdamW with a state of 8 bits (bitsandbytes, on a GPU)."""
    beta1: float = Field(default=0.9, ge=0.0, le=0.9999999)
    """AdamW's decay of the gradient's mean."""
    beta2: float = Field(default=0.999, ge=0.0, le=0.9999999)
    """AdamW's decay of the gradient's square."""
    surrogate: Literal["clip", "cispo", "sapo", "reinforce", "luspo", "vespo", "gmpo"] = "clip"
    """Surrogate objective: clipped ratio (PPO, GRPO), CISPO (MiniMax-M1), SAPO, REINFORCE, VESPO,
    and, with `rl.ratio_level=sequence`, GMPO, or LUSPO, which takes `rl.aggregation=sum`."""
    ratio_level: Literal["token", "sequence", "sequence_token"] = "token"
    """Importance ratio of each token, or one for the sequence (GSPO); `sequence_token` has GSPO's
    ratio with a gradient at each token."""
    eps_low: float = Field(default=0.2, ge=0.0)
    """Clipping range of the ratio below 1."""
    eps_high: float = Field(default=0.2, ge=0.0)
    """Clipping range of the ratio above 1."""
    top_entropy_quantile: float = Field(default=1.0, ge=1e-6, le=1.0)
    """Share of an update's tokens, of most entropy, that the surrogate takes (2506.01939: 0.2)."""
    off_policy_mask_threshold: float | None = Field(default=None, ge=0.0)
    """Mean log(sampler / policy), nats, from which reports of negative advantage are left out."""
    aggregation: Literal["dr_grpo", "grpo", "bnpo", "dapo", "sum"] = "dr_grpo"
    """Weight of each token's loss: over the longest length (Dr. GRPO), over the report's length
    (GRPO), over the batch's tokens (BNPO), over the step's tokens (DAPO), or 1 (`sum`)."""
    std: Literal["none", "population", "sample"] = "none"
    """Standard deviation of the group that divides its advantages; `none` is Dr. GRPO."""
    combine: Literal["sum", "gdpo"] = "sum"
    """Sum the terms of the reward and compare the sums within a group, or `gdpo`: compare each term
    within its group, divided by `rl.std`, and sum what that gives by the weights of
    `reward.terms`."""
    whiten: Literal["sequence", "token"] = "sequence"
    """Count of a report in the mean and spread by which `rl.combine=gdpo` scales a step: once
    (TRL), or once a token (verl)."""
    beta: float = Field(default=0.01, ge=0.0)
    """Weight of the KL divergence from `rl.reference`."""
    kl: Literal["k3", "k1", "k2"] = "k3"
    """Estimator of that divergence (Schulman)."""
    kl_ratio_weight: bool = False
    """Multiply the divergence by the importance ratio, differentiably, where a batch gets several
    updates (TRL's `use_bias_correction_kl`)."""
    reference: str = "start"
    """Frozen policy that KL and OraPO's preference compare with: `start`, from which this training
    starts; `base`, what that was before fine-tuning, the adapter off where that is it; anything
    else names a checkpoint. A second model takes its place in memory."""
    temperature: float = Field(default=1.0, ge=1e-3)
    """Sampling temperature."""
    top_p: float = Field(default=1.0, ge=1e-6, le=1.0)
    """Probability mass of nucleus sampling; 1 samples from all tokens."""
    max_new_tokens: int = Field(default=128, ge=1)
    """Largest length of a sampled report in tokens."""
    truncated: Literal["score", "mask"] = "score"
    """Treatment of a report that this cuts: score it as any other, or `mask` it: no reward, no
    loss, and no place in its group's mean or in the number of reports."""
    epochs: int = Field(default=1, ge=1)
    """Passes over a step's rollouts."""
    minibatch: int | None = Field(default=None, ge=1)
    """Groups in an update; null takes all of the step in one."""
    token_budget: int = Field(default=16384, ge=1)
    """Tokens of a micro-batch; a larger group stands alone."""
    eval_every: int = Field(default=25, ge=1)
    """Steps between validations."""
    flat_steps: int = Field(default=20, ge=0)
    """Steps in a row in which no group's reports earn different rewards, so that only KL has a
    gradient, after which a line warns; 0 never. Not with OraPO, whose oracle teaches then."""


@dataclass(config=SETTINGS)
class RolloutSettings:
    """Choose the engine that samples reports."""

    engine: str = "transformers"
    """Engine: `transformers`, `vllm` in the trainer's process, `vllm_server` at `rollout.url`, an
    installed one, or your own as `module:function`."""
    compile: Literal["auto", "on", "off"] = "auto"
    """Compile steps of `transformers`, products of one input merged (torch.compile); `auto`: on a
    GPU, in training, where 20,000 tokens or more follow one another (steps x tokens a report)."""
    url: str = "http://localhost:8000"
    """Address of `vllm serve`."""
    memory: float = Field(default=0.4, ge=0.01, le=0.99)
    """Share of the device's memory that vLLM in process takes, on each rank."""
    sleep: bool = True
    """Let vLLM in process give its GPU memory back while the policy trains."""
    max_model_len: int = Field(default=4096, ge=16)
    """Largest length of prompt and report together, in tokens, of vLLM in process."""
    wait: float = Field(default=300.0, ge=0.0)
    """Seconds for which a server that is gone is asked again."""
    correction: Literal["truncate", "mask", "none"] = "truncate"
    """Importance correction where the sampler has kernels of its own: weigh by policy over sampler,
    held at `rollout.cap` (`truncate`) or left out beyond it (`mask`)."""
    level: Literal["token", "sequence", "geometric"] = "token"
    """Unit of that correction: each token, the report, or the geometric mean of its tokens."""
    cap: float = Field(default=3.0, ge=1.0)
    """Largest ratio of that correction."""
    max_gap: float | None = Field(default=None, ge=1e-6)
    """Mean |trainer - sampler log-prob| in nats a token beyond which a step stops the run; null is
    what rounding explains in `policy.dtype` (bfloat16 0.1, float16 0.02, float32 0.001)."""
