"""RaTEScore's two networks in miniature: random weights in the folders' official layout.

The heads are calibrated on given texts, so that a label is O half of the time and every other
label occurs: a random head calls every token the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer, decoders, normalizers, pre_tokenizers, processors
from tokenizers.models import Unigram
from tokenizers.trainers import UnigramTrainer

from rrgclinical.ratescore import TYPES

LABELS = ("O", *(f"{mark}-{kind}" for kind in TYPES for mark in "BI"))
SPECIALS = {"pad": "[PAD]", "cls": "[CLS]", "sep": "[SEP]", "unk": "[UNK]", "mask": "[MASK]"}


def write_tokenizer(
    folder: Path, texts: Sequence[str], *, lower: bool
) -> transformers.PreTrainedTokenizerFast:
    """A SentencePiece-like tokenizer learnt from `texts`."""
    tokenizer = Tokenizer(Unigram())
    tokenizer.normalizer = normalizers.Lowercase() if lower else normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    trainer = UnigramTrainer(
        vocab_size=200,
        special_tokens=list(SPECIALS.values()),
        unk_token="[UNK]",
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        special_tokens=[(t, tokenizer.token_to_id(t)) for t in ("[CLS]", "[SEP]")],
    )
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, **{f"{name}_token": text for name, text in SPECIALS.items()}
    )
    fast.save_pretrained(folder)
    return fast


# Sizes in miniature; a network that is given none of these has those of transformers.
SMALL = {"num_hidden_layers": 2, "num_attention_heads": 4, "initializer_range": 0.5}
NER = {"hidden_size": 32, "intermediate_size": 48, "position_buckets": 32, **SMALL}
EMBEDDER = {"hidden_size": 24, "intermediate_size": 32, "max_position_embeddings": 64, **SMALL}


def write_ner(
    folder: Path, texts: Sequence[str], seed: int = 0, *, read: Sequence[str] = (), **sizes: Any
) -> Path:
    """RaTE-NER: DeBERTa-v2 and a head of 11 labels, calibrated on `read`, by default `texts`."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = write_tokenizer(folder, texts, lower=False)
    torch.manual_seed(seed)
    config = transformers.DebertaV2Config(
        vocab_size=len(tokenizer),
        type_vocab_size=0,
        relative_attention=True,
        pos_att_type=["p2c", "c2p"],
        norm_rel_ebd="layer_norm",
        share_att_key=True,
        position_biased_input=False,
        pad_token_id=tokenizer.pad_token_id,
        id2label=dict(enumerate(LABELS)),
        label2id={label: index for index, label in enumerate(LABELS)},
        **(sizes or NER),
    )
    model = transformers.DebertaV2ForTokenClassification(config).eval()
    with torch.no_grad():
        # One by one: all at once, padded to the longest, would take gigabytes.
        ids = [tokenizer(text, return_tensors="pt")["input_ids"] for text in read or texts]
        logits = torch.cat([model(one[:, :512]).logits[0] for one in ids])
        model.classifier.bias -= logits.mean(0)
        model.classifier.bias[0] += (logits - logits.mean(0))[:, 1:].max(1).values.median()
    model.save_pretrained(folder)
    return folder


def write_embedder(folder: Path, texts: Sequence[str], seed: int = 0, **sizes: Any) -> Path:
    """BioLORD: MPNet, lower-cased."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = write_tokenizer(folder, texts, lower=True)
    torch.manual_seed(seed + 1)
    config = transformers.MPNetConfig(
        vocab_size=len(tokenizer), pad_token_id=tokenizer.pad_token_id, **(sizes or EMBEDDER)
    )
    transformers.MPNetModel(config).eval().save_pretrained(folder)
    return folder


def write_tiny(folder: Path, texts: Sequence[str], seed: int = 0) -> tuple[Path, Path]:
    """(folder of the NER model, folder of the embedder) below `folder`."""
    return write_ner(folder / "ner", texts, seed), write_embedder(folder / "embedder", texts, seed)
