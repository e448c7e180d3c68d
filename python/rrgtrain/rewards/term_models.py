"""Models that single terms need, beside the recipe's labeller and extractor."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from rrgclinical.common.arguments import check_options
from rrgpolicy.ranks.nodes import own_device
from rrgtrain.rewards.labellers import open_extractor, open_labeller
from rrgtrain.rewards.spending import share_of_rank
from rrgtrain.schema import RewardSettings


def open_model(
    name: str, settings: RewardSettings, opened: Callable[[str], Any] | None = None
) -> Any:
    """The model of a term: `facts`, `green`, `crimson`, `severity`, `radgraph`, `radcliq`,
    `bertscore`, `sdr`, an official package, or the extractor of that name.

    It is built with `reward.options.<name>`; parts that terms of their own have are those that
    `opened` gives by name. UserError for options it cannot take.
    """
    options = settings.options.get(name, {})
    if name == "facts":
        from rrgclinical.facts import build_facts

        options = share_of_rank(name, options)
        return build_facts(options, cache=settings.cache, capacity=settings.cache_texts)
    if name == "severity":
        from rrgclinical.severity import Severity

        check_options(name, Severity, options)
        return Severity(**{"capacity": settings.cache_texts, **options})
    if name == "green":
        from rrgclinical.green import build_green

        return build_green(share_of_rank(name, options), cache=settings.cache)
    if name == "crimson":
        from rrgclinical.crimson import build_crimson

        return build_crimson(share_of_rank(name, options), cache=settings.cache)
    if name == "radgraph":
        from rrgclinical.radgraph import CachedGraphs, RadGraph

        given = {"device": own_device(settings.device), **options}
        check_options("radgraph", RadGraph, given)
        return CachedGraphs(RadGraph(**given), cache=settings.cache, capacity=settings.cache_texts)
    if name == "radcliq":
        return open_radcliq(settings, opened)
    if name == "bertscore":
        from rrgclinical.radcliq import BertScore

        options = {"device": own_device(settings.device), **options}
        check_options("bertscore", BertScore, options)
        return BertScore(**options)
    if name == "sdr":
        from rrgclinical.ratescore import SentenceEmbedder

        options = {"device": own_device(settings.device), **options}
        check_options("sdr", SentenceEmbedder, options)
        return SentenceEmbedder(**options)
    if name in ("radgraph-official", "ratescore-official"):
        return _official(name, settings)
    return open_extractor(settings, name)


def open_radcliq(settings: RewardSettings, opened: Callable[[str], Any] | None = None) -> Any:
    """RadCliQ-v1 from RadGraph, CheXbert and BERTScore, each with its `reward.options`.

    opened: gives `radgraph` and `bertscore`, where they may be open already.
    """
    from rrgclinical.radcliq import RadCliQ

    chexbert: Any = open_labeller(settings, "chexbert").labeller
    opened = opened or partial(open_model, settings=settings)
    return RadCliQ(opened("radgraph").results, chexbert, opened("bertscore"))


def _official(name: str, settings: RewardSettings) -> Any:
    from rrgclinical.official import OfficialRadGraph, OfficialRaTEScore

    target: Any = OfficialRadGraph
    given: dict[str, Any] = {"case": settings.radgraph_case}
    if name == "ratescore-official":
        target = OfficialRaTEScore
        given = {"affinity": settings.rate_affinity, "neg_weight": settings.neg_weight}
    given |= settings.options.get(name, {})
    check_options(name, target, given)
    return target(**given)
