"""vLLM in the trainer's process: one device holds both, weights go over without touching disk."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rrgclinical.common.errors import UserError
from rrgpolicy.model.backbone import architecture, sees_images
from rrgpolicy.model.families import family_of
from rrgpolicy.model.policy import Policy
from rrgpolicy.ranks import ranks
from rrgpolicy.ranks.rng import random_states_kept
from rrgpolicy.rollout.engine import (
    Pushed,
    Rollout,
    SamplingRequest,
    require_equal_weights,
    require_kept,
    require_taken,
)
from rrgpolicy.rollout.vllm_prompts import (
    VllmPrompt,
    rollout,
    sampling_arguments,
    shows_pictures,
    vllm_prompts,
)
from rrgpolicy.rollout.weights import WeightSender
from rrgpolicy.vllm_worker import PushedWeights

EXTENSION = f"{PushedWeights.__module__}.{PushedWeights.__qualname__}"
SAMPLER = "vLLM in this process"
# The one that the trainer's images go through; the default would scale them otherwise.
PROCESSOR = {"use_fast": False}


def require_vllm() -> None:
    """UserError where vLLM is not installed."""
    if find_spec("vllm") is None:
        raise UserError(
            "rollout.engine=vllm, but vllm is not installed; `pip install 'rrgkern[vllm]'`, or use "
            "rollout.engine=transformers"
        )


def require_architecture(config: Any, engine: str, *, one_image: bool = False) -> None:
    """Raise UserError where vLLM cannot serve a model of this configuration.

    The installed vLLM is asked by the engine that starts it; without any `require_vllm` tells.
    one_image: no study has more.
    """
    if sees_images(config) and family_of(config).images.together and not one_image:
        raise UserError(
            f"rollout.engine={engine}, but the images of a study of a {config.model_type} change "
            "each other's tokens, and vLLM prepares each alone; have one image a study "
            "(data.max_images=1 or data.each_image=true), or use rollout.engine=transformers"
        )
    if engine != "vllm" or find_spec("vllm") is None:
        return
    from vllm import ModelRegistry, __version__

    names = config.architectures or [architecture(config)]
    if not {*names} & {*ModelRegistry.get_supported_archs()}:
        raise UserError(
            f"rollout.engine=vllm, but vLLM {__version__} has no {' or '.join(map(str, names))}; "
            "use rollout.engine=transformers, or another vLLM"
        )


class VllmEngine:
    """An `LLM` of vLLM beside the policy; of several ranks, each has its own.

    The engine is in the rank's process, so one that dies is a rank that dies. The ranks' engines
    share the trainer's process group (`external_launcher`) and exchange nothing after the start.
    """

    own_kernels = True

    def __init__(
        self,
        policy: Policy,
        directory: str | Path,
        *,
        max_model_len: int,
        memory: float = 0.4,
        sleep: bool = True,
    ) -> None:
        """Saves the policy's configuration and tokenizer in `directory` and starts vLLM from it.

        max_model_len: prompt and report together, in tokens. memory: share of the device's, on a
        CPU of the machine's. sleep: give it back between two batches; never on a CPU.
        """
        require_vllm()
        # One process: the workers share the trainer's tensors, and an update needs no copy.
        os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
        from vllm import LLM

        cuda = policy.device.type == "cuda"
        self._max_model_len = max_model_len
        self._sleeps = cuda and sleep
        self._asleep: set[str] = set()
        self._pushed: Pushed | None = None
        self._step: int | None = None
        self._batch = 0
        self._sender = WeightSender()
        options = _of_images(policy)
        if ranks.size() > 1:
            options["distributed_executor_backend"] = "external_launcher"
        with ranks.main_first():
            if ranks.is_main():
                save_configuration(policy, directory)
        # one rank alone has no process group, and vLLM opens one
        self._opened_group = not torch.distributed.is_initialized()
        # vLLM seeds every generator of the process it lives in.
        with _failures(None), random_states_kept(), _launcher_kept(), ranks.inseparable():
            self._llm = LLM(
                model=str(directory),
                dtype=str(policy.dtype).removeprefix("torch."),
                # the first update brings all weights
                load_format="dummy",
                max_model_len=max_model_len,
                gpu_memory_utilization=memory,
                worker_extension_cls=EXTENSION,
                enable_sleep_mode=self._sleeps,
                enforce_eager=not cuda,
                logprobs_mode="processed_logprobs",
                generation_config="vllm",
                disable_log_stats=True,
                **options,
            )

    def update(self, policy: Policy, step: int | None = None) -> Pushed:
        if self._pushed is not None and step is not None and step == self._step:
            return self._pushed
        self._step = None
        self._wake("weights")
        # The ranks gather together while their engines read: an error there is no rank's alone.
        with ranks.inseparable(), _failures(step):
            try:
                reports = self._push(policy, step or 0)
            except BaseException:
                self._sender.whole = True  # the engine may hold a part of it
                raise
        pushed = Pushed(step or 0, self._sender.digest.value)
        self._pushed = require_taken(pushed, reports, self._pushed, SAMPLER)
        require_equal_weights(self._pushed, SAMPLER)
        # The workers drop their caches with a reload; the scheduler has to learn of it.
        self._llm.llm_engine.reset_encoder_cache()
        self._llm.reset_prefix_cache()
        self._step = step
        return self._pushed

    def _push(self, policy: Policy, step: int) -> list[dict[str, Any]]:
        tensors = self._sender.tensors(policy)
        told = {"step": step, "tensors": tensors, "whole": self._sender.is_whole(policy)}
        told["complete"] = not policy.family.embedded
        reports = self._llm.collective_rpc("take_weights", kwargs=told)
        deque(tensors, maxlen=0)  # it is to have read all of them; the digest tells
        return list(reports)

    def generate(self, policy: Policy, request: SamplingRequest) -> list[list[Rollout]]:
        from vllm import SamplingParams

        self._check_room(request)
        self._wake("weights", "kv_cache")
        encoded = vllm_prompts(policy, request.prompts)
        parameters = [
            SamplingParams(**sampling_arguments(policy, request, seed))
            for seed in request.member_seeds()
        ]
        # The members share one object and its name: vLLM embeds, hashes and keeps it once.
        self._batch += 1
        shared = [_input(prompt, f"{self._batch}.{b}") for b, prompt in enumerate(encoded)]
        inputs = [prompt for prompt in shared for _ in range(request.group)]
        with _failures(self._step):
            outputs = self._llm.generate(inputs, parameters, use_tqdm=False)
        flat = []
        for k, output in enumerate(outputs):
            sampled = output.outputs[0]
            ids = list(sampled.token_ids)
            logps = [at[i].logprob for at, i in zip(sampled.logprobs, ids, strict=True)]
            b, seen = k // request.group, output.prompt_token_ids
            flat.append(rollout(policy, request, b, seen, ids, logps))
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
        """Put vLLM to sleep, on a GPU (unmeasured).

        Level 1 keeps the weights in host memory, which what does not train needs; where the next
        update brings all of them, level 2 throws them away.
        """
        # a rank without prompts has woken its weights alone
        if not self._sleeps or "weights" in self._asleep:
            return
        self._llm.sleep(level=2 if self._sender.everything else 1)
        self._asleep = {"weights", "kv_cache"}
        if self._sender.everything:
            self._step = None

    def close(self) -> None:
        """End the worker and its groups, and leave the trainer's process group as it is.

        `EngineCore.shutdown` (vllm/v1/engine/core.py of 0.32) would destroy that one too, and the
        ranks could no longer speak to each other.
        """
        executor = getattr(self._llm.llm_engine, "model_executor", None)
        if executor is not None:
            from vllm.distributed import destroy_distributed_environment, destroy_model_parallel

            executor.shutdown()
            destroy_model_parallel()
            if self._opened_group:
                # else the next engine would take it for open
                destroy_distributed_environment()
            # the same shutdown again, once the engine is collected
            self._llm.llm_engine.engine_core._finalizer.detach()

    def _wake(self, *tags: str) -> None:
        """Weights wake first: what an update gathers is gone before the cache is there."""
        for tag in tags:
            if tag in self._asleep:
                self._llm.wake_up(tags=[tag])
                self._asleep.remove(tag)


@contextmanager
def _failures(step: int | None) -> Iterator[None]:
    """Say in one line that it was vLLM that failed."""
    try:
        yield
    except (UserError, KeyboardInterrupt):
        raise
    except Exception as error:
        note = f"{type(error).__name__}: {error}".splitlines()[0]
        at = "" if step is None else f" at step {step}"
        raise UserError(
            f"{SAMPLER} failed{at} ({note}); its log is above, no weight of the policy has "
            f"changed since the last step: mend it, then resume"
        ) from error


def save_configuration(policy: Policy, directory: str | Path) -> None:
    """Write all of a checkpoint but the weights."""
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    policy.backbone.config.save_pretrained(directory)
    policy.save_preprocessing(directory)


def write_tensors(tensors: Mapping[str, Tensor], path: Path) -> None:
    """Write a file of tensors that appears at once, never in part."""
    from safetensors.torch import save_file

    whole = {name: tensor.contiguous().cpu() for name, tensor in tensors.items()}
    partial = path.with_name(f"{path.name}.partial")
    save_file(whole, partial, metadata={"format": "pt"})
    partial.replace(path)


@contextmanager
def _launcher_kept() -> Iterator[None]:
    """Keep torchrun's variables: on a CPU vLLM writes its own LOCAL_WORLD_SIZE."""
    names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")
    before = {name: os.environ[name] for name in names if name in os.environ}
    try:
        yield
    finally:
        for name in names:
            os.environ.pop(name, None)
        os.environ.update(before)


def _of_images(policy: Policy) -> dict[str, Any]:
    """How vLLM prepares images, by its arguments."""
    if shows_pictures(policy):
        return {
            "limit_mm_per_prompt": {"video": 0},
            "mm_processor_kwargs": PROCESSOR,
            # its module would keep the numbers that stand in for weights until the first update
            "mm_device_do_normalize": False,
        }
    # no tower: the trainer's own embeds the images
    return {"limit_mm_per_prompt": {"image": 0, "video": 0}, "enable_mm_embeds": True}


def _input(prompt: VllmPrompt, name: str) -> dict[str, Any]:
    count = len(prompt.pictures) or len(prompt.embeddings)
    if not count:
        return {"prompt_token_ids": prompt.token_ids}
    data: Any = list(prompt.pictures)
    if prompt.embeddings:
        data = {"image_embeds": torch.cat([*prompt.embeddings]), "image_grid_thw": prompt.grid}
    names = [f"{name}.{k}" for k in range(count)]
    return {
        "prompt_token_ids": prompt.token_ids,
        "multi_modal_data": {"image": data},
        "multi_modal_uuids": {"image": names},
    }
