"""Labellers and extractors that read each text once, whoever asks and however often."""

from __future__ import annotations

import io
import json
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Generic, TypeVar

import numpy as np

from rrgclinical.backends import Extractor, Labeller
from rrgclinical.common.arguments import check_reports
from rrgclinical.entities import PER_ENTITY, Entities, join_entities, split_entities
from rrgclinical.labels import OBSERVATIONS
from rrgclinical.store import Store

T = TypeVar("T")

# Texts held in memory besides the references: a few steps' rollouts.
CAPACITY = 20_000
# References held in memory: those of a large data set (some 0.3 GB of labels and entities), not all
# that a service is asked for in months.
REFERENCES = 200_000


class Cached(Generic[T]):
    """A function of texts that is asked for each distinct text once.

    Texts asked for with `keep` (references) are kept: in the store where there is one, in memory
    otherwise, the latest `REFERENCES`; with a store, the processes of a node that ask for the same
    text compute it once. Of the others the latest `capacity` are kept. Safe to call from several
    threads; `compute` runs in one at a time.

    asked: texts asked for. computed: texts passed to `compute`. from_disk: texts the store had.
    """

    def __init__(
        self,
        compute: Callable[[list[str]], list[T]],
        *,
        store: Store | None = None,
        encode: Callable[[T], bytes] | None = None,
        decode: Callable[[bytes, str], T] | None = None,
        capacity: int = CAPACITY,
    ) -> None:
        self._compute, self._store = compute, store
        self._encode, self._decode = encode, decode
        self._capacity = capacity
        self._kept: dict[str, T] = {}
        self._recent: OrderedDict[str, T] = OrderedDict()
        self._lock = threading.Lock()
        self.asked = self.computed = self.from_disk = 0

    def __call__(self, texts: Sequence[str], *, keep: bool = False) -> list[T]:
        """One result per text, in order."""
        with self._lock:
            values: dict[str, T] = {}
            missing: list[str] = []
            for text in dict.fromkeys(texts):
                if not self._known(text, values):
                    missing.append(text)
            if keep:
                self._keep(missing, values)
            else:
                self._read(missing, values)
            self.asked += len(texts)
            for text, value in values.items():
                self._recent[text] = value
                self._recent.move_to_end(text)
            while len(self._recent) > self._capacity:
                self._recent.popitem(last=False)
            return [values[text] for text in texts]

    def _known(self, text: str, values: dict[str, T]) -> bool:
        for held in (self._kept, self._recent):
            if text in held:
                values[text] = held[text]
                return True
        payload = self._store.get(text) if self._store is not None else None
        if payload is None or self._decode is None:
            return False
        values[text] = self._decode(payload, text)
        self.from_disk += 1
        return True

    def _read(self, texts: list[str], values: dict[str, T]) -> None:
        made = self._compute(texts) if texts else []
        if len(made) != len(texts):
            raise ValueError(f"{len(texts)} texts gave {len(made)} results; wanted one each")
        self.computed += len(made)
        values.update(zip(texts, made, strict=True))

    def _keep(self, missing: list[str], values: dict[str, T]) -> None:
        if self._store is None or self._encode is None:
            self._read(missing, values)
            self._kept.update(values)
            while len(self._kept) > REFERENCES:
                del self._kept[next(iter(self._kept))]
            return
        store, encode = self._store, self._encode
        recent = [text for text in values if store.get(text) is None]

        def read(part: list[str]) -> None:
            unread = [text for text in part if not self._known(text, values)]
            self._read(unread, values)
            for text in unread:
                store.put(text, encode(values[text]))

        store.once(missing, read)
        for text in recent:
            store.put(text, encode(values[text]))


class CachedLabeller:
    """A labeller that reads each distinct text once; see `Cached`."""

    def __init__(
        self, labeller: Labeller, *, cache: str | Path | None = None, capacity: int = CAPACITY
    ) -> None:
        self.labeller = labeller
        self.results: Cached[np.ndarray] = Cached(
            # copies: a view would keep the array of the whole batch alive
            lambda texts: [row.copy() for row in labeller.label(texts)],
            store=store_of(cache, labeller, "labels"),
            encode=lambda row: row.astype(np.int8).tobytes(),
            decode=lambda payload, text: np.frombuffer(payload, dtype=np.int8),
            capacity=capacity,
        )

    def label(self, reports: Sequence[str], *, keep: bool = False) -> np.ndarray:
        """int8 `[R, 14]`, as the labeller's own."""
        rows = self.results(check_reports(reports), keep=keep)
        return np.stack(rows) if rows else np.zeros((0, len(OBSERVATIONS)), dtype=np.int8)


class CachedExtractor:
    """An extractor that reads each distinct text once; see `Cached`.

    Entities of different calls are joined, so the extractor's keys must be equal across calls.
    """

    def __init__(
        self, extractor: Extractor, *, cache: str | Path | None = None, capacity: int = CAPACITY
    ) -> None:
        self.extractor = extractor
        self.results: Cached[Entities] = Cached(
            lambda texts: split_entities(extractor.extract(texts)),
            store=store_of(cache, extractor, "entities"),
            encode=pack_entities,
            decode=unpack_entities,
            capacity=capacity,
        )

    def extract(self, reports: Sequence[str], *, keep: bool = False) -> Entities:
        """The entities of every report, as the extractor's own."""
        texts = check_reports(reports)
        if not texts:
            return self.extractor.extract([])
        return join_entities(self.results(texts, keep=keep))


def pack_entities(entities: Entities) -> bytes:
    """The entities of one report as bytes, without its text."""
    file = io.BytesIO()
    names = json.dumps(entities.text).encode()
    np.savez(
        file,
        sentences=np.array(entities.sentences[0], dtype=np.int32).reshape(-1, 2),
        names=np.frombuffer(names, dtype=np.uint8),
        **{name: getattr(entities, name) for name in PER_ENTITY},
    )
    return file.getvalue()


def unpack_entities(payload: bytes, text: str) -> Entities:
    """Unpack what `pack_entities` made of the entities of `text`."""
    with np.load(io.BytesIO(payload), allow_pickle=False) as held:
        parts = {name: held[name] for name in held.files}
    sentences = [(int(a), int(b)) for a, b in parts.pop("sentences")]
    names = json.loads(parts.pop("names").tobytes())
    offsets = np.array([0, len(names)], dtype=np.int64)
    return Entities(reports=[text], sentences=[sentences], offsets=offsets, text=names, **parts)


def store_of(cache: str | Path | None, model: object, what: str) -> Store | None:
    """Open the store of a model by its fingerprint.

    None for a model without one, which is cached in memory only.
    """
    # The digest of a network is only worth its second where it is used.
    fingerprint = getattr(model, "fingerprint", None) if cache is not None else None
    if cache is None or fingerprint is None:
        return None
    return Store(cache, f"{what}-{fingerprint}")
