"""`rrgtrain serve`: scores of a process of its own, and what is left when it is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress

import pytest

from rrgclinical.serving import RewardClient, ServiceError
from rrgclinical.serving.app import listen
from rrgtrain.cli import main
from rrgtrain.integrations.trl_rewards import trl_reward
from rrgtrain.rewards import RewardService
from rrgtrain.schema import RewardSettings

TERMS = {"label_f1": 1.0, "match": 0.5, "bleu2": 0.25}
SETTINGS = ["reward.terms={label_f1: 1, match: 0.5, bleu2: 0.25}", "reward.starts={bleu2: 0.8}"]
REFERENCES = ("Small left effusion. No edema.", "The lungs are clear.", "Cardiomegaly.")
FINDINGS = ("effusion", "edema", "pneumothorax", "nodule", "cardiomegaly", "atelectasis")


@contextmanager
def served() -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A service of three terms in a process of its own, and its address."""
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "rrgtrain", "serve", "--port", "0", *SETTINGS]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line.startswith("serving label_f1, match, bleu2 on http://127.0.0.1:"), line
            yield process, line.split()[-1]
        finally:
            process.kill()


def report(k: int) -> str:
    """One of 36 reports."""
    return f"Large {FINDINGS[k % 6]}. No {FINDINGS[k // 6 % 6]}."


def test_killed_under_load_it_loses_no_answered_request() -> None:
    """Every answer is whole and right; what was not answered is an error that says what to do."""
    answered: dict[int, list[float]] = {}
    errors: list[ServiceError] = []
    enough = threading.Event()

    def ask(client: RewardClient, worker: int) -> None:
        k = worker
        try:
            while True:
                rows = [report(k), report(k + 1)]
                answered[k] = client(rows, [REFERENCES[k % 3]] * 2)["total"].tolist()
                if len(answered) >= 60:
                    enough.set()
                k += 6
        except ServiceError as error:
            errors.append(error)

    with served() as (process, url), ThreadPoolExecutor(6) as pool:
        # references are read once, however often they come; by then the process has read its own
        before = read_once(url)
        calls = [pool.submit(ask, RewardClient(url, timeout=60), worker) for worker in range(6)]
        assert enough.wait(120), errors
        after = read_once(url)
        process.kill()
        for call in calls:
            call.result(60)
        assert process.wait(30) == -signal.SIGKILL
        with pytest.raises(ServiceError):
            trl_reward(RewardClient(url))(["a"], report=["b"])  # TRL's trainer stops, too
    assert after - before <= 36 + len(REFERENCES)
    assert len(errors) == 6
    for error in errors:
        assert str(error).startswith(f"the reward service at {url} is gone (")
        assert "resume the training from its checkpoint" in str(error) and "\n" not in str(error)
    here = RewardService(RewardSettings(terms=TERMS))
    for k, totals in answered.items():
        wanted = here([report(k), report(k + 1)], [REFERENCES[k % 3]] * 2)["total"].tolist()
        assert totals == wanted, k


def read_once(url: str) -> float:
    """Texts that the labeller has computed up to now."""
    with urllib.request.urlopen(f"{url}/metrics", timeout=30) as answer:
        lines = answer.read().decode().splitlines()
    name = 'rrg_reward_scorer{name="texts/labeller_computed"} '
    return next(float(line.removeprefix(name)) for line in lines if line.startswith(name))


def test_a_signal_ends_it_with_a_line_and_starts_are_followed(capsys):
    with listen("127.0.0.1", 0) as free:
        port = free.getsockname()[1]
    found: list[dict[str, list[float]]] = []

    def ask() -> None:
        client = RewardClient(f"http://127.0.0.1:{port}")
        end = time.monotonic() + 60
        while not found and time.monotonic() < end:
            with suppress(ServiceError):  # it has not begun to listen
                scores = [client([report(1)], REFERENCES[:1], p) for p in (0.5, 1.0)]
                found.extend({k: v.tolist() for k, v in own.items()} for own in scores)
        os.kill(os.getpid(), signal.SIGTERM)

    asking = threading.Thread(target=ask)
    asking.start()
    assert main(["serve", "--port", str(port), *SETTINGS]) == 0
    asking.join(60)
    here = RewardService(RewardSettings(terms=TERMS, starts={"bleu2": 0.8}))
    for own, progress in zip(found, (0.5, 1.0), strict=True):
        scores = here([report(1)], REFERENCES[:1], progress)
        assert own == {k: v.tolist() for k, v in scores.items()}
    assert capsys.readouterr().out.splitlines()[-1] == "served 2 requests, 2 reports"


def test_words_that_cannot_be_are_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    cases = [
        (["--batch", "0"], "wanted at least 1 report"),
        (["--port", "99999"], "cannot listen on 127.0.0.1:99999"),
        (["--port", "0", "reward.terms={lable_f1: 1}"], "lable_f1"),
        (["--port", "0", "reward.terms={mccs: 1}", "reward.against=labels"], "has no labels"),
    ]
    for words, line in cases:
        assert main(["serve", *words]) == 2
        told = capsys.readouterr()
        assert line in told.err.splitlines()[-1] and not told.out, told
