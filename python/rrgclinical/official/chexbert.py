"""f1chexbert itself, as a labeller."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from transformers import BertConfig

from rrgclinical.chexbert.checkpoint import locate_weights
from rrgclinical.chexbert.pieces import read_vocabulary, refuse_foreign
from rrgclinical.common.arguments import check_reports
from rrgclinical.labels import CELLS, OBSERVATIONS
from rrgclinical.official.process import Worker


class OfficialCheXbert:
    """The package in its own environment, one report a forward."""

    def __init__(
        self,
        weights: str | Path | None = None,
        tokenizer: str | Path | None = None,
        *,
        config: BertConfig | None = None,
        python: str | Path | None = None,
        worker: Worker | None = None,
    ) -> None:
        """weights, tokenizer, config: as `CheXbertLabeller`. python: of the environment.
        worker: a running one to share, in place of one of its own.

        Raises:
            UserError: no environment, or files that are absent or hold something else.
            OracleError: the package does not load them.
        """
        path = locate_weights(weights)
        shape = config or BertConfig()
        vocabulary = read_vocabulary(tokenizer, shape.vocab_size)
        if config is None:
            refuse_foreign(vocabulary)
        self.worker = worker or Worker(python)
        cached = self.worker.folder / "chexbert" / "chexbert.pth"
        cached.parent.mkdir(exist_ok=True)
        cached.unlink(missing_ok=True)
        cached.symlink_to(path.resolve())
        # The package asks for this name, and takes the folder of it in its working directory.
        body = self.worker.folder / "bert-base-uncased"
        shape.save_pretrained(body)
        listed = sorted(vocabulary, key=vocabulary.__getitem__)
        (body / "vocab.txt").write_text("".join(f"{piece}\n" for piece in listed), "utf-8")
        self._model = self.worker.call("chexbert_load", checkpoint=str(path.resolve()))

    def label(self, reports: Sequence[str]) -> np.ndarray:
        """int8 `[R, 14]` class ids. Raises TypeError, OracleError."""
        rows = self.worker.call(
            "chexbert_labels", model=self._model, reports=check_reports(reports)
        )
        cells = [[CELLS.index(cell) for cell in row] for row in rows]
        return np.array(cells, dtype=np.int8).reshape(-1, len(OBSERVATIONS))

    def ids(self, reports: Sequence[str]) -> list[list[int]]:
        """List the piece ids that the encoder reads of each report."""
        return self.worker.call("chexbert_ids", model=self._model, reports=check_reports(reports))

    def f1(self, candidates: Sequence[str], references: Sequence[str]) -> list[Any]:
        """The package's (accuracy, accuracy of each, report over 14, report over five)."""
        return self.worker.call(
            "chexbert_f1",
            model=self._model,
            candidates=check_reports(candidates),
            references=check_reports(references),
        )
