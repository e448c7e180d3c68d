"""The Lightning example runs: a rollout and an update a step."""

from __future__ import annotations

import runpy

import pytest
import torch

from tests.examples.contracts import EXAMPLES, record_gradients
from tests.parity.padded import peer

peer("pytorch_lightning")


@pytest.mark.filterwarnings("ignore")
def test_the_lightning_loop_updates_its_policy(monkeypatch, tmp_path) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.chdir(tmp_path)
    for name in ("PL_GLOBAL_SEED", "PL_SEED_WORKERS"):  # seed_everything leaves them behind
        monkeypatch.setenv(name, "0")
    gradients = record_gradients(monkeypatch)
    options = dict(accelerator="cpu", enable_progress_bar=False, enable_model_summary=False)
    with torch.random.fork_rng():
        main = runpy.run_path(str(EXAMPLES / "lightning_loop.py"))["main"]
        means = main(2, **options)
    assert len(means) == len(gradients) == 2
    assert all(0.0 < mean < 1.0 for mean in means) and min(gradients) > 0.0
