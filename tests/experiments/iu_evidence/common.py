"""Made-up reports in the files of IU X-Ray, and results with planted numbers."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np

from experiments.human_codes import CODED
from experiments.replicate.results import Result

SENTENCES = (
    "The heart is enlarged.",
    "There is a small left pleural effusion.",
    "Right lower lobe atelectasis.",
    "The lungs are clear.",
    "A right pneumothorax is present.",
    "No pleural effusion or pneumothorax.",
)


def iu_directory(root: Path, studies: int = 40) -> Path:
    """Write `studies` made-up studies as annotation, sections and human codes."""
    rng = np.random.default_rng(0)
    annotation: dict[str, list[dict[str, Any]]] = {"train": [], "val": [], "test": []}
    columns = [column for columns in CODED.values() for column in columns]
    rows, sections = [], []
    for number in range(1, studies + 1):
        report = " ".join(rng.choice(SENTENCES, size=2, replace=False))
        split = ("train", "train", "val", "test")[number % 4]
        annotation[split].append({"id": f"CXR{number}_IM-{number:04}", "report": report})
        sections.append({"id": f"CXR{number}", "findings": report, "impression": ""})
        rows.append(
            {"filename": f"CXR{number}"} | {c: str(int(c.lower() in report)) for c in columns}
        )
    root.mkdir(parents=True, exist_ok=True)
    (root / "annotation.json").write_text(json.dumps(annotation))
    (root / "sections.jsonl").write_text("\n".join(map(json.dumps, sections)))
    with (root / "mesh_labels_14.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, ["filename", *columns])
        writer.writeheader()
        writer.writerows(rows)
    return root


def planted(predicted: np.ndarray, truth: np.ndarray, **facts: Any) -> Result:
    """A result of class ids [R, 14]; the codes are the truth's of the coded columns."""
    from experiments.iu_evidence.judge import CODED_COLUMNS

    studies = len(truth)
    own = {
        "predicted": ["".join(map(str, row)) for row in predicted],
        "truth": ["".join(map(str, row)) for row in truth],
        "codes": ["".join(map(str, row)) for row in truth[:, CODED_COLUMNS]],
        "bleu4": [0.1] * studies,
        "words": [30] * studies,
        "sentences": [4] * studies,
        "unheard": [1] * studies,
        "curves": {},
    }
    return Result({}, "command", "abc", {}, {**own, **facts})
