"""Group sampling with the trainer's own model: one prefill per prompt, one decode loop for all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from rrgtrain.policy.attention import require_attention
from rrgtrain.policy.forward import VisionCache, embed, head, image_index, vision_embeddings
from rrgtrain.policy.policy import Policy
from rrgtrain.policy.prompt import EncodedPrompt
from rrgtrain.rollout.cache import GroupCache
from rrgtrain.rollout.sampler import likeliest, sample, uniforms

# Finished rows are dropped once fewer than this share is left: dropping copies the cache.
COMPACT_BELOW = 0.75

# logits [n, V], rows [n] among all members, step -> ids [n], log-probs [n]
Draw = Callable[[Tensor, Tensor, int], tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class Rollout:
    """ids int64 [T], the end-of-turn token included if it was sampled; logps fp32 [T] of those
    ids under the distribution they were drawn from; finished: the end of turn was sampled. Both
    tensors are on the CPU."""

    ids: Tensor
    logps: Tensor
    finished: bool


@torch.no_grad()
def generate(
    policy: Policy,
    prompts: Sequence[EncodedPrompt],
    *,
    group: int,
    temperature: float = 1.0,
    top_p: float = 1.0,
    max_new_tokens: int,
    seeds: Sequence[Sequence[int]],
    greedy: bool = False,
    vision_cache: VisionCache | None = None,
) -> list[list[Rollout]]:
    """`group` reports for each prompt.

    Args:
        policy: runs in evaluation mode; its mode is restored.
        prompts: B encoded prompts; each is prefilled once.
        group: members per prompt.
        temperature: positive; divides the logits.
        top_p: nucleus sampling below 1; `Rollout.logps` are then renormalised over the nucleus.
        max_new_tokens: a report that long without an end of turn is left unfinished.
        seeds: [B][group] non-negative ints below 2**128. Token t of a member depends on its own
            seed and t alone, so a report is the same in any batch, up to floating point.
        greedy: the likeliest token instead of a draw; seeds are not used.
        vision_cache: see `hidden_states`.

    Raises:
        ValueError: sizes that do not fit, a temperature or top_p out of range.
    """
    check_request(prompts, group, temperature, top_p, max_new_tokens, seeds)
    require_attention(policy.text_config)
    if not prompts:
        return []
    was_training = policy.model.training
    policy.model.eval()
    try:
        loop = _Loop(policy, prompts, group, max_new_tokens, vision_cache)
        if greedy:
            return loop.run(lambda logits, _rows, _t: likeliest(logits, temperature=temperature))
        flat = [seed for member_seeds in seeds for seed in member_seeds]
        draws = uniforms(flat, max_new_tokens).to(policy.device)
        return loop.run(
            lambda logits, rows, t: sample(
                logits, draws[rows, t], temperature=temperature, top_p=top_p
            )
        )
    finally:
        policy.model.train(was_training)


class _Loop:
    """Decode state: `rows` [n] are the members still in the batch, among B * group."""

    def __init__(
        self,
        policy: Policy,
        prompts: Sequence[EncodedPrompt],
        group: int,
        max_new_tokens: int,
        vision_cache: VisionCache | None,
    ) -> None:
        device = policy.device
        self.policy, self.group, self.max_new_tokens = policy, group, max_new_tokens
        self.count = len(prompts)
        lengths = torch.tensor([len(p.input_ids) for p in prompts])
        longest = int(lengths.max())
        ids = torch.full((self.count, longest), policy.pad_id)
        axes = len(prompts[0].positions)
        positions = torch.zeros(axes, self.count, longest, dtype=torch.int64)
        for b, prompt in enumerate(prompts):
            ids[b, : lengths[b]] = prompt.input_ids
            positions[:, b, : lengths[b]] = prompt.positions
        places = image_index(prompts, [b * longest for b in range(self.count)])
        embeddings = embed(
            policy, ids.to(device), places, vision_embeddings(policy, prompts, vision_cache)
        )
        padding = torch.arange(longest) >= lengths[:, None]
        self.cache = GroupCache(padding.to(device), group)
        # Padding is on the right, so plain causal attention never lets a prompt see it.
        states = policy.language_model(
            inputs_embeds=embeddings,
            position_ids=positions.squeeze(0).to(device),
            attention_mask={"full_attention": None},
            past_key_values=self.cache,
            use_cache=True,
        ).last_hidden_state
        last = states[torch.arange(self.count, device=device), lengths.to(device) - 1]
        self.hidden = last.repeat_interleave(group, 0)
        after = torch.stack([p.positions.max() + 1 for p in prompts])
        self.next_position = after.to(device).repeat_interleave(group)
        self.rows = torch.arange(self.count * group, device=device)

    def run(self, draw: Draw) -> list[list[Rollout]]:
        device = self.policy.device
        total = self.count * self.group
        ids = torch.full((total, self.max_new_tokens), self.policy.pad_id, device=device)
        logps = torch.zeros(total, self.max_new_tokens, device=device)
        ends = torch.tensor(self.policy.eos_ids, device=device)
        live = torch.ones(total, dtype=torch.bool, device=device)
        # In fp32 even for a bf16 model: rounded logits would not give the log-probs of training.
        wide = torch.promote_types(self.hidden.dtype, torch.float32)
        weight, bias = head(self.policy)
        weight, bias = weight.to(wide), None if bias is None else bias.to(wide)
        for t in range(self.max_new_tokens):
            logits = torch.nn.functional.linear(self.hidden.to(wide), weight, bias)
            token, logp = draw(logits, self.rows, t)
            # Rows that have finished but not left the batch yet write behind their end.
            ids[self.rows, t], logps[self.rows, t] = token, logp
            live = live & ~torch.isin(token, ends)
            left = int(live.sum())
            if left == 0 or t + 1 == self.max_new_tokens:
                break
            if left < COMPACT_BELOW * len(self.rows):
                kept = live.nonzero().squeeze(1)
                self.cache.select(kept)
                self.rows, self.next_position = self.rows[kept], self.next_position[kept]
                token, live = token[kept], live[kept]
            self._step(token, t)
        return self._collect(ids.cpu(), logps.cpu(), ends.cpu())

    def _step(self, token: Tensor, t: int) -> None:
        model = self.policy.language_model
        self.hidden = model(
            inputs_embeds=model.embed_tokens(token)[:, None],
            # text counts up on all axes alike
            position_ids=(self.next_position + t)[:, None],
            attention_mask={"full_attention": None},
            past_key_values=self.cache,
            use_cache=True,
            attend=self.cache.attend,
        ).last_hidden_state[:, 0]
        self.cache.advance()

    def _collect(self, ids: Tensor, logps: Tensor, ends: Tensor) -> list[list[Rollout]]:
        is_end = torch.isin(ids, ends)
        finished = is_end.any(1)
        lengths = torch.where(finished, is_end.int().argmax(1) + 1, self.max_new_tokens)
        rollouts = [
            Rollout(ids[r, :n].clone(), logps[r, :n].clone(), done)
            for r, (n, done) in enumerate(zip(lengths.tolist(), finished.tolist(), strict=True))
        ]
        return [rollouts[b * self.group : (b + 1) * self.group] for b in range(self.count)]


def check_request(
    prompts: Sequence[EncodedPrompt],
    group: int,
    temperature: float,
    top_p: float,
    max_new_tokens: int,
    seeds: Sequence[Sequence[int]],
) -> None:
    """The ValueErrors of `generate`."""
    if group < 1 or max_new_tokens < 1:
        raise ValueError(f"group={group}, max_new_tokens={max_new_tokens}: give at least 1 of each")
    if not temperature > 0:
        raise ValueError(f"temperature={temperature}: give a positive number, or greedy=True")
    if not 0 < top_p <= 1:
        raise ValueError(f"top_p={top_p}: give a number above 0 and at most 1")
    sizes = sorted({len(member_seeds) for member_seeds in seeds})
    if len(seeds) != len(prompts) or sizes not in ([], [group]):
        raise ValueError(
            f"seeds for {len(seeds)} prompts with {sizes} members: give {len(prompts)} lists of "
            f"{group}"
        )
