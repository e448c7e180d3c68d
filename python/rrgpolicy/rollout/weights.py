"""Read the weights that a sampler is sent, by their names in a checkpoint."""

from __future__ import annotations

import copy
import weakref
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from transformers.core_model_loading import revert_weight_conversion

from rrgclinical.common.errors import UserError
from rrgpolicy.model.adapters import is_lora, is_whole_copy
from rrgpolicy.model.policy import Policy
from rrgpolicy.ranks import sharding
from rrgpolicy.rollout.vllm_prompts import shows_pictures
from rrgpolicy.vllm_worker import Digest

if TYPE_CHECKING:
    from peft.tuners.lora import LoraLayer

# of peft's model around the backbone
_WRAPPED = "base_model.model."


@dataclass
class WeightSender:
    """Send a sampler all it needs at first, then what trains.

    A LoRA is merged into copies of what it adapts. The vision tower is not sent where the trainer
    embeds the images.
    digest: of all that the sampler then holds. A tensor is counted in as it is sent, and what is
    not sent again counts as it was.
    """

    digest: Digest = field(default_factory=Digest)
    whole: bool = True
    """The next push sends everything: a sampler that has just started."""
    everything: bool = False
    """Every push brings all that the sampler holds."""
    _of: Any = None

    def is_whole(self, policy: Policy) -> bool:
        """Tell if the next push sends everything, the first of a sampler or model."""
        self.whole |= self._of is None or self._of() is not policy.model
        return self.whole

    @torch.no_grad()
    def tensors(self, policy: Policy) -> Iterator[tuple[str, Tensor]]:
        """Yield names and tensors in `policy.dtype`, gathering one decoder layer after the other.

        All ranks go through it together and to its end. With fused layers in the sampler a layer
        is sent whole or not at all, so the neighbours of a trained projection go with it.
        """
        if self.is_whole(policy):
            self.digest = Digest()
        self._of = weakref.ref(policy.model)
        served = _served(policy)
        parts = {_fused(name) for name in _trained(policy)}
        trained = {name for name in served if _fused(name) in parts}
        self.everything = trained == served
        wanted = served if self.whole else trained
        waiting: set[str] = set()
        for names in sharding.gather_in_turn(policy) if wanted else ():
            own = waiting | {name.removeprefix(_WRAPPED) for name in names}
            adapted = {name.partition(".lora_")[0] for name in own if ".lora_" in name}
            # a frozen layer is whole from the first turn on, its adapter in a later one
            waiting = {
                name
                for name in own
                if ".base_layer." in name and name.partition(".base_layer.")[0] not in adapted
            }
            tensors = _tensors(policy, own - waiting)
            sent = {name: tensor for name, tensor in tensors.items() if name in wanted}
            for name, tensor in named_as_loaded(policy, sent).items():
                self.digest.add(name, tensor)
                # vLLM may keep it until a fused layer is complete, past its turn
                yield name, tensor.clone() if sharding.is_sharded(policy) else tensor
        self.whole = False


def checkpoint_tensors(policy: Policy) -> dict[str, Tensor]:
    """The policy's parameters by their names in the model, its adapter merged into copies.

    The parameters themselves are only read: in bf16 a merge that is undone leaves other weights
    behind. An adapted layer is a new tensor, W + scale * B @ A in fp32 rounded once to W's dtype;
    the others are the parameters' own storage. A tied head is left out, as in the checkpoint.
    Raises UserError as `require_pushable`.
    """
    own = _state(policy.backbone).keys() - _tied(policy)
    with torch.no_grad():
        return _tensors(policy, own)


def named_as_loaded(policy: Policy, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Give tensors the names and parts that the files they came from have.

    vLLM reads those, and of some families no others.
    """
    renamed: dict[str, Tensor] = revert_weight_conversion(policy.backbone, tensors)
    return renamed


def require_pushable(policy: Policy) -> None:
    """Raise UserError for an adapter that merging would lose, or spread to the head."""
    embedding = policy.backbone.get_input_embeddings()
    for name, module in policy.backbone.named_modules():
        how = "keeps a copy of" if is_whole_copy(module) else ""
        if module is embedding and is_lora(module) and policy.ties_head:
            how = "is on the embedding alone, and not on the head, which is the same weight:"
        if how:
            raise UserError(
                f"the adapter {how} {name}, which cannot be merged for vLLM; use "
                "rollout.engine=transformers"
            )


def _served(policy: Policy) -> set[str]:
    """Names of all that the sampler computes with."""
    tower = () if shows_pictures(policy) else _tower(policy)
    return {
        name.replace(".base_layer.", ".")
        for name in _state(policy.backbone).keys() - _tied(policy)
        if ".lora_" not in name and not name.startswith(tower)
    }


def _tied(policy: Policy) -> set[str]:
    """The name of a head that is the embedding, which no checkpoint holds a second time."""
    head = policy.backbone.get_output_embeddings() if policy.ties_head else None
    return {f"{name}.weight" for name, module in policy.backbone.named_modules() if module is head}


def _trained(policy: Policy) -> set[str]:
    """Names of what changes between two pushes, layers that an adapter changes among them."""
    found = set()
    for name, parameter in policy.backbone.named_parameters(remove_duplicate=False):
        if parameter.requires_grad:
            layer, adapted, _ = name.partition(".lora_")
            found.add(f"{layer}.weight" if adapted else name.replace(".base_layer.", "."))
    return found


def _fused(name: str) -> str:
    """The part of the model that a sampler may hold as one tensor: attention, MLP, or a layer."""
    return name.rsplit(".", 2)[0]


def _tower(policy: Policy) -> tuple[str, ...]:
    """Begin the names of vision tower and projector: the modules with nothing else inside."""
    eyes = [name for name, _ in policy.eyes()]
    others = {name for name, _ in policy.backbone.named_parameters()} - {*eyes}
    shared = {above for name in others for above in _above(name)}
    return tuple({next(a for a in _above(name) if a not in shared) for name in eyes})


def _above(name: str) -> list[str]:
    """The modules around a parameter, the outermost first, each with its dot; then itself."""
    parts = name.split(".")
    return [*(".".join(parts[:k]) + "." for k in range(1, len(parts))), name]


def _tensors(policy: Policy, own: Collection[str]) -> dict[str, Tensor]:
    """The parameters and buffers `own` of the backbone by their names in a checkpoint."""
    backbone: Any = policy.backbone
    adapted: dict[str, Tensor] = {}
    require_pushable(policy)
    for name, module in backbone.named_modules():
        if is_lora(module) and f"{name}.base_layer.weight" in own:
            adapted.update({f"{name}.{key}": value for key, value in _merged(module).items()})
    found = {}
    for name, value in _state(backbone).items():
        plain = name.replace(".base_layer.", ".")
        if name in own and ".lora_" not in name:
            found[plain] = adapted.get(plain, value)
    return found


def _merged(layer: LoraLayer) -> dict[str, Tensor]:
    """The state of the layer that an adapted one stands for, which stays as it is."""
    alone: Any = copy.deepcopy(layer)
    dtype = alone.get_base_layer().weight.dtype
    alone.to(torch.promote_types(dtype, torch.float32)).merge()
    return {name: value.to(dtype) for name, value in _state(alone.get_base_layer()).items()}


def _state(module: torch.nn.Module) -> dict[str, Tensor]:
    """The state dict of weights that are gathered.

    The hooks of `state_dict` itself would shard them again.
    """
    found: dict[str, Tensor] = dict(module.named_parameters(remove_duplicate=False))
    for place, part in module.named_modules():
        for name, buffer in part.named_buffers(recurse=False):
            if name not in part._non_persistent_buffers_set:
                found[f"{place}.{name}".lstrip(".")] = buffer
    return {name: value.detach() for name, value in found.items()}
