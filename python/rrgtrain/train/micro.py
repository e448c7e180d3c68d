"""Micro-batches, and what a rank computes while it waits for one that has more of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TypeVar

from rrgtrain.algorithms.group import Group
from rrgtrain.policy.prompt import EncodedPrompt

T = TypeVar("T")


def within_budget(items: Sequence[T], sizes: Sequence[int], budget: int | None) -> list[list[T]]:
    """Consecutive items whose sizes add up to at most the budget; a larger item stands alone."""
    chunks: list[list[T]] = []
    used = 0
    for item, size in zip(items, sizes, strict=True):
        if not chunks or (budget is not None and used + size > budget):
            chunks.append([])
            used = 0
        chunks[-1].append(item)
        used += size
    return chunks


def idle_prompt(prompt: EncodedPrompt) -> EncodedPrompt:
    """The first token of the prompt, without images."""
    return replace(
        prompt,
        input_ids=prompt.input_ids[:1],
        positions=prompt.positions[:, :1],
        mm_token_type_ids=prompt.mm_token_type_ids[:1] * 0,
        pixel_values=None,
        image_grid_thw=None,
    )


def idle_chunk(groups: Sequence[Group]) -> tuple[list[Group], list[int]]:
    """A micro-batch of one token of a prompt and one of a member, of which no row counts."""
    smallest = [
        replace(
            group,
            prompt=idle_prompt(group.prompt),
            members=(replace(group.members[0], ids=group.members[0].ids[:1]),),
        )
        for group in groups[:1]
    ]
    return smallest, []


def with_images(prompts: Iterable[EncodedPrompt]) -> bool:
    """Whether the forward of the prompts runs the vision tower."""
    return any(prompt.pixel_values is not None for prompt in prompts)
