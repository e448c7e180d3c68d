"""LoRA on the projections of the language model's layers (MRG-R1, Hu et al. 2022)."""

from __future__ import annotations

import warnings
from typing import Any

import torch

from rrgclinical.common.errors import UserError, cause_line
from rrgpolicy.model.policy import Policy
from rrgpolicy.settings import LoraSettings


def add_lora(policy: Policy, settings: LoraSettings, seed: int) -> None:
    """Puts an adapter on the policy, in place; nothing else trains from then on.

    A policy that was loaded with an adapter keeps that one. `seed` draws the adapter's first
    weights. Raises UserError where a loaded adapter has another rank than the recipe, and warns of
    another alpha or dropout.
    """
    model: Any = policy.model
    if settings.rank == 0:
        return
    if hasattr(model, "get_base_model"):
        ranks = {config.r for config in model.peft_config.values()}
        if ranks != {settings.rank}:
            raise UserError(
                f"policy.lora.rank={settings.rank}, but the adapter in policy.path has rank "
                f"{', '.join(map(str, sorted(ranks)))}; set policy.lora.rank to that"
            )
        for config in model.peft_config.values():
            for name, kept in (("alpha", config.lora_alpha), ("dropout", config.lora_dropout)):
                if (asked := getattr(settings, name)) != kept:
                    warnings.warn(
                        f"policy.lora.{name}={asked:g} has no effect: the adapter in policy.path "
                        f"keeps its own, {kept:g}",
                        stacklevel=2,
                    )
        return
    from peft import LoraConfig, get_peft_model  # a second, and most policies have no adapter

    config = LoraConfig(
        r=settings.rank,
        lora_alpha=settings.alpha,  # type: ignore[arg-type]
        lora_dropout=settings.dropout,
        target_modules=policy.family.lora_targets(policy.backbone),
        task_type="CAUSAL_LM",
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        try:
            adapted: Any = get_peft_model(model, config)
        except (TypeError, ValueError) as error:
            raise UserError(
                f"policy.lora.rank={settings.rank}, but PEFT puts no adapter on a "
                f"{type(model).__name__} ({cause_line(error)}); use policy.lora.rank=0, or another "
                "model"
            ) from error
        policy.go_on_with(adapted.eval())
