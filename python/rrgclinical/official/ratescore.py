"""RaTEScore itself, behind the interface of the native one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from rrgclinical.common.arguments import check_reports
from rrgclinical.common.errors import UserError
from rrgclinical.official.process import Worker

# What the package gives a pair of which one report has no entity.
NEUTRAL = 0.5


class OfficialRaTEScore:
    """The package (0.6.0) in its own environment."""

    def __init__(  # noqa: PLR0913
        self,
        ner: str | Path,
        embedder: str | Path,
        *,
        affinity: str = "long",
        neg_weight: float | None = None,
        batch_size: int = 1,
        python: str | Path | None = None,
        worker: Worker | None = None,
    ) -> None:
        """
        Args:
            ner: folder of RaTE-NER-Deberta.
            embedder: folder of BioLORD-2023-C.
            affinity: "long" or "short", the table of weights.
            neg_weight: for pairs of opposite polarity; by default the table's (0.8717 long, 0.3612
                short). Version 0.5.0 is the long table with 0.3612.
            batch_size: sentences a forward.
            python: of the environment.
            worker: a running one to share, in place of one of its own.

        Raises:
            UserError: no environment, or no such folder.
            OracleError: the package does not load them.
        """
        for folder in (ner, embedder):
            if not Path(folder).expanduser().is_dir():
                raise UserError(f"ratescore: no folder {folder}; pass that of the downloaded model")
        self.worker = worker or Worker(python)
        self._model = self.worker.call(
            "ratescore_load",
            ner=str(Path(ner).expanduser().resolve()),
            embedder=str(Path(embedder).expanduser().resolve()),
            affinity=affinity,
            neg_weight=neg_weight,
            batch_size=batch_size,
        )

    def sentences(self, reports: Sequence[str]) -> list[list[str]]:
        """The sentences that the package reads of each report."""
        return self.worker.call("ratescore_sentences", reports=check_reports(reports))

    def entities(self, reports: Sequence[str]) -> list[list[tuple[str, str]]]:
        """(text, type) of every entity, in the package's order."""
        entities = self.worker.call(
            "ratescore_entities", model=self._model, reports=check_reports(reports)
        )
        return [[(text, kind) for text, kind in row] for row in entities]

    def score(self, candidates: Sequence[str], references: Sequence[str]) -> np.ndarray:
        """Score pairs: float64 [R], row r for pair r.

        The package leaves a pair with an empty report out of its list, which shifts the others;
        here it keeps its place, with 0.5.
        """
        ours, theirs = check_reports(candidates), check_reports(references)
        if len(ours) != len(theirs):
            raise ValueError(f"{len(ours)} candidates with {len(theirs)} references")
        scores = self.worker.call(
            "ratescore_aligned", model=self._model, candidates=ours, references=theirs
        )
        return np.array([NEUTRAL if one is None else one for one in scores], dtype=np.float64)

    def as_called(self, candidates: Sequence[str], references: Sequence[str]) -> list[float]:
        """The package's own list, for timing: shorter where a report has no sentence."""
        return self.worker.call(
            "ratescore_scores",
            model=self._model,
            candidates=check_reports(candidates),
            references=check_reports(references),
        )
