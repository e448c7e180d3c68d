"""Encoded prompts as vLLM takes them, and what it sampled as rollouts."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from peft.tuners.lora import LoraLayer
from peft.utils import ModulesToSaveWrapper
from torch import Tensor

from rrgtrain.errors import UserError
from rrgtrain.policy.forward import VisionCache, vision_embeddings
from rrgtrain.policy.policy import Policy
from rrgtrain.policy.prompt import EncodedPrompt
from rrgtrain.rollout.engine import Rollout, SamplingRequest


@dataclass(frozen=True)
class VllmPrompt:
    """One prompt in vLLM's form.

    token_ids: one placeholder per image; expanded: the same with one per image token, which
    vLLM must arrive at; embeddings [tokens, H] of each image and grid int64 [images, 3], on the
    CPU; text: what the user's turn says after the images.
    The trainer's own vision tower makes the embeddings: no second image processor, whose pixels
    might differ, and no tower in the engine to keep up to date.
    """

    token_ids: list[int]
    expanded: list[int]
    embeddings: list[Tensor]
    grid: Tensor
    text: str = ""


@torch.no_grad()
def vllm_prompts(
    policy: Policy, prompts: Sequence[EncodedPrompt], cache: VisionCache | None = None
) -> list[VllmPrompt]:
    """The prompts for vLLM, with image embeddings by the policy's tower (evaluation mode).

    cache: see `hidden_states`.
    """
    was_training = policy.model.training
    policy.model.eval()
    try:
        everything = vision_embeddings(policy, prompts, cache)
    finally:
        policy.model.train(was_training)
    found, at = [], 0
    for prompt in prompts:
        ids = prompt.input_ids.tolist()
        grid = prompt.image_grid_thw
        if grid is None or everything is None:
            found.append(
                VllmPrompt(ids, ids, [], torch.zeros(0, 3, dtype=torch.int64), prompt.text)
            )
            continue
        merge = policy.image_processor.merge_size**2
        sizes = [int(size) for size in (grid.prod(1) // merge).tolist()]
        images = list(everything[at : at + sum(sizes)].cpu().split(sizes))
        at += sum(sizes)
        once = _one_placeholder(ids, policy.config.image_token_id, sizes)
        found.append(VllmPrompt(once, ids, images, grid, prompt.text))
    return found


def _one_placeholder(ids: list[int], image_id: int, sizes: list[int]) -> list[int]:
    kept: list[int] = []
    images, at = iter(sizes), 0
    while at < len(ids):
        kept.append(ids[at])
        at += next(images) if ids[at] == image_id else 1
    return kept


def sampling_arguments(policy: Policy, request: SamplingRequest, seed: int) -> dict[str, Any]:
    """Make the arguments of vLLM's SamplingParams for one member.

    Everything that would change the distribution stays off, so that the log-probs are those of
    softmax(logits / temperature), renormalised over the nucleus; greedy ones are at temperature 1.
    """
    return {
        "n": 1,
        # vLLM's seeds are int64
        "seed": seed % 2**63,
        "temperature": 0.0 if request.greedy else request.temperature,
        "top_p": 1.0 if request.greedy else request.top_p,
        "max_tokens": request.max_new_tokens,
        # only these end a report, whatever the served configuration lists
        "stop_token_ids": list(policy.eos_ids),
        "ignore_eos": True,
        "logprobs": 0,
        "detokenize": False,
        "skip_special_tokens": False,
    }


def rollout(
    policy: Policy,
    prompt: VllmPrompt,
    seen_prompt: Sequence[int] | None,
    ids: Sequence[int],
    logps: Sequence[float],
    max_new_tokens: int,
) -> Rollout:
    """Check what vLLM sampled: its prompt, one log-prob per token, the end.

    UserError where vLLM expanded the prompt otherwise than the trainer, or where a report ends
    otherwise than with the first end of turn or at `max_new_tokens`.
    """
    if seen_prompt is not None and list(seen_prompt) != prompt.expanded:
        raise UserError(
            f"vLLM read the prompt as {len(seen_prompt)} tokens, the trainer as "
            f"{len(prompt.expanded)}; serve the checkpoint (tokenizer and preprocessor included) "
            "that policy.path names"
        )
    if len(logps) != len(ids):
        raise UserError(
            f"vLLM returned {len(ids)} tokens and {len(logps)} log-probs; it needs "
            "logprobs_mode=processed_logprobs and logprobs switched on"
        )
    ends = [k for k, token in enumerate(ids) if token in policy.eos_ids]
    if (ends or [max_new_tokens - 1]) != [len(ids) - 1]:
        told = f"ends of turn at {ends}" if ends else "no end of turn"
        raise UserError(
            f"vLLM returned {len(ids)} tokens with {told}; wanted one end of turn, at the end, or "
            f"{max_new_tokens} tokens: give it a larger max_model_len (rollout.max_model_len, "
            "--max-model-len)"
        )
    return Rollout(
        torch.tensor(list(ids), dtype=torch.int64),
        torch.tensor(list(logps), dtype=torch.float32),
        bool(ends),
    )


@torch.no_grad()
def checkpoint_tensors(policy: Policy) -> dict[str, Tensor]:
    """The policy's parameters by their names in a checkpoint, its adapter merged into copies.

    The parameters themselves are only read: in bf16 a merge that is undone leaves other weights
    behind. An adapted layer is a new tensor, W + scale * B @ A in fp32 rounded once to W's dtype;
    the others are the parameters' own storage. A tied head is left out, as in the checkpoint.
    Raises UserError for an adapter that replaces whole modules.
    """
    backbone: Any = policy.backbone
    merged: dict[str, Tensor] = {}
    for name, module in backbone.named_modules():
        if isinstance(module, ModulesToSaveWrapper):
            raise UserError(
                f"the adapter keeps a whole copy of {name} (modules_to_save), which cannot be "
                "merged for vLLM; use rollout.engine=transformers"
            )
        if isinstance(module, LoraLayer):
            merged.update({f"{name}.{key}": value for key, value in _merged(module).items()})
    tied = bool(policy.text_config.tie_word_embeddings)
    found = {}
    for name, value in _state(backbone).items():
        plain = name.replace(".base_layer.", ".")
        if ".lora_" not in name and not (tied and name == "lm_head.weight"):
            found[plain] = merged.get(plain, value)
    return found


def _merged(layer: LoraLayer) -> dict[str, Tensor]:
    """The state of the layer that an adapted one stands for, which stays as it is."""
    alone: Any = copy.deepcopy(layer)
    dtype = alone.get_base_layer().weight.dtype
    alone.to(torch.promote_types(dtype, torch.float32)).merge()
    return {name: value.to(dtype) for name, value in _state(alone.get_base_layer()).items()}


def _state(module: torch.nn.Module) -> dict[str, Tensor]:
    """The state dict of weights that `sharding.summon_full` holds.

    The hooks of `state_dict` itself would shard them again.
    """
    found: dict[str, Tensor] = dict(module.named_parameters(remove_duplicate=False))
    for place, part in module.named_modules():
        for name, buffer in part.named_buffers(recurse=False):
            if name not in part._non_persistent_buffers_set:
                found[f"{place}.{name}".lstrip(".")] = buffer
    return {name: value.detach() for name, value in found.items()}
