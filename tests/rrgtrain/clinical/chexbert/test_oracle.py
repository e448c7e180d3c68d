"""The official package's own answers on the same weight file, where somebody has recorded them.

RRG_CHEXBERT_ORACLE names a folder that the package's environment wrote: weights.pth, vocab.txt,
config.json (BertConfig; absent for bert-base) and golden.json, {"reports": [...], "ids": [[...]],
"labels": [[14 class ids]]}. The package needs older libraries, so it never runs in this one.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
from transformers import BertConfig

from rrgtrain.clinical.chexbert import CheXbertLabeller
from tests.rrgtrain.clinical.chexbert import tiny


def compare(folder: Path) -> None:
    golden = json.loads((folder / "golden.json").read_text())
    shape = folder / "config.json"
    config = BertConfig(**json.loads(shape.read_text())) if shape.exists() else None
    labeller = CheXbertLabeller(folder / "weights.pth", folder, config=config)
    assert [one.ids for one in labeller.tokenize(golden["reports"])] == golden["ids"]
    assert labeller.label(golden["reports"]).tolist() == golden["labels"]


@pytest.mark.skipif("RRG_CHEXBERT_ORACLE" not in os.environ, reason="needs RRG_CHEXBERT_ORACLE")
def test_the_official_package_agrees():
    compare(Path(os.environ["RRG_CHEXBERT_ORACLE"]))


def test_the_comparison_can_fail(tmp_path):
    tiny.write_folder(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(tiny.CONFIG.to_dict()))
    texts = tiny.reports(3)
    labels = np.array(tiny.official_labels(texts, tmp_path))
    ids = [one.ids for one in tiny.labeller(tmp_path).tokenize(texts)]
    golden = {"reports": texts, "ids": ids, "labels": labels.tolist()}
    (tmp_path / "golden.json").write_text(json.dumps(golden))
    compare(tmp_path)
    golden["labels"][1][4] = (golden["labels"][1][4] + 1) % 4
    (tmp_path / "golden.json").write_text(json.dumps(golden))
    with pytest.raises(AssertionError):
        compare(tmp_path)
