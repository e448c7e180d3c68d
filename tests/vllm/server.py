"""`vllm serve` as a child process."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.ports import free_port
from rrgpolicy.model.policy import Policy
from rrgpolicy.rollout import RolloutEngine, VllmEngine, VllmServerEngine, serve_command

LENGTH = 256


class Server:
    """A real `vllm serve` of a tiny policy, or checkpoint, by the command that errors print."""

    def __init__(self, work: Path, policy: Policy | Path) -> None:
        self.log = work / "log"
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        checkpoint = policy if isinstance(policy, Path) else policy.save(work / "checkpoint")
        self.command = serve_command(checkpoint, port=self.port, dtype="float32")
        self.command += f" --max-model-len {LENGTH} --gpu-memory-utilization 0.1 --enforce-eager"
        self.command += """ --limit-mm-per-prompt '{"image": 3}'"""

    def start(self) -> None:
        home = Path(sys.executable).parent
        environment = {**os.environ, "PATH": f"{home}{os.pathsep}{os.environ['PATH']}"}
        with self.log.open("a") as log:
            self.process = subprocess.Popen(
                ["bash", "-c", f"exec env {self.command}"],
                env=environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def wait(self) -> None:
        # for as long as it lives: a busy machine takes minutes, and the test has a limit of its own
        while self.process.poll() is None:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.5)
        raise AssertionError(self.log.read_text()[-2000:])

    def kill(self) -> None:
        """The server and its workers, which have a session of their own."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(60)


@contextmanager
def engine_of(
    kind: str, work: Path, policy: Policy, served: Callable[[], Server]
) -> Iterator[RolloutEngine]:
    """vLLM `in process`, or the one that `served` makes: started here, and killed at the end."""
    if kind == "in process":
        made = VllmEngine(policy, work, max_model_len=LENGTH, memory=0.1)
        yield made
        made.close()
        return
    server = served()
    server.start()
    try:
        server.wait()
        yield VllmServerEngine(server.url, work, wait=240.0)
    finally:
        server.kill()
