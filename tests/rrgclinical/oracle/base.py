"""Random weights of the real size in the official layouts, for parity and for the bench."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import torch
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
    ner, embedder = folder / "ner", folder / "embedder"
    tokens = ratescore.write_tokenizer(ner, texts, lower=False)
    config = transformers.DebertaV2Config(
        vocab_size=len(tokens),
        type_vocab_size=0,
        relative_attention=True,
        position_buckets=256,
        pos_att_type=["p2c", "c2p"],
        norm_rel_ebd="layer_norm",
        share_att_key=True,
        position_biased_input=False,
        initializer_range=SPREAD,
        pad_token_id=tokens.pad_token_id,
        id2label=dict(enumerate(ratescore.LABELS)),
        label2id={label: index for index, label in enumerate(ratescore.LABELS)},
    )
    torch.manual_seed(0)
    model = transformers.DebertaV2ForTokenClassification(config).eval()
    with torch.no_grad():
        # One by one: padded to the longest of them, they take minutes.
        read = [tokens(text, return_tensors="pt")["input_ids"] for text in sentences]
        logits = torch.cat([model(ids[:, :512]).logits[0] for ids in read])
        model.classifier.bias -= logits.mean(0)
        model.classifier.bias[0] += (logits - logits.mean(0))[:, 1:].max(1).values.median()
    model.save_pretrained(ner)
    tokens = ratescore.write_tokenizer(embedder, texts, lower=True)
    size, pad = len(tokens), tokens.pad_token_id
    body = transformers.MPNetConfig(vocab_size=size, initializer_range=SPREAD, pad_token_id=pad)
    transformers.MPNetModel(body).eval().save_pretrained(embedder)
    return ner, embedder


def name_tokenizers(ner: Path, embedder: Path) -> None:
    """Call the tokenizers what the official folders call them."""
    for folder, name in ((ner, "DebertaV2Tokenizer"), (embedder, "MPNetTokenizer")):
        file = folder / "tokenizer_config.json"
        config = json.loads(file.read_text())
        config["tokenizer_class"] = name
        file.write_text(json.dumps(config))
