"""Open the models behind a recipe's terms once, each text read once; list missing files."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Sequence
from pkgutil import resolve_name
from typing import Any, TypeVar
from weakref import WeakValueDictionary

import numpy as np

from rrgclinical import build_extractor, build_labeller
from rrgclinical.backends import absent_files, takes_device
from rrgclinical.cached import CachedExtractor, CachedLabeller
from rrgclinical.common.arguments import check_options
from rrgclinical.common.errors import cause_line
from rrgpolicy.ranks import nodes, ranks
from rrgtrain.errors import RewardError, Stopped, UserError
from rrgtrain.rewards.spending import ENDPOINTS, share_of_rank
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


def _shared(
    settings: RewardSettings, what: str, name: str, build: Callable[..., Any], kind: type[T]
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
        shared = _SHARED.get(key)
        if shared is None:
            options = dict(settings.options.get(name, {}))
            if "device" not in options and takes_device(what, name):
                options["device"] = nodes.own_device(settings.device)
            shared = _SHARED[key] = cached(kind, build(name, **options), settings)
        return shared


Defaults = Callable[[RewardSettings], dict[str, Any]]


def _on_device(settings: RewardSettings) -> dict[str, Any]:
    return {"device": nodes.own_device(settings.device)}


# The class of each model, and the options that other settings give.
CLASSES: dict[str, tuple[str, Defaults]] = {
    "bertscore": ("rrgclinical.radcliq:BertScore", _on_device),
    "radgraph": ("rrgclinical.radgraph:RadGraph", _on_device),
    "sdr": ("rrgclinical.ratescore:SentenceEmbedder", _on_device),
    "severity": ("rrgclinical.severity:Severity", lambda s: {"capacity": s.cache_texts}),
    "radgraph-official": (
        "rrgclinical.official:OfficialRadGraph",
        lambda s: {"case": s.radgraph_case},
    ),
    "ratescore-official": (
        "rrgclinical.official:OfficialRaTEScore",
        lambda s: {"affinity": s.rate_affinity, "neg_weight": s.neg_weight},
    ),
}


def open_model(name: str, settings: RewardSettings, opened: Callable[[str], Any]) -> Any:
    """Open the model of a term: of `CLASSES`, `ENDPOINTS`, `radcliq`, or an extractor.

    It is built with `reward.options.<name>`; parts that terms of their own have are those that
    `opened` gives by name. UserError for options it cannot take.
    """
    options = settings.options.get(name, {})
    if name == "radcliq":
        from rrgclinical.radcliq import RadCliQ

        chexbert: Any = open_labeller(settings, "chexbert").labeller
        return RadCliQ(opened("radgraph").results, chexbert, opened("bertscore"))
    if name in ENDPOINTS:
        sized = {"capacity": settings.cache_texts} if name == "facts" else {}
        build = resolve_name(ENDPOINTS[name])
        return build(share_of_rank(name, options), cache=settings.cache, **sized)
    if name not in CLASSES:
        return open_extractor(settings, name)
    path, defaults = CLASSES[name]
    target = resolve_name(path)
    options = {**defaults(settings), **options}
    check_options(name, target, options)
    model = target(**options)
    if name != "radgraph":
        return model
    from rrgclinical.radgraph import CachedGraphs

    return CachedGraphs(model, cache=settings.cache, capacity=settings.cache_texts)


def missing_files(
    settings: RewardSettings, more: Iterable[str] = (), built: Iterable[str] = ()
) -> list[str]:
    """List the files that labeller, extractor, terms and `more` backends lack; see `absent_files`.

    Those in `built` are there already.
    """
    backends = [settings.labeller, settings.extractor, *settings.terms, *more]
    return absent_files(backends, settings.options, built)


def check_model_files(
    settings: RewardSettings, more: Iterable[str] = (), built: Iterable[str] = ()
) -> None:
    """UserError that names every missing file, where there are several.

    A single one is told by its backend when it is built.
    """
    absent = missing_files(settings, more, built)
    if len(absent) > 1:
        raise UserError(
            f"{len(absent)} model files are missing: {'; '.join(absent)}; give their paths, or "
            "`hub` to download them; reward.labeller=rules and reward.extractor=rules need none"
        )
