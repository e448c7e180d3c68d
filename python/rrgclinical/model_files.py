"""Name the files that models need, and tell which of them are absent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

# Backend -> option -> the file that it names.
FILES = {
    "chexbert": {"weights": "chexbert.pth of StanfordAIMI/RRG_scorers"},
    "radgraph": {"weights": "radgraph-xl.tar.gz of StanfordAIMI/RRG_scorers"},
    "ratescore": {
        "ner": "folder of Angelakeke/RaTE-NER-Deberta",
        "embedder": "folder of FremyCompany/BioLORD-2023-C",
    },
    "bertscore": {"weights": "folder of distilbert/distilroberta-base"},
    "sdr": {"embedder": "folder of FremyCompany/BioLORD-2023-C"},
}
# A term that is made of several backends.
_MADE_OF = {"radcliq": ("radgraph", "chexbert", "bertscore")}
_BESIDE = ("/", "./", "../", "~")


def absent_files(
    backends: Iterable[str], options: Mapping[str, Mapping[str, Any]], built: Iterable[str] = ()
) -> list[str]:
    """List the absent ones of the files that backends, or terms of a reward, need.

    options: those of each backend, `reward.options`. Backends in `built` are there already. A name
    that could be of the hub's local cache is not looked for.
    """
    named = ("radgraph" if name.startswith("radgraph_") else name for name in backends)
    parts = dict.fromkeys(part for name in named for part in _MADE_OF.get(name, (name,)))
    absent = []
    for backend in [name for name in parts if name not in set(built)]:
        for option, what in FILES.get(backend, {}).items():
            key = f"reward.options.{backend}.{option}"
            value = options.get(backend, {}).get(option)
            if value is None:
                absent.append(f"{key} ({what}) is not set")
            elif str(value).startswith(_BESIDE) and not Path(value).expanduser().exists():
                absent.append(f"{key}={value} ({what}) does not exist")
    return absent
