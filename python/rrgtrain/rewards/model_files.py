"""Tell all model files that a recipe lacks in one line, before any is loaded."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from rrgtrain.errors import UserError
from rrgtrain.schema import RewardSettings

# Backend -> option -> the file that it names.
FILES = {
    "chexbert": {"weights": "chexbert.pth of StanfordAIMI/RRG_scorers"},
    "radgraph": {"weights": "radgraph-xl.tar.gz of StanfordAIMI/RRG_scorers"},
    "ratescore": {
        "ner": "folder of Angelakeke/RaTE-NER-Deberta",
        "embedder": "folder of FremyCompany/BioLORD-2023-C",
    },
    "bertscore": {"weights": "folder of distilbert/distilroberta-base"},
}
_BESIDE = ("/", "./", "../", "~")


def missing_files(
    settings: RewardSettings, more: Iterable[str] = (), built: Iterable[str] = ()
) -> list[str]:
    """List the files that labeller, extractor, terms and `more` backends need and that are absent.

    Those in `built` are there already. A name that could be of the hub's local cache is not looked
    for.
    """
    terms = ["radgraph" if term.startswith("radgraph_") else term for term in settings.terms]
    if "radcliq" in terms:
        terms += ["radgraph", "chexbert", "bertscore"]
    absent = []
    backends = dict.fromkeys([settings.labeller, settings.extractor, *terms, *more])
    for backend in [name for name in backends if name not in set(built)]:
        options = settings.options.get(backend, {})
        for option, what in FILES.get(backend, {}).items():
            key, value = f"reward.options.{backend}.{option}", options.get(option)
            if value is None:
                absent.append(f"{key} ({what}) is not set")
            elif str(value).startswith(_BESIDE) and not Path(value).expanduser().exists():
                absent.append(f"{key}={value} ({what}) does not exist")
    return absent


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
