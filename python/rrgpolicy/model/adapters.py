"""Tell what of a model is peft's, without the second that importing peft takes.

A model that peft has made something of is only there once peft is loaded.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TypeGuard

from torch import Tensor, nn

if TYPE_CHECKING:
    from peft import PeftModel
    from peft.tuners.lora import LoraLayer


def is_adapted(model: nn.Module) -> TypeGuard[PeftModel]:
    """Return True for a model with an adapter on it."""
    return isinstance(model, _loaded("peft", "PeftModel"))


def is_lora(module: nn.Module) -> TypeGuard[LoraLayer]:
    """Return True for a layer whose weights LoRA adds to."""
    return isinstance(module, _loaded("peft.tuners.lora", "LoraLayer"))


def low_rank(module: nn.Module) -> tuple[Any, ...]:
    """Return A, B and scale of a plain LoRA in use, () of others."""
    of: Any = module
    if type(module) is not _loaded("peft.tuners.lora", "Linear") or of.disable_adapters:
        return ()
    match [name for name in of.active_adapters if name in of.lora_A]:
        case [name] if not of.merged and name not in of.lora_variant:
            return of.lora_A[name], of.lora_B[name], of.scaling[name]
    return ()


def is_whole_copy(module: nn.Module) -> bool:
    """Return True for a module whose copy, or rows, an adapter keeps."""
    return isinstance(module, _loaded("peft.utils", "AuxiliaryTrainingWrapper"))


def names_of_experts(model: nn.Module, names: Iterable[str]) -> set[str]:
    """Return which names of modules PEFT takes for those of experts.

    As a target it puts one on the parameters that hold all experts, and on no module of the name:
    an expert that all tokens share, say, or a dense layer.
    """
    if not any(name.endswith(".gate_up_proj") for name, _ in model.named_parameters()):
        return set()
    from peft import LoraConfig
    from peft.utils import transformers_weight_conversion as conversion

    def is_taken(name: str) -> bool:
        config: Any = LoraConfig(target_modules=[name])
        try:
            conversion.convert_peft_config_for_transformers(config, model, None)
        except ValueError:  # a part of what is fused
            return True
        return bool(config.target_modules != {name})

    return {*filter(is_taken, names)}


def adapter_state(model: PeftModel, state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return what of the model's state dict goes into an adapter's file."""
    from peft import get_peft_model_state_dict

    own: dict[str, Tensor] = get_peft_model_state_dict(model, state)
    return own


def _loaded(module: str, name: str) -> type | tuple[()]:
    return getattr(sys.modules.get(module), name, ())
