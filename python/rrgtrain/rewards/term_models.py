"""Models that single terms need, beside labeller and extractor, and the files that are missing."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from pkgutil import resolve_name
from typing import Any

from rrgclinical.backends import absent_files
from rrgclinical.common.arguments import check_options
from rrgpolicy.ranks.nodes import own_device
from rrgtrain.errors import UserError
from rrgtrain.rewards.labellers import open_extractor, open_labeller
from rrgtrain.rewards.spending import share_of_rank
from rrgtrain.schema import RewardSettings

Defaults = Callable[[RewardSettings], dict[str, Any]]


def _on_device(settings: RewardSettings) -> dict[str, Any]:
    return {"device": own_device(settings.device)}


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
# Those that ask an endpoint, of whose spending each rank has its share.
JUDGES = {
    "facts": "rrgclinical.facts:build_facts",
    "green": "rrgclinical.green:build_green",
    "crimson": "rrgclinical.crimson:build_crimson",
}


def open_model(
    name: str, settings: RewardSettings, opened: Callable[[str], Any] | None = None
) -> Any:
    """Open the model of a term: of `CLASSES`, `JUDGES`, `radcliq`, or an extractor.

    It is built with `reward.options.<name>`; parts that terms of their own have are those that
    `opened` gives by name. UserError for options it cannot take.
    """
    options = settings.options.get(name, {})
    if name == "radcliq":
        return open_radcliq(settings, opened)
    if name in JUDGES:
        sized = {"capacity": settings.cache_texts} if name == "facts" else {}
        build = resolve_name(JUDGES[name])
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


def open_radcliq(settings: RewardSettings, opened: Callable[[str], Any] | None = None) -> Any:
    """Open RadCliQ-v1 from RadGraph, CheXbert and BERTScore, each with its `reward.options`.

    opened: gives `radgraph` and `bertscore`, where they may be open already.
    """
    from rrgclinical.radcliq import RadCliQ

    chexbert: Any = open_labeller(settings, "chexbert").labeller
    opened = opened or partial(open_model, settings=settings)
    return RadCliQ(opened("radgraph").results, chexbert, opened("bertscore"))


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
