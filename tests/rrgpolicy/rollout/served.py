"""`vllm serve` as its client sees it, in threads of this process, and mortal; a stub of `vllm`.

The server samples with the trainer's own `generate` from the weights that it was last told, so
what a client gets differs from the trainer's rollouts only by what the client asked for.
"""

from __future__ import annotations

import base64
import importlib.machinery
import io
import json
import sys
import threading
import types
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers.core_model_loading import revert_weight_conversion

from rrgpolicy.model.load import load_policy
from rrgpolicy.model.policy import Policy
from rrgpolicy.model.prompt import EncodedPrompt, placed
from rrgpolicy.rollout import Rollout, SamplingRequest, VllmEngine, VllmServerEngine, generate
from rrgpolicy.vllm_worker import PushedWeights
from tests.rrgpolicy.model.common import tiny_directory

WORKERS, CHAT = "/collective_rpc", "/v1/chat/completions"


class Worker(PushedWeights):
    """A worker of vLLM with a policy for its model."""

    def __init__(self, policy: Policy) -> None:
        self.policy, self.device = policy, policy.device
        self.model_runner = SimpleNamespace(get_model=lambda: policy.backbone)

    def reload_weights(self, weights_iterator: Iterable[tuple[str, torch.Tensor]]) -> None:
        """As vLLM: into its own parameters, in their dtype; what is missing stays as it was."""
        backbone = self.policy.backbone
        own = revert_weight_conversion(backbone, dict(backbone.named_parameters()))
        with torch.no_grad():
            for name, value in weights_iterator:
                own[name].copy_(value)


class Served:
    """A server of the checkpoint at `checkpoint`; it keeps its port through all its lives.

    dies: at which request of a path, counted over a life, it goes away without an answer.
    back: seconds after which it is started again, None for never.
    says: statuses with which the first requests of a path are answered.
    short: tokens that it keeps of each report.
    workers: makes what takes the weights; None for a server without the extension.
    """

    def __init__(self, checkpoint: Path) -> None:
        self.checkpoint = checkpoint
        self.dies: list[tuple[str, int]] = []
        self.back: float | None = None
        self.says: dict[str, list[int]] = {}
        self.short: int | None = None
        self.workers: Callable[[Policy], Worker] | None = Worker
        self.lives, self.port, self.connections = 0, 0, 0
        self.asked: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._restart: threading.Timer | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        self.lives += 1
        self.asked.clear()
        self.policy = load_policy(self.checkpoint, freeze_vision=True)
        self.worker = None if self.workers is None else self.workers(self.policy)
        self.server = ThreadingHTTPServer(("127.0.0.1", self.port), _handler(self, self.lives))
        self.port = self.server.server_port
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    def stop(self) -> None:
        self.server.shutdown()
        self.server.server_close()

    def __enter__(self) -> Served:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.back = None
        if self._restart is not None:
            # Loading in two threads at once leaves transformers in its meta device for good.
            self._restart.cancel()
            self._restart.join()
        self.stop()

    def answer(self, path: str, body: dict[str, Any], life: int) -> tuple[int, Any] | None:
        """Status and content; None from the dead."""
        with self._lock:
            if life != self.lives:
                return None
            self.asked[path] += 1
            if self.dies and self.dies[0] == (path, self.asked[path]):
                self.dies.pop(0)
                self.lives += 1  # whatever else is under way gets no answer either
                self.stop()
                if self.back is not None:
                    self._restart = threading.Timer(self.back, self.start)
                    self._restart.start()
                return None
            if self.says.get(path):
                return self.says[path].pop(0), {"error": "said so"}
            if path == WORKERS:
                if self.worker is None:
                    return 500, {"error": f"no method {body['method']}"}
                method = getattr(self.worker, body["method"])
                return 200, {"results": [method(**body.get("kwargs", {}))]}
            return 200, self._complete(body) if path == CHAT else None

    def _complete(self, body: dict[str, Any]) -> dict[str, Any]:
        prompt, images = self._prompt(body["messages"], body.get("chat_template_kwargs", {}))
        assert body["ignore_eos"] and body["logprobs"] and body["return_token_ids"]
        self.policy.eos_ids = tuple(body["stop_token_ids"])
        request = SamplingRequest(
            [prompt],
            group=body["n"],
            temperature=body["temperature"] or 1.0,
            top_p=body["top_p"],
            max_new_tokens=body["max_tokens"],
            seeds=[[body["seed"] + k for k in range(body["n"])]],
            greedy=body["temperature"] == 0,
        )
        assert body["n"] == 1 or not request.greedy, "n must be 1 when using greedy sampling"
        choices = []
        policy = replace(self.policy, vision_cache=images)
        for k, made in enumerate(generate(policy, request)[0]):
            made = Rollout(made.ids[: self.short], made.logps[: self.short], made.finished)
            content = [{"logprob": value} for value in made.logps.tolist()]
            told = {"token_ids": made.ids.tolist(), "logprobs": {"content": content}}
            choices.append({"index": k, **told})
        return {"prompt_token_ids": prompt.input_ids.tolist(), "choices": choices[::-1]}

    def _prompt(
        self, messages: list[dict[str, Any]], kwargs: dict[str, Any]
    ) -> tuple[EncodedPrompt, dict[str, Any]]:
        ((*images, text),) = [m["content"] for m in messages]
        # vLLM gives text alone as a string to a template that takes nothing else
        shown: Any = [*({"type": "image"} for _ in images), text] if images else text["text"]
        rendered = self.policy.tokenizer.apply_chat_template(
            [{"role": "user", "content": shown}],
            tokenize=False,
            add_generation_prompt=True,
            **kwargs,
        )
        embeddings = [_tensor(i["image_embeds"]["image_embeds"]) for i in images]
        sizes = iter([len(e) for e in embeddings])
        image_id = self.policy.image_token_id
        ids = self.policy.tokenizer(rendered)["input_ids"]
        expanded = [t for i in ids for t in ([i] * next(sizes) if i == image_id else [i])]
        tokens = torch.tensor([expanded])
        grids = [_tensor(i["image_embeds"]["image_grid_thw"]) for i in images]
        grid = torch.stack(grids) if grids else None
        inputs = {"input_ids": tokens, "mm_token_type_ids": (tokens == image_id).long()}
        if grid is None:
            return placed(self.policy, inputs), {}
        inputs |= {"image_grid_thw": grid, "pixel_values": torch.zeros(1)}
        return placed(self.policy, inputs, key="given"), {"given": torch.cat(embeddings)}


def _tensor(text: str) -> torch.Tensor:
    return torch.load(io.BytesIO(base64.b64decode(text)))


def _handler(served: Served, life: int) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"  # keeps connections, as uvicorn does

        def setup(self) -> None:
            super().setup()
            with served._lock:
                served.connections += 1

        def do_GET(self) -> None:
            self._reply({})

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            self._reply(json.loads(body) if body else {})

        def _reply(self, body: dict[str, Any]) -> None:
            answer = served.answer(self.path, body, life)
            if answer is None:  # the connection closes without a word
                self.close_connection = True
                return
            content = b"" if answer[1] is None else json.dumps(answer[1]).encode()
            self.send_response(answer[0])
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    return Handler


class LLM:
    """One worker with a policy of the configuration that it is started from, and no weights."""

    def __init__(
        self,
        worker: type[Worker],
        *,
        model: str,
        worker_extension_cls: str,
        dtype: str,
        **given: Any,
    ) -> None:
        assert worker_extension_cls == "rrgpolicy.vllm_worker.PushedWeights"
        assert (Path(model) / "config.json").is_file() and given["load_format"] == "dummy"
        policy = load_policy(tiny_directory(), dtype=getattr(torch, dtype))
        with torch.no_grad():
            for parameter in policy.language_model.parameters():
                parameter.zero_()
        self.worker = worker(policy)
        self.llm_engine = SimpleNamespace(reset_encoder_cache=lambda: None)

    def collective_rpc(self, method: str, kwargs: dict[str, Any] | None = None) -> list[Any]:
        return [getattr(self.worker, method)(**(kwargs or {}))]

    def reset_prefix_cache(self) -> None:
        pass


def stub_vllm(monkeypatch: pytest.MonkeyPatch, worker: type[Worker] = Worker) -> None:
    """Makes `import vllm` find a package whose LLM takes weights as vLLM's does."""
    module: Any = types.ModuleType("vllm")
    module.__spec__ = importlib.machinery.ModuleSpec("vllm", None)
    module.LLM, module.__version__ = partial(LLM, worker), "0.0"
    served = ["Qwen2_5_VLForConditionalGeneration", "Qwen2ForCausalLM", "Qwen3ForCausalLM"]
    module.ModelRegistry = SimpleNamespace(get_supported_archs=lambda: served)
    module.SamplingParams = SimpleNamespace
    monkeypatch.setitem(sys.modules, "vllm", module)
    # The engine sets it, for good; so it is taken away again with the stub.
    monkeypatch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "0")


@contextmanager
def in_process(
    policy: Policy, work: Path, monkeypatch: pytest.MonkeyPatch, worker: type[Worker] = Worker
) -> Iterator[VllmEngine]:
    stub_vllm(monkeypatch, worker)
    yield VllmEngine(policy, work, max_model_len=512)


@contextmanager
def over_http(
    policy: Policy, work: Path, monkeypatch: pytest.MonkeyPatch, worker: type[Worker] = Worker
) -> Iterator[VllmServerEngine]:
    served = Served(tiny_directory())
    served.workers = worker
    with served:
        yield VllmServerEngine(served.url, work, wait=20.0)
