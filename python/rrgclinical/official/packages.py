"""radgraph, f1chexbert and RaTEScore themselves, behind the interfaces of the native ones."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from transformers import BertConfig

from rrgclinical.chexbert.checkpoint import locate_weights
from rrgclinical.chexbert.pieces import read_vocabulary, refuse_foreign
from rrgclinical.common import json_reader
from rrgclinical.common.arguments import check_pairs, check_reports
from rrgclinical.common.errors import UserError
from rrgclinical.entities import Entities
from rrgclinical.labels import CELLS, OBSERVATIONS
from rrgclinical.official.process import Worker
from rrgclinical.radgraph.archive import read_archive, unpack
from rrgclinical.radgraph.extractor import entities_of, kinds_of
from rrgclinical.radgraph.graph import CASES, Graph, RadGraphF1, build_graph
from rrgclinical.radgraph.words import EMPTY, split_words


class OfficialRadGraph:
    """The package in its own environment, one report a forward."""

    def __init__(
        self,
        weights: str | Path | None = None,
        model_type: str | None = None,
        *,
        encoder: str | Path | None = None,
        case: str = "pypi",
        python: str | Path | None = None,
        worker: Worker | None = None,
    ) -> None:
        """weights, model_type, encoder, case: as `RadGraph`. python: of the environment.
        worker: a running one to share, in place of one of its own.

        Raises:
            UserError: no environment, or files that are absent or hold something else.
            OracleError: the package does not load them.
        """
        if case not in CASES:
            raise UserError(f"radgraph: case {case!r}; choose {' or '.join(CASES)}")
        archive = read_archive(weights, model_type)
        self.model_type, self.ner, self.case = archive.model_type, archive.ner, case
        self.worker = worker or Worker(python)
        place = Path(tempfile.mkdtemp(dir=self.worker.folder)) / archive.model_type
        unpack(archive.place, place)
        if encoder is not None:
            _point_at(place / "config.json", Path(encoder).expanduser().resolve())
        self._model = self.worker.call(
            "radgraph_load", model_type=archive.model_type, cache=str(place.parent)
        )

    def annotate(self, reports: Sequence[str]) -> list[Graph]:
        """The graph of every report. Raises TypeError, OracleError.

        The package cannot read a report of white space alone, which has no word.
        """
        texts = check_reports(reports)
        readable = [text for text in texts if not text or text.strip()]
        graphs = iter(self.official(readable))
        return [
            self._graph(text, next(graphs)) if not text or text.strip() else _NOTHING
            for text in texts
        ]

    def official(self, reports: Sequence[str]) -> list[dict[str, Any]]:
        return self.worker.call("radgraph_annotate", model=self._model, reports=list(reports))

    def f1(self, candidates: Sequence[str], references: Sequence[str]) -> list[RadGraphF1]:
        ours, theirs = check_pairs(candidates, references)
        if self.case == "pypi":
            rows = self.worker.call(
                "radgraph_f1", model=self._model, candidates=ours, references=theirs
            )
            return [RadGraphF1(*row) for row in rows]
        whole = [row for row in range(len(ours)) if ours[row] and theirs[row]]
        annotations = self.official([text for row in whole for text in (ours[row], theirs[row])])
        pairs = list(zip(annotations[::2], annotations[1::2], strict=True))
        scores = self.worker.call("radgraph_rewards", pairs=pairs, lower=True)
        result = [RadGraphF1(0.0, 0.0, 0.0)] * len(ours)
        for row, score in zip(whole, scores, strict=True):
            result[row] = RadGraphF1(*score)
        return result

    def _graph(self, text: str, annotation: dict[str, Any]) -> Graph:
        entities = annotation["entities"]
        places = {number: (one["start_ix"], one["end_ix"]) for number, one in entities.items()}
        split = split_words(text, self.model_type) if text else [(EMPTY, 0, 0)]
        return build_graph(
            annotation["text"].split(" "),
            [(start, end) for _, start, end in split],
            # The package does not say in how many parts it read a report.
            1,
            [(*places[number], one["label"]) for number, one in entities.items()],
            [
                (*places[number], *places[other], label)
                for number, one in entities.items()
                for label, other in one["relations"]
            ],
        )


class OfficialRadGraphExtractor:
    """Its entities for EditGRPO, as `RadGraphExtractor` gives them."""

    def __init__(
        self,
        weights: str | Path | None = None,
        model_type: str | None = None,
        *,
        encoder: str | Path | None = None,
        python: str | Path | None = None,
    ) -> None:
        self.radgraph = OfficialRadGraph(weights, model_type, encoder=encoder, python=python)
        self._kinds = kinds_of(self.radgraph.ner)

    def extract(self, reports: Sequence[str]) -> Entities:
        """Entities ordered by report, then position."""
        texts = check_reports(reports)
        return entities_of(texts, self.radgraph.annotate(texts), self._kinds)


_NOTHING = build_graph((), (), 0, (), ())


def _point_at(config: Path, encoder: Path) -> None:
    """Write the encoder's folder where the package reads the encoder's name."""
    content = json_reader.read(config, dict)
    indexer = content["dataset_reader"]["token_indexers"]["bert"]
    embedder = content["model"]["embedder"]["token_embedders"]["bert"]
    indexer["model_name"] = embedder["model_name"] = str(encoder)
    config.unlink()
    config.write_text(json.dumps(content), "utf-8")


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
        self.model = self.worker.call("chexbert_load", checkpoint=str(path.resolve()))

    def label(self, reports: Sequence[str]) -> np.ndarray:
        """int8 `[R, 14]` class ids. Raises TypeError, OracleError."""
        rows = self.worker.call("chexbert_labels", model=self.model, reports=check_reports(reports))
        cells = [[CELLS.index(cell) for cell in row] for row in rows]
        return np.array(cells, dtype=np.int8).reshape(-1, len(OBSERVATIONS))


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
        self.model = self.worker.call(
            "ratescore_load",
            ner=str(Path(ner).expanduser().resolve()),
            embedder=str(Path(embedder).expanduser().resolve()),
            affinity=affinity,
            neg_weight=neg_weight,
            batch_size=batch_size,
        )

    def score(self, candidates: Sequence[str], references: Sequence[str]) -> np.ndarray:
        """Score pairs: float64 [R], row r for pair r.

        The package leaves a pair with an empty report out of its list, which shifts the others;
        here it keeps its place, with 0.5.
        """
        ours, theirs = check_pairs(candidates, references)
        scores = self.worker.call(
            "ratescore_aligned", model=self.model, candidates=ours, references=theirs
        )
        return np.array([NEUTRAL if one is None else one for one in scores], dtype=np.float64)
