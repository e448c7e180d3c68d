"""Measure what choosing one of N reports costs beside reading their texts once.

    python -m experiments.choose --data annotation.json
    python -m experiments.choose --data annotation.json --studies 64 --candidates 16

`rrgtrain generate --candidates N --choose mbr` chooses by `rrgtrain.run.choose`.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from rrgclinical.severity import Severity
from rrgtrain.config import load_config
from rrgtrain.errors import UserError
from rrgtrain.run.choose import chooser
from rrgtrain.schema import Recipe

TERMS = ("severity", "match", "entity_f1")
ROUNDS = 3


def main() -> None:
    """Print the least seconds of each term in `ROUNDS`, over those of reading."""
    parser = argparse.ArgumentParser(description="What choosing costs beside reading.")
    parser.add_argument("--data", type=Path, required=True, help="annotation.json of IU X-Ray")
    parser.add_argument("--studies", type=int, default=64)
    parser.add_argument("--candidates", type=int, default=16)
    options = parser.parse_args()
    splits = json.loads(options.data.read_text(encoding="utf-8"))
    texts = list(dict.fromkeys(s["report"] for rows in splits.values() for s in rows))
    if len(texts) < (total := options.studies * options.candidates):
        raise UserError(f"{len(texts)} distinct reports; wanted {total}")
    texts = [texts[i] for i in np.random.default_rng(0).permutation(len(texts))[:total]]
    studies = [texts[i :: options.studies] for i in range(options.studies)]
    seconds: dict[str, float] = {}
    for name in ("reading", *TERMS) * ROUNDS:
        # a process each: sentences that one has read would be cheaper for the next
        with ProcessPoolExecutor(1, get_context("spawn")) as process:
            own = process.submit(_seconds, name, studies).result()
        seconds[name] = min(own, seconds.get(name, own))
    for name, own in seconds.items():
        ratio = own / seconds["reading"]
        print(f"{name}, {total} texts: {own:.2f} s, {ratio:.2f} times reading by severity")


def _seconds(name: str, studies: Sequence[Sequence[str]]) -> float:
    texts = [text for row in studies for text in row]
    Severity().read(texts[:1])
    size, recipe = len(studies[0]), load_config(Recipe, None, ["generate.temperature=1"])
    choose = None if name == "reading" else chooser(recipe, size, "mbr", name)
    began = time.process_time()
    if choose is None:
        Severity().read(texts)
    else:
        choose(studies)
    return time.process_time() - began


if __name__ == "__main__":
    main()
