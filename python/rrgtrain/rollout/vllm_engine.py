"""vLLM in the trainer's process: one device holds both, weights go over without touching disk."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rrgtrain.errors import UserError
from rrgtrain.policy.policy import Policy
from rrgtrain.rollout.engine import Rollout, SamplingRequest
from rrgtrain.rollout.pushed import Pushed, require_kept, require_taken
from rrgtrain.rollout.vllm_prompts import (
    VllmPrompt,
    checkpoint_tensors,
    rollout,
    sampling_arguments,
    vllm_prompts,
)
from rrgtrain.vllm_worker import WEIGHTS, PushedWeights, digest_of

EXTENSION = f"{PushedWeights.__module__}.{PushedWeights.__qualname__}"
SAMPLER = "vLLM in this process"


def require_vllm() -> None:
    """UserError where vLLM is not installed."""
    if find_spec("vllm") is None:
        raise UserError(
            "rollout.engine=vllm, but vllm is not installed; `pip install vllm`, or use "
            "rollout.engine=transformers"
        )


class VllmEngine:
    """An `LLM` of vLLM beside the policy."""

    own_kernels = True

    def __init__(
        self,
        policy: Policy,
        directory: str | Path,
        *,
        max_model_len: int,
        memory: float = 0.4,
        images: int = 8,
    ) -> None:
        """Saves the policy's configuration and tokenizer in `directory` and starts vLLM from it.

        Args:
            policy: the model to serve; its weights follow with `update`.
            directory: for the checkpoint that vLLM is started from; made if missing.
            max_model_len: prompt and report together, in tokens.
            memory: share of the device's memory (on a CPU, of the machine's) for vLLM.
            images: the most images a prompt may have.

        Raises:
            UserError: vLLM is not installed.
        """
        require_vllm()
        # One process: the workers share the trainer's tensors, and an update needs no copy.
        os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
        from vllm import LLM

        cuda = policy.device.type == "cuda"
        self._max_model_len = max_model_len
        self._sleeps = cuda
        self._asleep = False
        self._pushed: Pushed | None = None
        # vLLM seeds every generator of the process it lives in.
        with _random_states_kept():
            self._llm = LLM(
                model=str(save_for_serving(policy, directory)),
                dtype=str(policy.dtype).removeprefix("torch."),
                max_model_len=max_model_len,
                gpu_memory_utilization=memory,
                limit_mm_per_prompt={"image": images, "video": 0},
                enable_mm_embeds=True,
                worker_extension_cls=EXTENSION,
                enable_sleep_mode=cuda,
                enforce_eager=not cuda,
                logprobs_mode="processed_logprobs",
                generation_config="vllm",
                disable_log_stats=True,
            )

    def update(self, policy: Policy, step: int = 0) -> Pushed:
        self._wake()
        tensors = checkpoint_tensors(policy)
        pushed = Pushed(step, digest_of(tensors.items()))
        reports = self._llm.collective_rpc(
            "take_weights", kwargs={"step": step, "tensors": iter(tensors.items())}
        )
        self._pushed = require_taken(pushed, reports, self._pushed, SAMPLER)
        # The workers drop their caches with a reload; the scheduler has to learn of it.
        self._llm.llm_engine.reset_encoder_cache()
        self._llm.reset_prefix_cache()
        return self._pushed

    def follow(self, pushed: Pushed | None) -> None:
        """Nothing: an engine in this process is nobody else's."""

    def generate(self, policy: Policy, request: SamplingRequest) -> list[list[Rollout]]:
        from vllm import SamplingParams

        self._check_room(request)
        self._wake()
        encoded = vllm_prompts(policy, request.prompts, request.vision_cache)
        parameters = [
            SamplingParams(**sampling_arguments(policy, request, seed))
            for seed in request.member_seeds()
        ]
        inputs = [_input(prompt) for prompt in encoded for _ in range(request.group)]
        outputs = self._llm.generate(inputs, parameters, use_tqdm=False)
        flat = []
        for k, output in enumerate(outputs):
            sampled = output.outputs[0]
            ids = list(sampled.token_ids)
            logps = [at[i].logprob for at, i in zip(sampled.logprobs, ids, strict=True)]
            prompt = encoded[k // request.group]
            seen = output.prompt_token_ids
            flat.append(rollout(policy, prompt, seen, ids, logps, request.max_new_tokens))
        if self._pushed is not None:
            require_kept(self._pushed, self._llm.collective_rpc("weights_taken"), SAMPLER)
        return request.grouped(flat)

    def _check_room(self, request: SamplingRequest) -> None:
        longest = max((len(prompt.input_ids) for prompt in request.prompts), default=0)
        needed = longest + request.max_new_tokens
        if needed > self._max_model_len:
            raise UserError(
                f"a prompt of {longest} tokens and a report of up to {request.max_new_tokens} do "
                f"not fit rollout.max_model_len={self._max_model_len}; wanted at least {needed}"
            )

    def release(self) -> None:
        """Level 2: the weights are thrown away too, since the next update brings new ones."""
        if self._sleeps and not self._asleep:
            self._llm.sleep(level=2)
            self._asleep = True

    def close(self) -> None:
        engine = getattr(self._llm.llm_engine, "engine_core", None)
        if engine is not None:
            engine.shutdown()

    def _wake(self) -> None:
        if self._asleep:
            self._llm.wake_up()
            self._asleep = False


def save_for_serving(
    policy: Policy, directory: str | Path, tensors: Mapping[str, Tensor] | None = None
) -> Path:
    """A whole checkpoint (LoRA merged in) that vLLM starts or reloads from.

    tensors: the policy's `checkpoint_tensors`, where they are known already.
    The weights come last and appear at once, so a reader never sees a part of them.
    """
    from safetensors.torch import save_file

    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    backbone = policy.backbone
    backbone.config.save_pretrained(directory)
    policy.save_preprocessing(directory)
    tensors = checkpoint_tensors(policy) if tensors is None else tensors
    whole = {name: tensor.contiguous().cpu() for name, tensor in tensors.items()}
    partial = directory / f"{WEIGHTS}.partial"
    save_file(whole, partial, metadata={"format": "pt"})
    partial.replace(directory / WEIGHTS)
    return directory


@contextmanager
def _random_states_kept() -> Iterator[None]:
    python, numpy_state = random.getstate(), np.random.get_state()
    devices = range(torch.cuda.device_count())
    try:
        with torch.random.fork_rng(devices):
            yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy_state)


def _input(prompt: VllmPrompt) -> dict[str, Any]:
    if not prompt.embeddings:
        return {"prompt_token_ids": prompt.token_ids}
    data = {"image_embeds": torch.cat(prompt.embeddings), "image_grid_thw": prompt.grid}
    return {"prompt_token_ids": prompt.token_ids, "multi_modal_data": {"image": data}}
