"""Hold our readers to the official packages, on the published weights and reports of yours.

    python examples/real_weights.py FOLDER --reports annotation.json

examples/real_weights.md says what FOLDER holds. Prints each file's SHA-256, then a line a term.
Exits 1 where one is not as it should be.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rrgtrain.rewards import RewardService
from rrgtrain.schema import RewardSettings

# Share of reports that score alike. RaTEScore breaks ties between cosines either way.
ALIKE = {"label_f1": 1.0, "radgraph": 1.0, "ratescore": 0.8}
TOLERANCE = 1e-5
FILES = {
    "chexbert": {"weights": "chexbert.pth", "tokenizer": "bert-base-uncased"},
    "radgraph": {"weights": "radgraph-xl.tar.gz"},
    "ratescore": {"ner": "RaTE-NER-Deberta", "embedder": "BioLORD-2023-C"},
}


def both(
    options: Mapping[str, dict[str, Any]],
    reports: Sequence[str],
    references: Sequence[str],
    **official: Any,
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Score reports by our readers and by the packages: {term: (ours, theirs)}, float64 [N].

    options: as FILES, with paths. official: more options of the packages, as their worker.
    """
    theirs = {f"{name}-official": {**own, **official} for name, own in options.items()}
    sides = []
    for side in ("", "-official"):
        terms = {"label_f1": 1.0, f"radgraph{side}": 1.0, f"ratescore{side}": 1.0}
        settings = RewardSettings(
            terms=terms, labeller=f"chexbert{side}", options={**options, **theirs}
        )
        scores = RewardService(settings)(reports, references)
        sides.append([np.asarray(scores[term], dtype=np.float64) for term in terms])
    return dict(zip(ALIKE, zip(*sides, strict=True), strict=True))


def main(words: Sequence[str] | None = None) -> int:
    """Print the digests, and how many reports score alike."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--reports", type=Path, required=True, help="R2Gen's annotation.json")
    asked = parser.parse_args(words)
    for file in sorted(path for path in asked.folder.rglob("*") if path.is_file()):
        with file.open("rb") as stream:
            print(hashlib.file_digest(stream, "sha256").hexdigest(), file.relative_to(asked.folder))
    options = {n: {k: f"{asked.folder / v}" for k, v in own.items()} for n, own in FILES.items()}
    splits = json.loads(asked.reports.read_text(encoding="utf-8"))
    texts = [study["report"] for split in splits.values() for study in split][:501]
    wrong = 0
    for name, (ours, theirs) in both(options, texts[:-1], texts[1:]).items():
        apart = np.abs(ours - theirs)
        share = float((apart <= TOLERANCE).mean())
        wrong += share < ALIKE[name]
        print(f"{name}: {share:.1%} of {len(ours)} alike, largest difference {apart.max():.2g}")
    print("all is well" if not wrong else f"{wrong} of these are not as they should be")
    return int(wrong > 0)


if __name__ == "__main__":
    raise SystemExit(main())
