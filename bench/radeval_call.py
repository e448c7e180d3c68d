"""Call RadEval's RadGraph and CheXbert metrics on local files of random weights.

RadEval reads its models from the hub by name; here those names lead to a folder, and nothing else
of it is changed. Its RadGraph of 2.2.1 imports itself as `RadEval`, a name that its wheel does not
have where file names know capitals, so that name is lent to it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest import mock

from transformers import BertConfig, BertTokenizer

from rrgclinical.radgraph.archive import read_archive, unpack

Way = Callable[[Sequence[str], Sequence[str]], Any]
"""Candidates against references."""


def radgraph(folder: Path) -> Way:
    """Build RadEval with the RadGraph archive of a folder; ImportError without RadEval."""
    sys.modules.setdefault("RadEval", import_module("radeval"))
    core = import_module("radeval.metrics.radgraph._vendor.core")
    unpack(read_archive(folder / "archive", None).place, folder / "radeval" / "radgraph-xl")
    with mock.patch.object(core, "CACHE_DIR", str(folder / "radeval")):
        return _called("radgraph")


def chexbert(folder: Path) -> Way:
    """Build RadEval with weights.pth and vocab.txt of a folder; ImportError without RadEval."""
    module = import_module("radeval.metrics.f1chexbert.f1chexbert")
    tokenizer = BertTokenizer(str(folder / "vocab.txt"))
    with (
        mock.patch.object(module, "hf_hub_download", return_value=str(folder / "weights.pth")),
        mock.patch.object(module.AutoConfig, "from_pretrained", return_value=BertConfig()),
        mock.patch.object(module.BertTokenizer, "from_pretrained", return_value=tokenizer),
        # its own call takes a GPU for granted
        mock.patch.object(module, "F1CheXbert", partial(module.F1CheXbert, device="cpu")),
    ):
        return _called("f1chexbert")


def _called(metric: str) -> Way:
    score = import_module("radeval").RadEval(metrics=[metric], per_sample=True, show_progress=False)
    return lambda ours, theirs: score(refs=list(theirs), hyps=list(ours))
