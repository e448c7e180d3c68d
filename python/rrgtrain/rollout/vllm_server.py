"""A vLLM server over HTTP: text and image embeddings out, token ids and log-probs back."""

from __future__ import annotations

import base64
import io
import json
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rrgtrain.errors import UserError
from rrgtrain.policy.forward import VisionCache
from rrgtrain.policy.policy import Policy
from rrgtrain.policy.prompt import EncodedPrompt
from rrgtrain.rollout.transformers_engine import Rollout, check_request
from rrgtrain.rollout.vllm_engine import save_for_serving
from rrgtrain.rollout.vllm_prompts import VllmPrompt, rollout, sampling_arguments, vllm_prompts

# 503 while it loads, 429 and 502 from a proxy in front of it
PASSING = (429, 500, 502, 503, 504)


class VllmServerEngine:
    """Client of `vllm serve`.

    Weights go over as a checkpoint in a directory that server and trainer share: the server is
    told to reload it. Its prefix cache is emptied with that.
    """

    own_kernels = True

    def __init__(
        self,
        url: str,
        directory: str | Path,
        *,
        concurrency: int = 64,
        timeout: float = 600.0,
        wait: float = 300.0,
    ) -> None:
        """
        Args:
            url: where the server listens, such as http://localhost:8000.
            directory: for the weights; the server must see it under the same path.
            concurrency: requests under way at a time.
            timeout: seconds until one request counts as failed.
            wait: seconds for which a server that does not answer is asked again.

        Raises:
            UserError: nothing answers at the url for `wait` seconds, or the server lacks the
                development endpoints through which weights are pushed.
        """
        self._url = url.rstrip("/")
        self._directory = Path(directory).absolute()
        self._concurrency, self._timeout, self._wait = concurrency, timeout, wait
        self._get("/health")
        self._post("/reset_prefix_cache", None)

    def update(self, policy: Policy) -> None:
        save_for_serving(policy, self._directory)
        self._post(
            "/collective_rpc",
            {"method": "reload_weights", "kwargs": {"weights_path": str(self._directory)}},
        )
        # The workers drop their caches with a reload; the scheduler has to learn of it.
        self._post("/reset_encoder_cache", None)
        self._post("/reset_prefix_cache", None)

    def generate(
        self,
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
        check_request(prompts, group, temperature, top_p, max_new_tokens, seeds)
        encoded = vllm_prompts(policy, prompts, vision_cache)
        turns = [_messages(prompt) for prompt in encoded]

        def one(k: int) -> Rollout:
            b, member = divmod(k, group)
            arguments = sampling_arguments(
                policy,
                seeds[b][member],
                temperature=temperature,
                top_p=top_p,
                max_new_tokens=max_new_tokens,
                greedy=greedy,
            )
            del arguments["detokenize"]
            arguments.update(logprobs=True, return_token_ids=True)
            answer = self._post("/v1/chat/completions", {"messages": turns[b], **arguments})
            choice = answer["choices"][0]
            ids = choice["token_ids"]
            content = (choice.get("logprobs") or {}).get("content") or []
            logps = [entry["logprob"] for entry in content]
            return rollout(policy, encoded[b], answer.get("prompt_token_ids"), ids, logps)

        with ThreadPoolExecutor(self._concurrency) as pool:
            flat = list(pool.map(one, range(len(prompts) * group)))
        return [flat[b * group : (b + 1) * group] for b in range(len(prompts))]

    def release(self) -> None:
        """Nothing: the server has a device of its own."""

    def close(self) -> None:
        """Nothing: whoever started the server ends it."""

    def _get(self, path: str) -> Any:
        return self._ask(urllib.request.Request(self._url + path))

    def _post(self, path: str, body: dict[str, Any] | None) -> Any:
        data = b"" if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        return self._ask(urllib.request.Request(self._url + path, data, headers, method="POST"))

    def _ask(self, request: urllib.request.Request) -> Any:
        begin, pause = time.monotonic(), 0.2
        while True:
            try:
                with urllib.request.urlopen(request, timeout=self._timeout) as answer:
                    text = answer.read()
                return json.loads(text) if text else None
            except urllib.error.HTTPError as error:
                said = error.read().decode(errors="replace")[:300].replace("\n", " ")
                if error.code == 404:
                    raise UserError(
                        f"the server at {self._url} has no {request.selector}; start it with "
                        f"`{serve_command('CHECKPOINT')}`"
                    ) from error
                if error.code not in PASSING:
                    raise UserError(
                        f"vLLM refused {request.selector} with status {error.code}: {said}"
                    ) from error
                reason = f"status {error.code}: {said}"
            except (OSError, json.JSONDecodeError) as error:
                reason = str(error)
            if time.monotonic() - begin + pause > self._wait:
                raise UserError(
                    f"no answer from vLLM at {self._url}{request.selector} for {self._wait:g} s "
                    f"({reason}); start it with `{serve_command('CHECKPOINT')}` and resume"
                )
            time.sleep(pause)
            pause = min(2 * pause, 10.0)


def serve_command(checkpoint: str | Path, *, port: int = 8000, dtype: str = "bfloat16") -> str:
    """The command that starts a server this client can use."""
    return (
        f"VLLM_SERVER_DEV_MODE=1 vllm serve {checkpoint} --port {port} --dtype {dtype} "
        "--enable-mm-embeds --logprobs-mode processed_logprobs --generation-config vllm"
    )


def _messages(prompt: VllmPrompt) -> list[dict[str, Any]]:
    """The user's turn. The server renders and encodes it with the checkpoint's own template; the
    token ids that it reports are compared with the trainer's."""
    content: list[dict[str, Any]] = [
        {
            "type": "image_embeds",
            "image_embeds": {"image_embeds": _base64(image), "image_grid_thw": _base64(grid)},
        }
        for image, grid in zip(prompt.embeddings, prompt.grid, strict=True)
    ]
    return [{"role": "user", "content": [*content, {"type": "text", "text": prompt.text}]}]


def _base64(tensor: Tensor) -> str:
    buffer = io.BytesIO()
    # a copy: saving a view would write its whole storage
    torch.save(tensor.clone(), buffer)
    return base64.b64encode(buffer.getvalue()).decode()
