"""The models behind the terms of a recipe: built once, shared, each text read once."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar
from weakref import WeakValueDictionary

import numpy as np

from rrgclinical import build_extractor, build_labeller
from rrgclinical.backends import takes_device
from rrgclinical.cached import CachedExtractor, CachedLabeller
from rrgclinical.common.errors import cause_line
from rrgpolicy.ranks import nodes, ranks
from rrgtrain.errors import RewardError, Stopped
from rrgtrain.schema import RewardSettings

T = TypeVar("T", CachedLabeller, CachedExtractor)

# Rewards and edits of one run ask for the same extractor: it is held once, and reads a report once.
_SHARED: WeakValueDictionary[str, Any] = WeakValueDictionary()
_LOCK = threading.Lock()


class SpreadLabeller:
    """Labels texts that all ranks have; each reads a share, and all get every row.

    All ranks ask at once and for the same texts. A reader that fails is a RewardError.
    """

    def __init__(self, labeller: CachedLabeller) -> None:
        self.labeller = labeller

    def label(self, reports: Sequence[str], *, keep: bool = False) -> np.ndarray:
        """int8 `[R, 14]`, as the labeller's own."""
        texts = list(dict.fromkeys(reports))
        try:
            own = self.labeller.label(ranks.shard(texts), keep=keep)
        except Stopped:
            raise
        except (Exception, SystemExit) as error:
            raise RewardError(f"labels of reports cannot be read: {cause_line(error)}") from error
        parts = [list(part) for part in ranks.gather(own)]
        rows = dict(zip(texts, ranks.unshard(parts), strict=True))
        return np.stack([rows[text] for text in reports]) if rows else own


def open_labeller(settings: RewardSettings, name: str | None = None) -> CachedLabeller:
    """The labeller that `settings` names (or `name`), with its options, caching what it reads."""
    name = name or settings.labeller
    return _shared(settings, "labeller", name, build_labeller, CachedLabeller)


def open_extractor(settings: RewardSettings, name: str | None = None) -> CachedExtractor:
    """The extractor that `settings` names (or `name`), with its options; see `open_labeller`."""
    name = name or settings.extractor
    return _shared(settings, "extractor", name, build_extractor, CachedExtractor)


def cached(kind: type[T], model: Any, settings: RewardSettings) -> T:
    """`model`, a labeller or an extractor, caching as `settings` say."""
    if isinstance(model, kind):
        return model
    return kind(model, cache=settings.cache, capacity=settings.cache_texts)


def options_of(settings: RewardSettings, what: str, name: str) -> dict[str, Any]:
    """`reward.options.<name>` for a labeller or extractor (`what`).

    `reward.device` is added where the model takes a device and none is given.
    """
    options = dict(settings.options.get(name, {}))
    if "device" not in options and takes_device(what, name):
        options["device"] = nodes.own_device(settings.device)
    return options


def _shared(
    settings: RewardSettings,
    what: str,
    name: str,
    build: Callable[..., Any],
    kind: type[T],
) -> T:
    described = {
        "what": what,
        "name": name,
        "options": settings.options.get(name, {}),
        "device": settings.device,
        "cache": [settings.cache, settings.cache_texts],
    }
    key = json.dumps(described, sort_keys=True, default=str)
    with _LOCK:
        found = _SHARED.get(key)
        if found is None:
            model = build(name, **options_of(settings, what, name))
            found = _SHARED[key] = cached(kind, model, settings)
        return found
