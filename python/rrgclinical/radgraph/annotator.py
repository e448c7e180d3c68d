"""`RadGraph`: reports in, graphs out, in the order given."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from itertools import accumulate, chain
from pathlib import Path

import torch
from torch import Tensor

from rrgclinical.cached import CAPACITY, Cached, store_of
from rrgclinical.common.arguments import check_pairs, check_reports
from rrgclinical.common.errors import UserError
from rrgclinical.inference import fingerprint, length_sorted, place_network
from rrgclinical.radgraph.archive import read_archive
from rrgclinical.radgraph.checkpoint import load_network
from rrgclinical.radgraph.graph import CASES, Entity, Graph, RadGraphF1, build_graph, radgraph_f1
from rrgclinical.radgraph.pieces import WordTokenizer, read_order, word_places
from rrgclinical.radgraph.words import EMPTY, spelling, split_words

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Report:
    """sequence: what the encoder reads, in rows of the archive's max_length. places: in it, the
    states of each word.
    """

    words: list[str]
    spans: list[tuple[int, int]]
    sequence: list[int]
    places: list[list[int]]
    rows: int


class RadGraph:
    """RadGraph from an official archive, in batches.

    In fp32 the graphs are those of the official package, one report at a time, unless two scores
    that it compares differ by no more than rounding.
    """

    def __init__(  # noqa: PLR0913
        self,
        weights: str | Path | None = None,
        model_type: str | None = None,
        *,
        encoder: str | Path | None = None,
        device: str | torch.device = "cpu",
        dtype: str = "fp32",
        token_budget: int | None = None,
        case: str = "pypi",
    ) -> None:
        """Nothing is downloaded, unless `weights` is "hub".

        Args:
            weights: radgraph.tar.gz, radgraph-xl.tar.gz or modern-radgraph-xl.tar.gz of the
                Hugging Face repository StanfordAIMI/RRG_scorers, or a folder with its content.
            model_type: which of the three; by default what the archive holds.
            encoder: folder with config.json and tokenizer of the encoder; by default what the
                archive's config.json names, a folder or a hub name in the local cache.
            device: where the network runs.
            dtype: "fp32" or "bf16" for the encoder; the heads are fp32 in both.
            token_budget: largest padded batch in pieces; by default 1024 on a CPU, 32768 elsewhere.
            case: whose F1, see `radgraph_f1`.

        Raises:
            UserError: an option that cannot be, or a file that is absent or holds something else.
        """
        placement = place_network("radgraph", device, dtype, token_budget)
        self.device, self.token_budget = placement.device, placement.token_budget
        if case not in CASES:
            raise UserError(f"radgraph: case {case!r}; choose {' or '.join(CASES)}")
        archive = read_archive(weights, model_type)
        source = encoder or archive.shape.encoder
        network = load_network(archive, source, weights == "hub")
        network.encoder.to(placement.dtype)
        self.network = network.to(self.device)
        self.model_type, self.shape = archive.model_type, archive.shape
        self.ner, self.relations = archive.ner, archive.relations
        self.case = case
        self._pieces = WordTokenizer(source, weights == "hub")
        self._dtype = dtype
        self._warned = False

    @cached_property
    def fingerprint(self) -> str:
        """Digest of all that a graph depends on; `case` is no part of it."""
        shape = replace(self.shape, encoder="")
        settings = (self.model_type, shape, self.ner, self.relations, self._dtype)
        vocabulary = self._pieces.vocabulary()
        return fingerprint((self.network,), *settings, vocabulary, reader=__file__)

    def annotate(self, reports: Sequence[str]) -> list[Graph]:
        """Read the graph of every report.

        One of white space alone has no word and no entity; an empty one is read as "None" (see
        `Graph`).

        Raises:
            TypeError: a report is not a str.
            FloatingPointError: scores that are not finite.
        """
        texts = check_reports(reports)
        distinct = {text: self._tokenize(text) for text in texts}
        read = list(distinct.values())
        graphs = self._read(read)
        self._warn_folded(read)
        of_text = dict(zip(distinct, graphs, strict=True))
        return [of_text[text] for text in texts]

    def f1(self, candidates: Sequence[str], references: Sequence[str]) -> list[RadGraphF1]:
        """RadGraph-F1 of each candidate against its reference; 0 where either is empty.

        Raises:
            TypeError: a report is not a str.
            ValueError: more of one than of the other.
        """
        ours, theirs = check_pairs(candidates, references)
        graphs = self.annotate([text for pair in zip(ours, theirs, strict=True) for text in pair])
        return [
            radgraph_f1(graphs[2 * row], graphs[2 * row + 1], case=self.case)
            if ours[row] and theirs[row]
            else RadGraphF1(0.0, 0.0, 0.0)
            for row in range(len(ours))
        ]

    def _tokenize(self, text: str) -> _Report:
        split = split_words(text, self.model_type) if text else [(EMPTY, 0, 0)]
        words = [word for word, _, _ in split]
        pieces = self._pieces([spelling(word) for word in words])
        row = self.shape.segment
        sequence = self._pieces.sequence(list(chain.from_iterable(pieces)), row)
        return _Report(
            words,
            [(start, end) for _, start, end in split],
            sequence,
            word_places(pieces, read_order(len(sequence), row)),
            -(-len(sequence) // row),
        )

    def _read(self, reports: list[_Report]) -> list[Graph]:
        graphs: list[Graph | None] = [
            None if report.words else build_graph((), (), 0, (), ()) for report in reports
        ]
        readable = [row for row, graph in enumerate(graphs) if graph is None]
        lengths = [len(reports[row].sequence) for row in readable]
        for chosen in length_sorted(lengths, self.token_budget):
            rows = [readable[c] for c in chosen]
            for row, graph in zip(rows, self._batch([reports[row] for row in rows]), strict=True):
                graphs[row] = graph
        return [graph for graph in graphs if graph is not None]

    @torch.inference_mode()
    def _batch(self, batch: list[_Report]) -> list[Graph]:
        words = self.network.embed_words(*self._padded(batch))
        graphs = self.network(
            words,
            [len(report.words) for report in batch],
            self.shape.max_span_width,
            self.shape.spans_per_word,
        )
        entities: list[list[tuple[int, int, str]]] = [[] for _ in batch]
        for report, first, last, label in graphs.entities.tolist():
            entities[report].append((first, last, self.ner[label]))
        relations: list[list[tuple[int, int, int, int, str]]] = [[] for _ in batch]
        for report, *place, label in graphs.relations.tolist():
            first, last, other_first, other_last = place
            name = self.relations[label]
            relations[report].append((first, last, other_first, other_last, name))
        return [
            build_graph(one.words, one.spans, one.rows, entities[row], relations[row])
            for row, one in enumerate(batch)
        ]

    def _padded(self, batch: list[_Report]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """ids and mask [R, L]; where the words' states stand in R * L; where each word begins."""
        row, pad = self.shape.segment, self._pieces.pad
        # A report of words that the tokenizer deletes has no row, and the encoder wants one.
        longest = max(1, *(min(row, len(report.sequence)) for report in batch))
        ids: list[list[int]] = []
        mask: list[list[int]] = []
        places: list[int] = []
        for report in batch:
            first = len(ids)
            for begin in range(0, len(report.sequence), row):
                part = report.sequence[begin : begin + row]
                padding = longest - len(part)
                ids.append(part + [pad] * padding)
                mask.append([1] * len(part) + [0] * padding)
            for place in chain.from_iterable(report.places):
                places.append((first + place // row) * longest + place % row)
        if not ids:
            ids, mask = [[pad]], [[1]]
        sizes = [len(word) for report in batch for word in report.places]
        begins = [0, *accumulate(sizes)][:-1]
        return (
            torch.tensor(ids, device=self.device),
            torch.tensor(mask, device=self.device),
            torch.tensor(places, dtype=torch.int64, device=self.device),
            torch.tensor(begins, dtype=torch.int64, device=self.device),
        )

    def _warn_folded(self, reports: list[_Report]) -> None:
        folded = sum(report.rows > 1 for report in reports)
        if folded and not self._warned:
            self._warned = True
            _log.warning(
                "%d of %d reports exceed the %d pieces that RadGraph reads at once; they are read "
                "in parts that do not see each other, as in the official package (told once)",
                folded,
                len(reports),
                self.shape.segment,
            )


class CachedGraphs:
    """RadGraph's graphs, each distinct text read once; see `Cached`."""

    def __init__(
        self, radgraph: RadGraph, *, cache: str | Path | None = None, capacity: int = CAPACITY
    ) -> None:
        def decode(payload: bytes, text: str) -> Graph:
            fields = json.loads(payload)
            entities = tuple(
                Entity(**{**entity, "relations": tuple(map(tuple, entity["relations"]))})
                for entity in fields["entities"]
            )
            spans = tuple((a, b) for a, b in fields["spans"])
            return Graph(tuple(fields["words"]), spans, entities, fields["segments"])

        self.radgraph = radgraph
        self.results: Cached[Graph] = Cached(
            radgraph.annotate,
            store=store_of(cache, radgraph, "graphs"),
            encode=lambda graph: json.dumps(asdict(graph)).encode(),
            decode=decode,
            capacity=capacity,
        )

    def annotate(self, reports: Sequence[str], *, keep: bool = False) -> list[Graph]:
        return self.results(reports, keep=keep)
