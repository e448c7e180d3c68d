"""A vLLM server over HTTP: text and images out, token ids and log-probs back.

Weights go through the run directory and `/collective_rpc`, not through the weight transfer of vLLM
0.32 (`vllm/distributed/weight_transfer`, its `HTTPVLLMWeightSyncClient`): all its backends move
CUDA tensors (NCCL, or CUDA's IPC handles), need vllm in the trainer's environment, and hand what
arrives to `model.load_weights` with nothing that could say which tensors came, so that step and
digest of a push could not be reported back.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar

import httpx2

from rrgclinical.common import json_reader
from rrgclinical.common.arguments import is_address
from rrgclinical.common.errors import UserError
from rrgclinical.common.shown import shown_url
from rrgclinical.common.stop import stopping
from rrgpolicy.model.policy import Policy
from rrgpolicy.ranks import ranks
from rrgpolicy.rollout.engine import Pushed, Rollout, SamplingRequest, require_kept, require_taken
from rrgpolicy.rollout.vllm_engine import EXTENSION, PROCESSOR, save_configuration, write_tensors
from rrgpolicy.rollout.vllm_prompts import rollout, sampling_arguments, turn, vllm_prompts
from rrgpolicy.rollout.weights import WeightSender
from rrgpolicy.vllm_worker import TRAINED, WEIGHTS

# from a proxy before a server that is gone or loads
GONE = (502, 503, 504)
BUSY, FAILED = 429, 500
# uvicorn closes a connection that was idle for five seconds: no request may meet that end.
IDLE_SECONDS = 2.0
# A server that goes away, or fails at a request, as often is not asked any more.
TRIES = 3

Result = TypeVar("Result")


class _NotNow(Exception):
    """Raised for an answer worth a retry."""


class _Failed(_NotNow):
    """Status 500: the server tried, and raised."""


class _Gone(_NotNow):
    """No answer: what serves next may be a new server, with the weights it was started with."""


class VllmServerEngine:
    """Client of `vllm serve`.

    Weights go over as a checkpoint in a directory that server and trainer share: the server is
    told to load it, with `PushedWeights` in its workers, and says which weights it took, after
    every batch too. Its prefix cache is emptied with that. A server that goes away is waited for,
    told the weights again, and asked for the whole batch again, whose seeds give the same reports.
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
            UserError: the url is none, nothing answers at it for `wait` seconds, or the server
                lacks the development endpoints or the workers' extension for pushed weights.
        """
        if not is_address(url):
            raise UserError(f"rollout.url is {shown_url(url)}; wanted http://HOST:PORT or https")
        self._url, self._shown = url.rstrip("/"), shown_url(url)
        self._name = f"vLLM at {self._shown}"
        self._directory = Path(directory).absolute()
        self._concurrency, self._wait = concurrency, wait
        limits = httpx2.Limits(max_connections=concurrency, keepalive_expiry=IDLE_SECONDS)
        self._http = httpx2.Client(timeout=timeout, limits=limits)
        self._pushed: Pushed | None = None
        self._step: int | None = None
        self._sender = WeightSender()
        self._sent = self._complete = False
        self._whole(self._try)

    def update(self, policy: Policy, step: int | None = None) -> Pushed | None:
        """Rank 0 writes and tells the server; the others learn what it was told."""
        if self._pushed is not None and step is not None and step == self._step:
            return self._pushed
        self._step = None
        before, whole = self._pushed, self._sender.is_whole(policy)
        self._complete = not policy.family.embedded
        with ranks.inseparable():  # a signal between two parts would leave the others waiting
            tensors = {n: t.cpu() for n, t in self._sender.tensors(policy) if ranks.is_main()}
        pushed: Pushed | None = None
        if ranks.is_main():
            if before is None:
                save_configuration(policy, self._directory)
            write_tensors(tensors, self._directory / (WEIGHTS if whole else TRAINED))
            if whole:
                (self._directory / TRAINED).unlink(missing_ok=True)
            self._pushed, self._sent = Pushed(step or 0, self._sender.digest.value), False
            self._whole(lambda: self._have_taken(before))
            pushed = self._pushed
        self._pushed, self._sent, self._step = ranks.broadcast_from_main(pushed), True, step
        return self._pushed

    def _try(self) -> None:
        """UserError for a server that cannot be pushed to."""
        self._patiently("/reset_prefix_cache")
        try:
            self._ask("/collective_rpc", {"method": "weights_taken"})
        except _Gone:
            raise
        except _NotNow as failed:
            raise UserError(
                f"the workers of vLLM at {self._shown} do not say which weights they have ({failed}"
                f"); start it where rrgpolicy is on the path, with `{serve_command('CHECKPOINT')}`"
            ) from failed

    def _have_taken(self, before: Pushed | None = None) -> None:
        """The weights in the directory, unless the server has them or there are none yet.

        before: what was pushed to the same server before them.
        """
        if self._sent or self._pushed is None:
            return
        told: dict[str, Any] = {"step": self._pushed.step, "directory": str(self._directory)}
        told["complete"] = self._complete
        reports = [] if before is None else self._send_changes(told)
        if any(report["digest"] != self._pushed.digest for report in reports) or not reports:
            # It has started anew, or samples for others too: it lacks what does not train.
            reports = self._workers("take_weights", **told)
            reports = self._send_changes(told) or reports
        self._pushed = require_taken(self._pushed, reports, before, self._name)
        # The workers drop their caches with a reload; the scheduler has to learn of it.
        self._patiently("/reset_encoder_cache")
        self._patiently("/reset_prefix_cache")
        self._sent = True

    def _send_changes(self, told: dict[str, Any]) -> list[dict[str, Any]]:
        """What the workers report of all pushed since the whole; empty where nothing was."""
        if not (self._directory / TRAINED).exists():
            return []
        return self._workers("take_weights", **told, file=TRAINED, whole=False)

    def generate(self, policy: Policy, request: SamplingRequest) -> list[list[Rollout]]:
        return self.prepare(policy, request)()

    def prepare(
        self, policy: Policy, request: SamplingRequest
    ) -> Callable[[], list[list[Rollout]]]:
        """Embeds the images where the trainer does; the rest is the server's."""
        turns = [turn(p) for p in vllm_prompts(policy, request.prompts)]
        # A prompt's images are sent once: vLLM draws member m from the first one's seed + m. It
        # takes greedy requests for one member only, which all of them are.
        drawn = 1 if request.greedy else request.group

        def one(b: int) -> list[Rollout]:
            arguments = sampling_arguments(policy, request, request.seeds[b][0] % 2**62)
            del arguments["detokenize"]
            arguments.update(n=drawn, logprobs=True, return_token_ids=True)
            answer = self._patiently("/v1/chat/completions", {**turns[b], **arguments})
            members = []
            for choice in sorted(answer["choices"], key=lambda choice: int(choice["index"])):
                content = (choice.get("logprobs") or {}).get("content") or []
                logps = [entry["logprob"] for entry in content]
                ids, seen = choice["token_ids"], answer.get("prompt_token_ids")
                members.append(rollout(policy, request, b, seen, ids, logps))
            if len(members) != drawn:
                raise UserError(
                    f"{self._name} returned {len(members)} reports of a prompt, {drawn} were asked "
                    "for; use vLLM as tested"
                )
            return members * (request.group // drawn)

        def batch() -> list[list[Rollout]]:
            self._have_taken()
            with ThreadPoolExecutor(self._concurrency) as pool:
                futures = [pool.submit(one, b) for b in range(len(turns))]
                try:
                    groups = [future.result() for future in futures]
                finally:
                    pool.shutdown(cancel_futures=True)
            if self._pushed is not None:
                require_kept(self._pushed, self._workers("weights_taken"), self._name)
            return groups

        return partial(self._whole, batch)

    def release(self) -> None:
        """Nothing: the server has a device of its own."""

    def close(self) -> None:
        """Closes the connections; whoever started the server ends it."""
        self._http.close()

    def _whole(self, work: Callable[[], Result]) -> Result:
        """`work`, all of it done by one and the same server."""
        reason = ""
        for _ in range(TRIES):
            self._patiently("/health", method="GET", starting=True)
            try:
                return work()
            except _Gone as gone:
                self._sent, reason = False, str(gone)
        raise UserError(
            f"vLLM at {self._shown} went away {TRIES} times in one batch ({reason}); look at its "
            "log, then resume"
        )

    def _workers(self, method: str, **options: Any) -> list[dict[str, Any]]:
        """What each worker of the server returns from `method`."""
        answer = self._patiently("/collective_rpc", {"method": method, "kwargs": options})
        return list((answer or {}).get("results", []))

    def _patiently(
        self,
        path: str,
        body: dict[str, Any] | None = None,
        method: Literal["GET", "POST"] = "POST",
        *,
        starting: bool = False,
    ) -> Any:
        """The answer; a server that is busy, or starting, is asked again for `wait` seconds."""
        begin, pause, failures = time.monotonic(), 0.2, 0
        where, seconds = f"vLLM at {self._shown}{path}", f"{self._wait:g} s"
        while True:
            try:
                return self._ask(path, body, method)
            except _NotNow as error:
                if isinstance(error, _Gone) and not starting:
                    raise
                failures += isinstance(error, _Failed)
                if failures == TRIES and not starting:
                    line = f"{where} failed {TRIES} times ({error}); look at its log, then resume"
                    raise UserError(line) from error
                if time.monotonic() - begin + pause > self._wait:
                    line = f"{where} was busy for {seconds} ({error}); look at its log, then resume"
                    if starting:
                        command = serve_command("CHECKPOINT")
                        line = f"no answer from {where} for {seconds} ({error}); start it with "
                        line += f"`{command}` and resume"
                    raise UserError(line) from error
            with _may_stop() if starting else nullcontext():
                time.sleep(pause)
            pause = min(2 * pause, 10.0)

    def _ask(
        self, path: str, body: dict[str, Any] | None = None, method: Literal["GET", "POST"] = "POST"
    ) -> Any:
        try:
            answer = self._http.request(method, self._url + path, json=body)
            if answer.is_success:
                return json_reader.parse(answer.content) if answer.content else None
        except (httpx2.HTTPError, ValueError) as error:
            raise _Gone(str(error) or type(error).__name__) from error
        said = answer.text[:300].replace("\n", " ")
        if answer.status_code == 404:
            raise UserError(
                f"the server at {self._shown} has no {path}; start it with "
                f"`{serve_command('CHECKPOINT')}`"
            )
        kinds = {BUSY: _NotNow, FAILED: _Failed} | dict.fromkeys(GONE, _Gone)
        if answer.status_code in kinds:
            raise kinds[answer.status_code](f"status {answer.status_code}: {said}")
        raise UserError(f"vLLM refused {path} with status {answer.status_code}: {said}")


def _may_stop() -> AbstractContextManager[None]:
    """A step that waits for its server has changed nothing: a signal need not wait too.

    In a thread beside the main one, where none can be raised, one that has come ends the wait.
    """
    if threading.current_thread() is threading.main_thread():
        return stopping.interruptible()
    stopping.check()
    return nullcontext()


def serve_command(checkpoint: str | Path, *, port: int = 8000, dtype: str = "bfloat16") -> str:
    """The command that starts a server this client can use."""
    return (
        f"VLLM_SERVER_DEV_MODE=1 vllm serve {checkpoint} --port {port} --dtype {dtype} "
        f"--worker-extension-cls {EXTENSION} --enable-mm-embeds "
        f"--mm-processor-kwargs '{json.dumps(PROCESSOR)}' "
        f"--logprobs-mode processed_logprobs --generation-config vllm"
    )
