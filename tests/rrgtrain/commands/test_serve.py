"""`rrgtrain serve`: the scores of the service, and the line of its end."""

from __future__ import annotations

import os
import signal
import threading
import time
from contextlib import suppress

import pytest

from rrgclinical.serving import RewardClient, ServiceError
from rrgclinical.serving.app import listen
from rrgtrain.cli import main
from rrgtrain.rewards import RewardService
from rrgtrain.schema import RewardSettings

TERMS = {"label_f1": 1.0, "match": 0.5, "bleu2": 0.25}
SETTINGS = ["reward.terms={label_f1: 1, match: 0.5, bleu2: 0.25}", "reward.starts={bleu2: 0.8}"]
REFERENCES = ("Small left effusion. No edema.", "The lungs are clear.", "Cardiomegaly.")


REPORT = "Large edema. No effusion."


def test_a_signal_ends_it_with_a_line_and_starts_are_followed(capsys):
    with listen("127.0.0.1", 0) as free:
        port = free.getsockname()[1]
    found: list[dict[str, list[float]]] = []

    def ask() -> None:
        client = RewardClient(f"http://127.0.0.1:{port}")
        end = time.monotonic() + 60
        while not found and time.monotonic() < end:
            with suppress(ServiceError):  # it has not begun to listen
                scores = [client([REPORT], REFERENCES[:1], p) for p in (0.5, 1.0)]
                found.extend({k: v.tolist() for k, v in own.items()} for own in scores)
        os.kill(os.getpid(), signal.SIGTERM)

    asking = threading.Thread(target=ask)
    asking.start()
    assert main(["serve", "--port", str(port), *SETTINGS]) == 0
    asking.join(60)
    here = RewardService(RewardSettings(terms=TERMS, starts={"bleu2": 0.8}))
    for own, progress in zip(found, (0.5, 1.0), strict=True):
        scores = here([REPORT], REFERENCES[:1], progress)
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
