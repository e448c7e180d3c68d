"""Choose one of N reports: minimum Bayes risk, or the longest that agrees.

    python -m experiments.choose            seconds of choosing over seconds of reading
    python -m experiments.choose --studies 64 --candidates 16

The candidates stand for what the policy believes. With the gain g(i, j) of candidate i beside j as
its reference, "mbr" takes argmax_i mean_j g(i, j): the least expected loss 1 - g (Kumar and Byrne,
2004). "longest_agreeing" takes the longest of the half with the highest gains. Ties go to the
first. By `match` all pairs of all studies are one call of `entity_match`; by `severity` each
distinct text is read once, and pairs of equal reports are judged once.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import torch

from rrgclinical.backends import build_extractor
from rrgclinical.severity import Severity, judge
from rrgkern import ReportEntities, entity_match
from rrgtrain.errors import UserError

Gains = Callable[[Sequence[Sequence[str]]], np.ndarray]
"""Of S studies of N candidates the gains, float64 [S, N, N]: candidate beside reference."""


def severity_gains(studies: Sequence[Sequence[str]]) -> np.ndarray:
    """Compute gains by `severity`."""
    reader, (count, size) = Severity(), np.shape(studies)
    texts, place = np.unique(studies, return_inverse=True)
    readings, words = reader.read(texts.tolist()), [text.split() for text in texts]
    gains = np.empty((count, size, size))
    for table, row in zip(gains, place.reshape(count, size), strict=True):
        judged: dict[tuple[int, int], float] = {}
        for pair in itertools.product(range(size), repeat=2):
            i, j = key = int(row[pair[0]]), int(row[pair[1]])
            if key not in judged:
                got, want = readings[i], readings[j]
                same = not want.present and not want.denied and words[i] == words[j]
                judged[key] = judge(got, want, reader.table, same=same).score
            table[pair] = judged[key]
    return gains


def match_gains(studies: Sequence[Sequence[str]]) -> np.ndarray:
    """Compute gains by `match`, every pair in one call of `entity_match`."""
    count, size = np.shape(studies)
    texts, place = np.unique(studies, return_inverse=True)
    read = build_extractor("rules").extract(texts.tolist())
    place = place.reshape(count, size)

    def of(reports: np.ndarray) -> ReportEntities:
        begin, end = read.offsets[reports], read.offsets[reports + 1]
        rows = np.concatenate([np.arange(a, b) for a, b in zip(begin, end, strict=True)])
        rows = rows.astype(np.int64)
        part = read.presence[rows] >= 0
        ends = np.concatenate([[0], np.cumsum(end - begin)])
        offsets = np.concatenate([[0], np.cumsum(part)])[ends]
        arrays = (offsets, read.presence[rows][part], read.embedding[rows][part])
        return ReportEntities(*map(torch.as_tensor, arrays))

    pairs = of(np.repeat(place, size, axis=1).ravel()), of(np.tile(place, size).ravel())
    return entity_match(*pairs).score.double().numpy().reshape(count, size, size)


GAINS: dict[str, Gains] = {"severity": severity_gains, "match": match_gains}


def mbr(gains: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Return the candidate of the highest mean gain, int64 [S]; `lengths` do not count."""
    return gains.mean(2).argmax(1)


def longest_agreeing(gains: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Return the longest of the half with the highest mean gains, int64 [S]."""
    means = gains.mean(2)
    median = np.sort(means, axis=1)[:, means.shape[1] // 2, None]
    return np.where(means >= median, lengths, -1).argmax(1)


RULES = {"mbr": mbr, "longest_agreeing": longest_agreeing}


def choose(
    studies: Sequence[Sequence[str]], term: str = "severity", rule: str = "mbr"
) -> list[int]:
    """Return each study's chosen candidate, by its place.

    UserError for an unknown term or rule, for no study, or studies of different numbers.
    """
    for name, table in ((term, GAINS), (rule, RULES)):
        if name not in table:
            raise UserError(f"{name} is unknown; there are {', '.join(table)}")
    counts = sorted({len(texts) for texts in studies})
    if len(counts) != 1 or not counts[0]:
        raise UserError(f"studies of {counts} candidates; give each the same number, at least 1")
    lengths = np.array([[len(text.split()) for text in texts] for texts in studies])
    return RULES[rule](GAINS[term](studies), lengths).tolist()


def main() -> None:
    """Print what choosing costs beside reading the same texts once."""
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
    seconds = {}
    for name in ("reading", *GAINS):
        # a process each: sentences that one has read would be cheaper for the next
        with ProcessPoolExecutor(1, get_context("spawn")) as process:
            seconds[name] = process.submit(_seconds, name, studies).result()
    for name, own in seconds.items():
        ratio = own / seconds["reading"]
        print(f"{name}, {total} texts: {own:.2f} s, {ratio:.2f} times reading by severity")


def _seconds(name: str, studies: Sequence[Sequence[str]]) -> float:
    texts = [text for row in studies for text in row]
    Severity().read(texts[:1])
    began = time.process_time()
    if name == "reading":
        Severity().read(texts)
    else:
        choose(studies, name)
    return time.process_time() - began


if __name__ == "__main__":
    main()
