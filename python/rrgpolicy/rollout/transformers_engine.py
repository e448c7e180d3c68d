"""Sample groups with the trainer's own model: one prefill per prompt, one decode loop."""

from __future__ import annotations

import gc
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rrgclinical.common.errors import cause_line
from rrgpolicy.model.attention import require_attention
from rrgpolicy.model.fewer_kernels import CompiledStep, merged, noted
from rrgpolicy.model.policy import Policy
from rrgpolicy.rollout.cache import Decoder
from rrgpolicy.rollout.engine import Rollout, RolloutEngine, SamplingRequest
from rrgpolicy.sampler_alarm import ROUNDING

# Finished rows are dropped once fewer than this share is left: dropping copies the cache, and where
# steps are graphs they are captured anew.
COMPACT_BELOW = {False: 0.75, True: 0.5}
# Places by which the room of members' tokens grows, likewise.
CHUNK = {False: 64, True: 128}
# The host waits for a GPU once in so many tokens; rows that have ended go on until then.
TOKENS_A_READ = {False: 1, True: 8}
# One token's gap may be so many times the limit of a mean.
OF_ONE = 3


class TransformersEngine(RolloutEngine):
    """The trainer's own model: nothing to update, nothing to release; see `DecodeLoop`."""

    own_kernels = False

    def __init__(self, compiled: CompiledStep | None = None) -> None:
        self.compiled = compiled

    def generate(self, policy: Policy, request: SamplingRequest) -> list[list[Rollout]]:
        return generate(policy, request, self.compiled)


@torch.no_grad()
def generate(
    policy: Policy, request: SamplingRequest, compiled: CompiledStep | None = None
) -> list[list[Rollout]]:
    """Sample `request.group` reports for each prompt with the policy itself.

    The policy runs in evaluation mode; its mode is restored. compiled: see `DecodeLoop`.
    """
    require_attention(policy.text_config)
    if not request.prompts:
        return []
    if len(request.prompts) > 1 and not policy.family.joins:
        pairs = zip(request.prompts, request.seeds, strict=True)
        alone = [replace(request, prompts=[prompt], seeds=[seeds]) for prompt, seeds in pairs]
        return [group for single in alone for group in generate(policy, single, compiled)]
    was_training = policy.model.training
    policy.model.eval()
    try:
        loop = DecodeLoop(policy, request, compiled)
        with merged(loop.one_input):
            return loop.run()
    finally:
        policy.model.train(was_training)


def repeats(device: torch.device) -> bool:
    """Tell if steps of decoding are CUDA graphs."""
    return device.type == "cuda"


class DecodeLoop:
    """Hold what a token's step reads and writes: all of it stays on the device.

    `rows` int64 [n], and `members` on the host, are those still in the batch, among B * group.
    With `compiled` products of one input are merged, and steps compiled where memory stays.
    """

    def __init__(
        self, policy: Policy, request: SamplingRequest, compiled: CompiledStep | None = None
    ) -> None:
        self.policy, self.request = policy, request
        device, longest = policy.device, request.max_new_tokens
        prompts = [*request.prompts]
        shape = len(prompts), max(len(prompt.input_ids) for prompt in prompts)
        probe: Any = noted(policy.model, shape) if compiled else nullcontext([])
        with probe as self.one_input:
            self.decoder = Decoder(policy, prompts, request.group, CHUNK[repeats(device)])
        total = len(prompts) * request.group
        self.members = [*range(total)]
        self.rows = torch.arange(total, device=device)
        shared = self.decoder.cache.members
        self.compiled = compiled if shared else None
        if compiled and shared:  # from the first step on: a row that leaves changes no graph
            shared.table = self.rows.view(-1, request.group).clone()  # a view is compiled anew
        elif compiled:
            compiled.give_up("its memory does not stay")
        self.ids = torch.full((total, longest), policy.pad_id, device=device)
        self.logps = torch.zeros(total, longest, device=device)
        self.live = torch.ones(total, dtype=torch.bool, device=device)
        self.ends = torch.tensor(policy.eos_ids, device=device)
        self.never = torch.tensor(policy.never_sampled, dtype=torch.int64, device=device)
        self.draws = uniforms([0] if request.greedy else request.member_seeds(), longest).to(device)
        self.project = _head_of(policy)
        graphs = repeats(device) and self.decoder.stays
        self.repeated = RepeatedStep() if graphs else None
        self.compact_below = COMPACT_BELOW[graphs]
        # PyTorch has no reproducible running sum on a GPU: a draw then asks the host for it.
        self.draws_inside = not torch.are_deterministic_algorithms_enabled()

    def run(self) -> list[list[Rollout]]:
        token = self._draw(self.decoder.hidden)
        for t in range(1, self.request.max_new_tokens):
            if t % TOKENS_A_READ[repeats(self.rows.device)] == 0:
                live = self.live.tolist()
                if not any(live):
                    break
                if sum(live) < self.compact_below * len(live):
                    token = self.select([i for i, lives in enumerate(live) if lives], token, t)
            if self.decoder.reserve(t - 1) and self.repeated:
                self.repeated.forget()
            with self.decoder.hooked():
                token = self._next(token)
        self._compare(int(self.decoder.place) + 1)
        return self._collect()

    def _next(self, token: Tensor) -> Tensor:
        """Return the tokens [n] behind `token` [n], which the next call overwrites."""
        inside = self.draws_inside or self.repeated is None
        compute: Any = self._step if inside else self.decoder.forward
        if self.compiled and self.compiled.on:
            compute = partial(self.compiled, compute)
        out: Tensor = self.repeated(compute, token) if self.repeated else compute(token)
        return out if inside else self._draw(out)

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

    def select(self, rows: list[int], token: Tensor, t: int) -> Tensor:
        """Keep these rows alone, and return their tokens.

        All stay where a compiled step would be another one: of one prompt, or one member of each.
        """
        of_prompt = Counter(self.members[row] // self.request.group for row in rows)
        if self.compiled and self.compiled.on and 1 in (len(of_prompt), max(of_prompt.values())):
            return token
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


def _head_of(policy: Policy) -> Callable[[Tensor], Tensor]:
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


class RepeatedStep:
    """Call a function, tensor to tensor, as a CUDA graph once its buffers stay.

    It is one launch in place of thousands, which Python takes longer to make than a GPU to run.
    The first call after `forget` runs as it is, which loads its kernels; the second is captured.
    The function must read and write the same memory each time and must not wait for the device.
    One that a capture refuses is called as it is from then on, and that is said. What a call
    returns is overwritten by the next. It is not held: a circle of references would keep the
    buffers that it reads until Python looks for circles.
    """

    def __init__(self) -> None:
        self._calls, self._refused = 0, False
        self._graph: torch.cuda.CUDAGraph | None = None
        self._taken = self._returned = torch.empty(0)

    def forget(self) -> None:
        self._calls, self._graph = 0, None

    def __call__(self, compute: Callable[[Tensor], Tensor], tensor: Tensor) -> Tensor:
        self._calls += 1
        if self._calls == 1 or self._refused:
            return compute(tensor)
        if self._graph is None:
            try:
                self._graph = self._captured(compute, tensor)
            except RuntimeError as error:
                self._refused = True
                line = f"a step of decoding cannot be a CUDA graph ({cause_line(error)})"
                warnings.warn(f"{line}: it is launched from Python, slower", stacklevel=2)
                return compute(tensor)
        self._taken.copy_(tensor)
        self._graph.replay()
        return self._returned

    def _captured(
        self, compute: Callable[[Tensor], Tensor], tensor: Tensor
    ) -> torch.cuda.CUDAGraph:
        graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream(tensor.device)
        self._taken = tensor.clone()
        stream.wait_stream(torch.cuda.current_stream())
        collects = gc.isenabled()
        # A tensor of a graph that is collected meanwhile would be freed within the capture.
        gc.disable()
        try:
            with torch.cuda.stream(stream):
                # other threads read images onto the device
                graph.capture_begin(capture_error_mode="thread_local")
                try:
                    self._returned = compute(self._taken)
                finally:
                    graph.capture_end()
        finally:
            if collects:
                gc.enable()
        torch.cuda.current_stream().wait_stream(stream)
        return graph


def uniforms(seeds: Sequence[int], count: int) -> Tensor:
    """Draw fp64 [rows, count] in [0, 1); row r is Philox of key `seeds[r]`.

    Draw t of a seed is the same whatever the other seeds and `count` are. The top 53 bits of the
    raw words are used, not a distribution of NumPy's, whose algorithm may change.
    """
    raw = np.stack([np.random.Philox(key=seed).random_raw(count) for seed in seeds])
    return torch.from_numpy((raw >> np.uint64(11)).astype(np.float64) * 2.0**-53)


def sample(
    logits: Tensor,
    draws: Tensor,
    *,
    temperature: float,
    top_p: float = 1.0,
    never: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Inverse-CDF sampling.

    Args:
        logits: [rows, V].
        draws: fp64 [rows] in [0, 1).
        temperature: positive; divides the logits.
        top_p: below 1, only the smallest set of tokens whose probability reaches it takes part.
        never: int64 [n], ids that take no part.

    Returns:
        ids int64 [rows], and their log-probs fp32 [rows] in the softmax of logits / temperature,
        as a trainer computes them: ids of `never` keep their share of it. With top_p < 1 they are
        renormalised over the kept set.
    """
    logps = torch.log_softmax(logits.float() / temperature, -1)
    if top_p < 1.0:
        ranked, order = _without(logps, never).sort(-1, descending=True)
        mass_before = _running_sum(ranked.exp()) - ranked.exp()
        ranked = ranked.masked_fill(mass_before >= top_p, -torch.inf)
        logps = torch.log_softmax(torch.empty_like(logps).scatter_(-1, order, ranked), -1)
    # fp64: with 150,000 tokens the rounding of an fp32 running sum would outweigh rare tokens.
    mass = _running_sum(_without(logps, never).double().exp())
    total = mass[:, -1:]
    # Below the total, which the product may round to: an id of probability 0 may be the last one.
    aim = torch.minimum(draws.to(mass)[:, None] * total, total.nextafter(torch.zeros_like(total)))
    # The first token whose running sum exceeds the aim; one of probability 0 never is.
    ids = torch.searchsorted(mass, aim, right=True).clamp_(max=mass.shape[-1] - 1)
    return ids.squeeze(-1), logps.gather(-1, ids).squeeze(-1)


def likeliest(
    logits: Tensor, *, temperature: float, never: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Find the likeliest id of each row, the lowest among equals, and its log-prob."""
    logps = torch.log_softmax(logits.float() / temperature, -1)
    ids = _without(logits, never).argmax(-1)
    return ids, logps.gather(-1, ids[:, None]).squeeze(-1)


def _without(values: Tensor, never: Tensor | None) -> Tensor:
    return values if never is None else values.index_fill(-1, never, -torch.inf)


def _running_sum(values: Tensor) -> Tensor:
    """Sum along the rows; PyTorch has no reproducible sum of this kind on a GPU."""
    if values.is_cuda and torch.are_deterministic_algorithms_enabled():
        return values.cpu().cumsum(-1).to(values.device)
    return values.cumsum(-1)
