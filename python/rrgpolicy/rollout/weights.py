"""Read the weights that a sampler is sent, by their names in a checkpoint."""

from __future__ import annotations

import copy
import warnings
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
from rrgpolicy.vllm_worker import Digest, adapter_bytes

if TYPE_CHECKING:
    from peft.tuners.lora import LoraLayer

# vLLM's own `MaxLoRARanks` (vllm/config/lora.py of 0.32), but for 1
LORA_ROOMS = (8, 16, 32, 64, 128, 256, 320, 512)

# of peft's model around the backbone
_WRAPPED = "base_model.model."


@dataclass
class WeightSender:
    """Send a sampler all it needs at first, then what trains.

    adapter: a LoRA goes as itself; else it is merged into copies of what it adapts. The vision
    tower is not sent where the trainer embeds the images.
    digest: of all that the sampler then holds. A tensor is counted in as it is sent, and what is
    not sent again counts as it was.
    """

    adapter: bool = False
    digest: Digest = field(default_factory=Digest)
    whole: bool = True
    """The next `base` sends everything: a sampler that has just started."""
    everything: bool = False
    """Every push brings all that the sampler holds."""
    _of: Any = None

    def sends_base(self, policy: Policy) -> bool:
        """Tell if the next push brings anything but the adapter."""
        self.whole |= self._of is None or self._of() is not policy.model
        changed = _trained(policy, adapters=not self.adapter)
        return self.whole or not changed.isdisjoint(_served(policy))

    @torch.no_grad()
    def base(self, policy: Policy) -> Iterator[tuple[str, Tensor]]:
        """Yield names and tensors in `policy.dtype`, gathering one decoder layer after the other.

        All ranks go through it together and to its end. With fused layers in the sampler a layer
        is sent whole or not at all, so the neighbours of a trained projection go with it.
        """
        self.whole |= self._of is None or self._of() is not policy.model
        self._of = weakref.ref(policy.model)
        if self.whole:
            self.digest = Digest()
        served = _served(policy)
        parts = {_fused(name) for name in _trained(policy, adapters=not self.adapter)}
        trained = {name for name in served if _fused(name) in parts}
        self.everything = not self.adapter and trained == served
        wanted = served if self.whole else trained
        waiting: set[str] = set()
        for names in sharding.gather_in_turn(policy) if wanted else ():
            own = waiting | {name.removeprefix(_WRAPPED) for name in names}
            adapted = {name.partition(".lora_")[0] for name in own if ".lora_" in name}
            # a frozen layer is whole from the first turn on, its adapter in a later one
            waiting = {
                name
                for name in own
                if not self.adapter
                and ".base_layer." in name
                and name.partition(".base_layer.")[0] not in adapted
            }
            tensors = _tensors(policy, own - waiting, merged=not self.adapter)
            sent = {name: tensor for name, tensor in tensors.items() if name in wanted}
            for name, tensor in named_as_loaded(policy, sent).items():
                self.digest.add(name, tensor)
                # vLLM may keep it until a fused layer is complete, past its turn
                yield name, tensor.clone() if sharding.is_sharded(policy) else tensor
        self.whole = False

    @torch.no_grad()
    def lora(self, policy: Policy) -> dict[str, Tensor]:
        """Return the adapter by its names in a file of peft's, in `policy.dtype`; all ranks."""
        # the reference's adapter may lie beside it
        found, own = {}, f".{policy.model.active_adapter}."
        for names in sharding.gather_in_turn(policy):
            parameters = dict(policy.model.named_parameters())
            for name in sorted(n for n in names if ".lora_" in n and own in n):
                # a copy, since what was gathered goes with its turn
                value = parameters[name].detach().to(policy.dtype, copy=True)
                found[name.replace(own, ".")] = value
        for name, tensor in found.items():
            self.digest.add(name, tensor)
        self.digest.add("adapter_config", adapter_bytes(adapter_config(policy)))
        return found


def checkpoint_tensors(policy: Policy) -> dict[str, Tensor]:
    """The policy's parameters by their names in the model, its adapter merged into copies.

    The parameters themselves are only read: in bf16 a merge that is undone leaves other weights
    behind. An adapted layer is a new tensor, W + scale * B @ A in fp32 rounded once to W's dtype;
    the others are the parameters' own storage. A tied head is left out, as in the checkpoint.
    Raises UserError for an adapter that replaces whole modules.
    """
    own = _state(policy.backbone).keys() - _tied(policy)
    with torch.no_grad():
        return _tensors(policy, own, merged=True)


def named_as_loaded(policy: Policy, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Give tensors the names and parts that the files they came from have.

    vLLM reads those, and of some families no others.
    """
    renamed: dict[str, Tensor] = revert_weight_conversion(policy.backbone, tensors)
    return renamed


def require_pushable(policy: Policy) -> None:
    """Raise UserError for an adapter that replaces whole modules."""
    for name, module in policy.backbone.named_modules():
        if is_whole_copy(module):
            raise UserError(
                f"the adapter keeps a whole copy of {name} (modules_to_save), which cannot be "
                "merged for vLLM; use rollout.engine=transformers"
            )


def adapter_config(policy: Policy) -> dict[str, Any]:
    """The adapter's configuration as peft writes it; empty for a policy without one."""
    configs = getattr(policy.model, "peft_config", {})
    if not configs:
        return {}
    told: dict[str, Any] = configs["default"].to_dict()
    # vLLM refuses those that change the base (PiSSA and others); it is sent the changed one
    told["init_lora_weights"] = True
    return {key: sorted(v) if isinstance(v, set) else v for key, v in told.items()}


def takes_adapter(policy: Policy) -> bool:
    """Tell if vLLM takes the policy's adapter as it is; warns where not."""
    config = adapter_config(policy)
    if not config:
        return False
    tower = _tower(policy)
    adapted = [name for name in _state(policy.backbone) if ".lora_" in name]
    reasons = [
        name
        for name, has in (
            ("DoRA", config.get("use_dora")),
            ("biases", config.get("lora_bias") or config.get("bias") != "none"),
            ("whole modules", config.get("modules_to_save")),
            ("a part in the vision tower", any(n.startswith(tower) for n in adapted)),
            # in other places vLLM wants other names, or ignores it
            (
                "a part outside the decoder's layers",
                any(".layers." not in n and not n.startswith(tower) for n in adapted),
            ),
        )
        if has
    ]
    if reasons:
        named = " and ".join(reasons)
        warnings.warn(f"vLLM takes no adapter with {named}: it is merged into copies", stacklevel=2)
    return not reasons


def lora_room(policy: Policy) -> int:
    """The smallest rank that vLLM makes room for and the adapter fits in."""
    config = adapter_config(policy)
    rank = max(config["r"], *(config.get("rank_pattern") or {}).values(), 1)
    room = next((room for room in LORA_ROOMS if rank <= room), None)
    if room is None:
        raise UserError(
            f"vLLM takes adapters of rank {LORA_ROOMS[-1]} at most, and this one has {rank}; use "
            "rollout.lora=merged"
        )
    return room


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
    return {"lm_head.weight"} if policy.ties_head else set()


def _trained(policy: Policy, *, adapters: bool) -> set[str]:
    """Names of what changes between two pushes; with `adapters`, of the layers they adapt too."""
    found = set()
    for name, parameter in policy.backbone.named_parameters(remove_duplicate=False):
        if not parameter.requires_grad:
            continue
        if ".lora_" not in name:
            found.add(name.replace(".base_layer.", "."))
        elif adapters:
            found.add(name.partition(".lora_")[0] + ".weight")
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


def _tensors(policy: Policy, own: Collection[str], *, merged: bool) -> dict[str, Tensor]:
    """The parameters and buffers `own` of the backbone by their names in a checkpoint."""
    backbone: Any = policy.backbone
    adapted: dict[str, Tensor] = {}
    require_pushable(policy)
    for name, module in backbone.named_modules():
        if merged and is_lora(module) and f"{name}.base_layer.weight" in own:
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
