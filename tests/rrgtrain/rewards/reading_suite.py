"""Ask the readers of several ranks, and keep what they score: `test_spending`.

words: a directory. Each rank writes `Read` to <directory>/<rank>.pickle.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from rrgclinical import Entities, build_extractor, build_labeller
from rrgdata.study import Study
from rrgpolicy.ranks import ranks
from rrgtrain.errors import RewardError
from rrgtrain.rewards import RewardService
from rrgtrain.schema import RewardSettings
from tests.rrgpolicy.model.common import REPORTS

TERMS = ("label_f1", "entity_f1", "match", "inverse_frequency", "cider")
EPOCHS, MEMBERS = 3, 2


@dataclass
class Read:
    """Texts that the labeller and the extractor read, scores by epoch, and errors by place."""

    labelled: list[str] = field(default_factory=list)
    extracted: list[str] = field(default_factory=list)
    scores: list[dict[str, np.ndarray]] = field(default_factory=list)
    errors: dict[str, str] = field(default_factory=dict)


class Counting:
    """The rules, which remember what they read and fail where they are told to."""

    fingerprint = "counting"

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.fails = False

    def _note(self, reports: Sequence[str]) -> None:
        if self.fails and reports:
            raise MemoryError("the reader's GPU is full")
        self.texts.extend(reports)

    def label(self, reports: Sequence[str]) -> np.ndarray:
        self._note(reports)
        return build_labeller("rules").label(reports)

    def extract(self, reports: Sequence[str]) -> Entities:
        self._note(reports)
        return build_extractor("rules").extract(reports)


def studies() -> list[Study]:
    """Nine studies with eight reports: two ranks meet the same text in one step."""
    texts = [f"{REPORTS[i % len(REPORTS)]} Case {i}." for i in range(8)]
    return [Study(f"s{i}", "train", text, None, ()) for i, text in enumerate([*texts, texts[1]])]


def reports(study: Study, epoch: int) -> list[str]:
    return [f"{study.report} Seen {study.id}.{epoch}.{m}." for m in range(MEMBERS)]


def epoch_scores(rewards: RewardService, epoch: int) -> dict[str, np.ndarray]:
    """Scores of every study's reports, in the order of the studies, as a step reads them."""
    order = [*range(epoch, 9), *range(epoch)]  # in each epoch a study falls to another rank
    own = ranks.shard([studies()[i] for i in order])
    ahead = rewards.prefetch(own)
    texts = [text for study in own for text in reports(study, epoch)]
    ahead.result()
    scores = dict(rewards(texts, [study for study in own for _ in range(MEMBERS)]))
    parts = ranks.gather({name: list(v.reshape(-1, MEMBERS)) for name, v in scores.items()})
    return {n: np.stack(ranks.unshard([part[n] for part in parts])) for n in scores}


def error_of(call: Callable[[], object]) -> str:
    """The line that this rank ends with where another fails in `call`."""
    try:
        with ranks.propagate_errors():
            call()
            ranks.barrier()
    except RewardError as error:
        return str(error)
    return "no error"


def main(words: list[str]) -> int:
    """Reads and scores; then the reader of the last rank fails."""
    home = Path(words[0])
    labeller, extractor = Counting(), Counting()
    settings = RewardSettings(terms=dict.fromkeys(TERMS, 1.0), cache=str(home / "cache"))
    mode = "fsdp2" if ranks.processes() > 1 else "none"
    with ranks.opened(mode, 120.0, cuda=False), ranks.propagate_errors():
        rewards = RewardService(settings, labeller, extractor)
        rewards.fit(studies())
        rewards.count_corpus()
        found = Read(labeller.texts, extractor.texts)
        found.scores = [epoch_scores(rewards, epoch) for epoch in range(EPOCHS)]
        found = Read(list(found.labelled), list(found.extracted), found.scores)
        labeller.fails = ranks.rank() == ranks.size() - 1
        unread = [Study(f"n{i}", "train", f"Unread {i}.", None, ()) for i in range(8)]
        found.errors["ahead"] = error_of(lambda: rewards.prefetch(ranks.shard(unread)).result())
        rewards.fit(unread)
        found.errors["corpus"] = error_of(rewards.count_corpus)
        (home / f"{ranks.rank()}.pickle").write_bytes(pickle.dumps(found))
    ranks.close()
    return 0
