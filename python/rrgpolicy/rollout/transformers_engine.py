"""Sample groups with the trainer's own model: one prefill per prompt, one decode loop."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from rrgpolicy.model.attention import require_attention
from rrgpolicy.model.policy import Policy
from rrgpolicy.rollout.any_family import Decoder
from rrgpolicy.rollout.engine import Rollout, SamplingRequest
from rrgpolicy.rollout.repeated import RepeatedStep
from rrgpolicy.rollout.sampler import likeliest, sample, uniforms
from rrgpolicy.sampler_alarm import ROUNDING

# Finished rows are dropped once fewer than this share is left: dropping copies the cache, and where
# steps are graphs they are captured anew.
COMPACT_BELOW = {False: 0.75, True: 0.5}
# Places by which the room of members' tokens grows, likewise.
CHUNK = {False: 64, True: 128}
# The host waits for the device once in so many tokens; rows that have ended go on until then.
TOKENS_A_READ = 8
# One token's gap may be so many times the limit of a mean.
OF_ONE = 3

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
    was_training = policy.model.training
    policy.model.eval()
    try:
        return _DecodeLoop(policy, request).run()
    finally:
        policy.model.train(was_training)


def repeats(device: torch.device) -> bool:
    """Tell if steps of decoding are CUDA graphs."""
    return device.type == "cuda"


class _DecodeLoop:
    """Hold what a token's step reads and writes: all of it stays on the device.

    `rows` int64 [n], and `members` on the host, are those still in the batch, among B * group.
    """

    def __init__(self, policy: Policy, request: SamplingRequest) -> None:
        if request.vision_cache is not None:
            policy = replace(policy, vision_cache=request.vision_cache)
        self.policy, self.request = policy, request
        device, longest = policy.device, request.max_new_tokens
        chunk = CHUNK[repeats(device)]
        self.decoder = Decoder(policy, [*request.prompts], request.group, chunk)
        total = len(request.prompts) * request.group
        self.members = [*range(total)]
        self.rows = torch.arange(total, device=device)
        self.ids = torch.full((total, longest), policy.pad_id, device=device)
        self.logps = torch.zeros(total, longest, device=device)
        self.live = torch.ones(total, dtype=torch.bool, device=device)
        self.ends = torch.tensor(policy.eos_ids, device=device)
        self.never = torch.tensor(policy.never_sampled, dtype=torch.int64, device=device)
        seeds = [0] if request.greedy else request.member_seeds()
        self.draws = uniforms(seeds, longest).to(device)
        self.project = _head_of(policy)
        graphs = repeats(device) and self.decoder.stays
        self.repeated = RepeatedStep() if graphs else None
        self.compact_below = COMPACT_BELOW[graphs]
        # PyTorch has no reproducible running sum on a GPU: a draw then asks the host for it.
        self.draws_inside = not torch.are_deterministic_algorithms_enabled()

    def run(self) -> list[list[Rollout]]:
        token = self._draw(self.decoder.hidden)
        for t in range(1, self.request.max_new_tokens):
            if t % TOKENS_A_READ == 0:
                live = self.live.tolist()
                if not any(live):
                    break
                if sum(live) < self.compact_below * len(live):
                    token = self._select([i for i, lives in enumerate(live) if lives], token, t)
            if self.decoder.reserve(t - 1) and self.repeated:
                self.repeated.forget()
            with self.decoder.hooked():
                token = self._next(token)
        self._compare(int(self.decoder.place) + 1)
        return self._collect()

    def _next(self, token: Tensor) -> Tensor:
        """Return the tokens [n] behind `token` [n], which the next call overwrites."""
        if self.repeated is None:
            return self._step(token)
        if self.draws_inside:
            return self.repeated(self._step, token)
        return self._draw(self.repeated(self.decoder.forward, token))

    def _step(self, token: Tensor) -> Tensor:
        """Compute the next tokens; asks the host for nothing."""
        return self._draw(self.decoder.forward(token))

    def _draw(self, hidden: Tensor) -> Tensor:
        """Draw ids [n] of the states [n, H], note them, their log-probs and the ends."""
        logits, place = self.project(hidden), self.decoder.place
        rules: dict[str, Any] = {"temperature": self.request.temperature, "never": self.never}
        if self.request.greedy:
            token, logp = likeliest(logits, **rules)
        else:
            draws = self.draws[self.rows, place]
            token, logp = sample(logits, draws, top_p=self.request.top_p, **rules)
        # Rows that have finished but not left the batch yet write behind their end.
        self.ids[self.rows, place], self.logps[self.rows, place] = token, logp
        self.live &= (token[:, None] != self.ends).all(1)
        return token

    def _select(self, rows: list[int], token: Tensor, t: int) -> Tensor:
        """Keep these rows alone, and return their tokens."""
        if self._drops_most_padded(rows):
            self._compare(t)
        self.decoder.select(rows)
        if self.repeated:
            self.repeated.forget()
        self.members = [self.members[row] for row in rows]
        on_device = torch.tensor(rows, device=token.device)
        self.rows, self.live, token = (x[on_device] for x in (self.rows, self.live, token))
        return token

    def _drops_most_padded(self, rows: list[int]) -> bool:
        """Tell if no report with the most padding before it is among the rows that stay."""
        lengths = [len(prompt.input_ids) for prompt in self.request.prompts]
        padded = [lengths[m // self.request.group] == min(lengths) for m in self.members]
        return min(lengths) < max(lengths) and any(padded) and not any(padded[i] for i in rows)

    def _compare(self, t: int) -> None:
        """Warn where steps with a cache are not the model's own forward.

        One report is computed up to its token `t`; none of a packed family.
        """
        if self.policy.decodes_packed:
            return
        prompts = [self.request.prompts[member // self.request.group] for member in self.members]
        # with the most padding before it
        place = min(range(len(prompts)), key=lambda i: len(prompts[i].input_ids))
        members = self.ids[self.members[place], :t].cpu()
        states = self.decoder.own(prompts[place], members)[None], self.decoder.hidden[place][None]
        own, stepped = (self.project(hidden).double().log_softmax(-1) for hidden in states)
        gaps = torch.where(own == stepped, 0.0, (own - stepped).abs() * own.exp())
        limit = OF_ONE * ROUNDING[self.policy.dtype]
        if not float(gaps.sum()) <= limit:
            warnings.warn(
                f"a {type(self.policy.backbone).__name__} writes other reports with a cache, or "
                "with padding before a shorter prompt, than by its own forward: log-probs differ "
                f"by more than {limit:g}; use rollout.engine=vllm, or another model",
                stacklevel=2,
            )

    def _collect(self) -> list[list[Rollout]]:
        ids, logps, ends = self.ids.cpu(), self.logps.cpu(), self.ends.cpu()
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
