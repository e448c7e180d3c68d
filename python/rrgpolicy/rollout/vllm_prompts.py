"""Encoded prompts as vLLM takes them, and what it sampled as rollouts."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from rrgclinical.common.errors import UserError
from rrgpolicy.model.forward import vision_embeddings
from rrgpolicy.model.policy import Policy
from rrgpolicy.model.prompt import EncodedPrompt, marked_ids
from rrgpolicy.rollout.engine import Rollout, SamplingRequest

# The lowest that vLLM takes: e^-100 of its probability is left to an id that is never sampled.
NEVER_BIAS = -100.0
_NO_GRID = torch.zeros(0, 3, dtype=torch.int64)


@dataclass(frozen=True)
class VllmPrompt:
    """One prompt in vLLM's form.

    encoded: the trainer's, with a placeholder per image token, which vLLM must arrive at;
    token_ids: one placeholder per image; embeddings [tokens, H] of each image and grid int64
    [images, 3], on the CPU; pictures: of each image, RGB.
    Of a family that is `embedded` the trainer's own vision tower makes the embeddings: no second
    image processor, whose pixels might differ, and no tower in the engine to keep up to date. Of
    others there are pictures, which vLLM prepares by the checkpoint's own processor.
    """

    encoded: EncodedPrompt
    token_ids: list[int]
    embeddings: Sequence[Tensor] = ()
    grid: Tensor = _NO_GRID
    pictures: tuple[Image.Image, ...] = ()


def shows_pictures(policy: Policy) -> bool:
    """Tell if vLLM is given pictures, and so the weights of the tower."""
    return policy.sees_images and not policy.family.embedded


@torch.no_grad()
def vllm_prompts(policy: Policy, prompts: Sequence[EncodedPrompt]) -> list[VllmPrompt]:
    """The prompts for vLLM, with pictures, or image embeddings by the policy's tower.

    The tower runs in evaluation mode. Where vLLM is given pictures,
    raises ValueError for a prompt with images that has none, and UserError for a prompt of several
    that change each other's tokens.
    """
    if shows_pictures(policy):
        return [_with_pictures(policy, prompt) for prompt in prompts]
    was_training = policy.model.training
    policy.model.eval()
    try:
        everything = vision_embeddings(policy, prompts)
    finally:
        policy.model.train(was_training)
    found, at = [], 0
    for prompt in prompts:
        ids = prompt.input_ids.tolist()
        grid = prompt.image_grid_thw
        if grid is None or everything is None:
            found.append(VllmPrompt(prompt, ids))
            continue
        merge = policy.image_processor.merge_size**2
        sizes = [int(size) for size in (grid.prod(1) // merge).tolist()]
        images = everything[at : at + sum(sizes)].cpu().split(sizes)
        at += sum(sizes)
        once = _one_placeholder(ids, policy.config.image_token_id, sizes)
        found.append(VllmPrompt(prompt, once, images, grid))
    return found


def _with_pictures(policy: Policy, prompt: EncodedPrompt) -> VllmPrompt:
    if prompt.images and not prompt.pictures:
        raise ValueError(
            f"the prompt of {prompt.key} has images and no pictures for vLLM: set keeps_pictures "
            "of the policy before its prompts are encoded"
        )
    if policy.family.images.together and len(prompt.pictures) > 1:
        raise UserError(
            f"the {len(prompt.pictures)} images of {prompt.key} change each other's tokens, and "
            "vLLM prepares each alone; have one image a study, or use rollout.engine=transformers"
        )
    return VllmPrompt(prompt, marked_ids(policy, prompt), pictures=prompt.pictures)


def _one_placeholder(ids: list[int], image_id: int, sizes: list[int]) -> list[int]:
    kept: list[int] = []
    images, at = iter(sizes), 0
    while at < len(ids):
        kept.append(ids[at])
        at += next(images) if ids[at] == image_id else 1
    return kept


def sampling_arguments(policy: Policy, request: SamplingRequest, seed: int) -> dict[str, Any]:
    """Make the arguments of vLLM's SamplingParams for one member.

    Everything that could change the distribution is said, so that no default of a server or of a
    checkpoint's generation config acts: the log-probs are those of softmax(logits / temperature)
    without `Policy.never_sampled`, renormalised over the nucleus; greedy ones are at temperature 1.
    """
    return {
        "n": 1,
        # vLLM's seeds are int64
        "seed": seed % 2**63,
        "temperature": 0.0 if request.greedy else request.temperature,
        "top_p": 1.0 if request.greedy else request.top_p,
        "top_k": 0,
        "min_p": 0.0,
        "repetition_penalty": 1.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "logit_bias": dict.fromkeys(policy.never_sampled, NEVER_BIAS),
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
    request: SamplingRequest,
    b: int,
    seen_prompt: Sequence[int] | None,
    ids: Sequence[int],
    logps: Sequence[float],
) -> Rollout:
    """Check what vLLM sampled of prompt `b`: its tokens, one log-prob per token, the end.

    UserError where vLLM expanded the prompt otherwise than the trainer, where a report ends
    otherwise than with the first end of turn or at `max_new_tokens`, or holds an id of
    `Policy.never_sampled`.
    """
    own, longest = request.prompts[b].input_ids.tolist(), request.max_new_tokens
    if seen_prompt is not None and list(seen_prompt) != own:
        pairs, both = zip(seen_prompt, own, strict=False), min(len(seen_prompt), len(own))
        at = next((k for k, (a, b) in enumerate(pairs) if a != b), both)
        raise UserError(
            f"vLLM read the prompt as {len(seen_prompt)} tokens, the trainer as "
            f"{len(own)}, and they part at token {at}; serve the checkpoint (tokenizer "
            "and preprocessor included) that policy.path names, or use rollout.engine=transformers"
        )
    if len(logps) != len(ids):
        raise UserError(
            f"vLLM returned {len(ids)} tokens and {len(logps)} log-probs; it needs "
            "logprobs_mode=processed_logprobs and logprobs switched on"
        )
    if shown := set(ids) & set(policy.never_sampled):
        named = policy.tokenizer.convert_ids_to_tokens(min(shown))
        raise UserError(
            f"vLLM sampled {named}, which the trainer forbids by logit_bias; use vLLM as tested"
        )
    ends = [k for k, token in enumerate(ids) if token in policy.eos_ids]
    if (ends or [longest - 1]) != [len(ids) - 1]:
        told = f"ends of turn at {ends}" if ends else "no end of turn"
        raise UserError(
            f"vLLM returned {len(ids)} tokens with {told}; wanted one end of turn, at the end, or "
            f"{longest} tokens: give it a larger max_model_len (rollout.max_model_len, "
            "--max-model-len)"
        )
    return Rollout(
        torch.tensor(list(ids), dtype=torch.int64),
        torch.tensor(list(logps), dtype=torch.float32),
        bool(ends),
    )


def turn(prompt: VllmPrompt) -> dict[str, Any]:
    """Make the user's turn for a server, with the values of the chat template.

    The server renders and encodes it with the checkpoint's own template; the
    token ids that it reports are compared with the trainer's."""
    encoded = prompt.encoded
    content: list[dict[str, Any]] = [
        {
            "type": "image_embeds",
            "image_embeds": {"image_embeds": _base64(image), "image_grid_thw": _base64(grid)},
        }
        for image, grid in zip(prompt.embeddings, prompt.grid, strict=True)
    ]
    content += [
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{_png(picture)}"}}
        for picture in prompt.pictures
    ]
    user = {"role": "user", "content": [*content, {"type": "text", "text": encoded.text}]}
    kwargs = dict(encoded.chat_template_kwargs)
    return {"messages": [user], **({"chat_template_kwargs": kwargs} if kwargs else {})}


def _png(picture: Image.Image) -> str:
    buffer = io.BytesIO()
    picture.save(buffer, "png", compress_level=1)
    return base64.b64encode(buffer.getvalue()).decode()


def _base64(tensor: Tensor) -> str:
    buffer = io.BytesIO()
    # a copy: saving a view would write its whole storage
    torch.save(tensor.clone(), buffer)
    return base64.b64encode(buffer.getvalue()).decode()
