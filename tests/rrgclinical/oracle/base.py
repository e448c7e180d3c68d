"""Random weights of the real size in the official layouts, for parity and for the bench."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import transformers

from tests.rrgclinical.chexbert import tiny as chexbert
from tests.rrgclinical.radgraph import archives
from tests.rrgclinical.ratescore import tiny as ratescore

# Keeps the states of twelve layers apart; transformers' own 0.02 makes every text look alike.
SPREAD = 0.05


def write_chexbert(folder: Path) -> Path:
    """BERT-base with 14 heads: weights.pth and vocab.txt."""
    return chexbert.write_folder(
        folder, network=chexbert.random_network(transformers.BertConfig(), 0, SPREAD)
    )


def write_radgraph(folder: Path, dataset: str) -> Path:
    """An archive with the sizes of DyGIE++'s template on BERT-base or ModernBERT-base."""
    config: transformers.BertConfig | transformers.ModernBertConfig = transformers.BertConfig()
    if dataset.startswith("modern"):
        special = archives.tiny_modern()
        names = ("pad_token_id", "bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id")
        ids = {name: getattr(special, name) for name in names}
        config = transformers.ModernBertConfig(max_position_embeddings=512, **ids)
    return archives.write_archive(
        folder, dataset, encoder=config, hidden=150, features=20, spread=SPREAD
    )


def write_ratescore(
    folder: Path, texts: Sequence[str], sentences: Sequence[str]
) -> tuple[Path, Path]:
    """Folders of DeBERTa-v3-base with a head calibrated on `sentences`, and of MPNet-base."""
    sizes = {"initializer_range": SPREAD}
    ner = ratescore.write_ner(folder / "ner", texts, read=sentences, position_buckets=256, **sizes)
    return ner, ratescore.write_embedder(folder / "embedder", texts, **sizes)


def name_tokenizers(ner: Path, embedder: Path) -> None:
    """Call the tokenizers what the official folders call them."""
    for folder, name in ((ner, "DebertaV2Tokenizer"), (embedder, "MPNetTokenizer")):
        file = folder / "tokenizer_config.json"
        config = json.loads(file.read_text())
        config["tokenizer_class"] = name
        file.write_text(json.dumps(config))


def asked(official: Any, name: str, **arguments: Any) -> Any:
    """Ask the package behind `official` for what no caller of ours needs."""
    return official.worker.call(name, model=official.model, **arguments)
