"""Put the rewards of a recipe behind HTTP until a signal comes."""

from __future__ import annotations

import tempfile
from contextlib import suppress
from pathlib import Path

from rrgclinical.serving.app import address_of, listen, make_app, run
from rrgclinical.serving.batcher import Batcher, BatchSettings
from rrgtrain.errors import Stopped
from rrgtrain.rewards import RewardService, refuse_left_out
from rrgtrain.run.data import read_studies, split_of
from rrgtrain.schema import DataSettings, RewardSettings


def serve(
    reward: RewardSettings, data: DataSettings, address: tuple[str, int], settings: BatchSettings
) -> None:
    """Serve a recipe's reward at an address; print where, and at the end how much.

    The training studies of `data` are read where a term counts something in them. Raises UserError
    for an address that cannot be had, and for a recipe that cannot score texts.
    """
    refuse_left_out(reward, "a trainer behind HTTP")
    with listen(*address) as listening:
        rewards = RewardService(reward)
        if rewards.counts_corpus:
            with tempfile.TemporaryDirectory() as work:
                rewards.fit(split_of(read_studies(data, Path(work)), "train"))
        # models are loaded, and what a recipe lacks is told, before anyone asks
        rewards(["No acute disease."], ["No acute disease."])
        batcher = Batcher(rewards, settings)
        where = address_of(listening)
        print(f"serving {', '.join(reward.terms)} on {where}", flush=True)
        # the signal that ends it is raised when all that was accepted is answered
        with suppress(Stopped):
            run(make_app(batcher, rewards.statistics), listening)
    counts = batcher.counts
    print(f"served {counts.requests} requests, {counts.reports} reports", flush=True)
