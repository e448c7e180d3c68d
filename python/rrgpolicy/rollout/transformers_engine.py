"""Sample groups with the trainer's own model: one prefill per prompt, one decode loop."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from rrgpolicy.model.attention import require_attention
from rrgpolicy.model.forward import embed, image_index, vision_embeddings
from rrgpolicy.model.policy import Policy
from rrgpolicy.model.prompt import EncodedPrompt
from rrgpolicy.rollout.any_family import FamilyDecoder
from rrgpolicy.rollout.cache import GroupCache
from rrgpolicy.rollout.engine import Rollout, SamplingRequest
from rrgpolicy.rollout.repeated import RepeatedStep
from rrgpolicy.rollout.sampler import likeliest, sample, uniforms
from rrgpolicy.sampler_alarm import ROUNDING

# Finished rows are dropped once fewer than this share is left: dropping copies the cache, and where
# steps are graphs they are captured anew.
COMPACT_BELOW = {False: 0.75, True: 0.5}
# Places by which the room of members' tokens grows, likewise.
CHUNK = {False: 64, True: 128}
# One token's gap may be so many times the limit of a mean.
OF_ONE = 3

# logits [n, V], rows [n] among all members, step -> ids [n], log-probs [n]
Draw = Callable[[Tensor, Tensor, int], tuple[Tensor, Tensor]]
# hidden states [..., H] -> logits [..., V]
Project = Callable[[Tensor], Tensor]


class TransformersEngine:
    """The trainer's own model: nothing to update, nothing to release."""

    own_kernels = False

    def update(self, policy: Policy, step: int | None = None) -> None:
        pass

    def generate(self, policy: Policy, request: SamplingRequest) -> list[list[Rollout]]:
        return generate(policy, request)

    def release(self) -> None:
        pass

    def close(self) -> None:
        pass


@torch.no_grad()
def generate(policy: Policy, request: SamplingRequest) -> list[list[Rollout]]:
    """Sample `request.group` reports for each prompt with the policy itself.

    The policy runs in evaluation mode; its mode is restored.
    """
    require_attention(policy.text_config)
    if not request.prompts:
        return []
    if len(request.prompts) > 1 and not policy.family.joins:
        alone = [request.one(b) for b in range(len(request.prompts))]
        return [group for single in alone for group in generate(policy, single)]
    temperature = request.temperature
    was_training = policy.model.training
    policy.model.eval()
    try:
        loop = _DecodeLoop(policy, request)
        never = torch.tensor(policy.never_sampled, dtype=torch.int64, device=policy.device)
        if request.greedy:
            return loop.run(
                lambda logits, _rows, _t: likeliest(logits, temperature=temperature, never=never)
            )
        draws = uniforms(request.member_seeds(), request.max_new_tokens).to(policy.device)
        return loop.run(
            lambda logits, rows, t: sample(
                logits, draws[rows, t], temperature=temperature, top_p=request.top_p, never=never
            )
        )
    finally:
        policy.model.train(was_training)


def repeats(device: torch.device) -> bool:
    """Tell if steps of decoding are CUDA graphs."""
    return device.type == "cuda"


class PackedDecoder:
    """The decode state of a packed family: keys and values of a prompt stand once."""

    def __init__(self, policy: Policy, prompts: list[EncodedPrompt], group: int) -> None:
        count = len(prompts)
        device = policy.device
        self.policy = policy
        lengths = torch.tensor([len(p.input_ids) for p in prompts])
        longest = int(lengths.max())
        ids = torch.full((count, longest), policy.pad_id)
        axes = len(prompts[0].positions)
        positions = torch.zeros(axes, count, longest, dtype=torch.int64)
        for b, prompt in enumerate(prompts):
            ids[b, : lengths[b]] = prompt.input_ids
            positions[:, b, : lengths[b]] = prompt.positions
        places = image_index(prompts, [b * longest for b in range(count)])
        embeddings = embed(policy, ids.to(device), places, vision_embeddings(policy, prompts))
        padding = torch.arange(longest) >= lengths[:, None]
        graphs = repeats(device)
        self.repeated = RepeatedStep() if graphs else None
        self.cache = GroupCache(padding.to(device), group, chunk=CHUNK[graphs], whole_room=graphs)
        self.compact_below = COMPACT_BELOW[graphs]
        # Padding is on the right, so plain causal attention never lets a prompt see it.
        states = policy.language_model(
            inputs_embeds=embeddings,
            position_ids=positions.squeeze(0).to(device),
            attention_mask={"full_attention": None},
            past_key_values=self.cache,
            use_cache=True,
        ).last_hidden_state
        last = states[torch.arange(count, device=device), lengths.to(device) - 1]
        self.hidden = last.repeat_interleave(group, 0)
        after = torch.stack([p.positions.max() + 1 for p in prompts])
        self.next_position = after.to(device).repeat_interleave(group)

    def select(self, rows: Tensor) -> None:
        """Keep these rows alone."""
        self.cache.select(rows)
        self.next_position = self.next_position[rows]
        if self.repeated:
            self.repeated.forget()

    def step(self, token: Tensor) -> None:
        """Take the tokens [n] of the next step."""
        if self.cache.reserve() and self.repeated:
            self.repeated.forget()
        repeated = self.repeated
        self.hidden = repeated(self._forward, token) if repeated else self._forward(token)

    def _forward(self, token: Tensor) -> Tensor:
        """Compute the hidden states [n, H] behind the tokens [n]; asks the host for nothing."""
        model = self.policy.language_model
        hidden: Tensor = model(
            inputs_embeds=model.embed_tokens(token)[:, None],
            # text counts up on all axes alike
            position_ids=self.next_position[:, None],
            attention_mask={"full_attention": None},
            past_key_values=self.cache,
            use_cache=True,
            attend=self.cache.attend,
        ).last_hidden_state[:, 0]
        self.cache.advance()
        self.next_position += 1
        return hidden


class _DecodeLoop:
    """Decode state: `rows` [n] are the members still in the batch, among B * group."""

    def __init__(self, policy: Policy, request: SamplingRequest) -> None:
        if request.vision_cache is not None:
            policy = replace(policy, vision_cache=request.vision_cache)
        kind = PackedDecoder if policy.decodes_packed else FamilyDecoder
        self.policy, self.request = policy, request
        self.decoder = kind(policy, [*request.prompts], request.group)
        self.rows = torch.arange(len(request.prompts) * request.group, device=policy.device)

    def run(self, draw: Draw) -> list[list[Rollout]]:
        device = self.policy.device
        max_new_tokens, total = self.request.max_new_tokens, len(self.rows)
        ids = torch.full((total, max_new_tokens), self.policy.pad_id, device=device)
        logps = torch.zeros(total, max_new_tokens, device=device)
        ends = torch.tensor(self.policy.eos_ids, device=device)
        live = torch.ones(total, dtype=torch.bool, device=device)
        project = _head_of(self.policy)
        for t in range(max_new_tokens):
            logits = project(self.decoder.hidden)
            token, logp = draw(logits, self.rows, t)
            # Rows that have finished but not left the batch yet write behind their end.
            ids[self.rows, t], logps[self.rows, t] = token, logp
            live = live & ~torch.isin(token, ends)
            left = int(live.sum())
            if left == 0 or t + 1 == max_new_tokens:
                break
            if left < self.decoder.compact_below * len(self.rows):
                rows = live.nonzero().squeeze(1)
                if isinstance(self.decoder, FamilyDecoder) and self._drops_most_padded(rows):
                    self._compare(self.decoder, ids[:, : t + 1], project)
                self.decoder.select(rows)
                self.rows, token, live = self.rows[rows], token[rows], live[rows]
            self.decoder.step(token)
        if isinstance(self.decoder, FamilyDecoder) and max_new_tokens:
            self._compare(self.decoder, ids[:, : t + 1], project)
        return self._collect(ids.cpu(), logps.cpu(), ends.cpu())

    def _drops_most_padded(self, rows: Tensor) -> bool:
        """Tell if no report with the most padding before it is among the rows that stay."""
        lengths = torch.tensor([len(prompt.input_ids) for prompt in self.request.prompts])
        padded = (lengths == lengths.min()) & (lengths < lengths.max())
        here = padded[self.rows.cpu() // self.request.group]
        return bool(here.any()) and not bool(here[rows.cpu()].any())

    def _compare(self, decoder: FamilyDecoder, ids: Tensor, project: Project) -> None:
        """Warn where steps with a cache are not the model's own forward; one report is computed."""
        prompts = [self.request.prompts[row // self.request.group] for row in self.rows.tolist()]
        # with the most padding before it
        place = min(range(len(prompts)), key=lambda i: len(prompts[i].input_ids))
        members = ids.cpu()[self.rows[place].cpu()]
        states = decoder.own(prompts[place], members)[None], decoder.hidden[place][None]
        own, stepped = (project(hidden).double().log_softmax(-1) for hidden in states)
        gaps = torch.where(own == stepped, 0.0, (own - stepped).abs() * own.exp())
        limit = OF_ONE * ROUNDING[self.policy.dtype]
        if not float(gaps.sum()) <= limit:
            warnings.warn(
                f"a {type(self.policy.backbone).__name__} writes other reports with a cache, or "
                "with padding before a shorter prompt, than by its own forward: log-probs differ "
                f"by more than {limit:g}; use rollout.engine=vllm, or another model",
                stacklevel=2,
            )

    def _collect(self, ids: Tensor, logps: Tensor, ends: Tensor) -> list[list[Rollout]]:
        is_end = torch.isin(ids, ends)
        finished = is_end.any(1)
        lengths = torch.where(finished, is_end.int().argmax(1) + 1, self.request.max_new_tokens)
        rollouts = [
            Rollout(ids[r, :n].clone(), logps[r, :n].clone(), done)
            for r, (n, done) in enumerate(zip(lengths.tolist(), finished.tolist(), strict=True))
        ]
        return self.request.grouped(rollouts)


def _head_of(policy: Policy) -> Project:
    """Return the map from hidden states [n, H] to logits [n, V], in fp32 even for a bf16 model.

    Rounded logits would not give the log-probs of training.
    """
    weight, bias, softcap = policy.head()
    wide = torch.promote_types(weight.dtype, torch.float32)
    # tensor cores add 16-bit products up in fp32; a CPU has no such product
    mixed = weight.is_cuda and weight.dtype != wide
    weight = weight if mixed else weight.to(wide)
    bias = None if bias is None else bias.to(wide)

    def project(hidden: Tensor) -> Tensor:
        if mixed and hidden.dtype == weight.dtype:
            logits = torch.mm(hidden, weight.T, out_dtype=wide)
        else:
            logits = hidden.to(wide) @ weight.T.to(wide)
        logits = logits if bias is None else logits + bias
        return logits if softcap is None else softcap * torch.tanh(logits / softcap)

    return project
