"""RaTEScore's two networks in miniature: random weights in the folders' official layout.

The heads are calibrated on given texts, so that a label is O half of the time and every other
label occurs: a random head calls every token the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

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


def write_ner(folder: Path, texts: Sequence[str], seed: int = 0) -> Path:
    """RaTE-NER: DeBERTa-v2 and a head of 11 labels."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = write_tokenizer(folder, texts, lower=False)
    torch.manual_seed(seed)
    config = transformers.DebertaV2Config(
        vocab_size=len(tokenizer),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=48,
        max_position_embeddings=512,
        type_vocab_size=0,
        relative_attention=True,
        position_buckets=32,
        pos_att_type=["p2c", "c2p"],
        norm_rel_ebd="layer_norm",
        share_att_key=True,
        position_biased_input=False,
        initializer_range=0.5,
        pad_token_id=tokenizer.pad_token_id,
        id2label=dict(enumerate(LABELS)),
        label2id={label: index for index, label in enumerate(LABELS)},
    )
    model = transformers.DebertaV2ForTokenClassification(config).eval()
    with torch.no_grad():
        read = []
        # All at once, padded to the longest, would take gigabytes.
        for text in texts:
            encoded = tokenizer(text, truncation=True, return_tensors="pt")
            read.append(model(encoded["input_ids"]).logits[0])
        logits = torch.cat(read)
        model.classifier.bias -= logits.mean(0)
        rest = (logits - logits.mean(0))[:, 1:].max(1).values
        model.classifier.bias[0] += rest.median()
    model.save_pretrained(folder)
    return folder


def write_embedder(folder: Path, texts: Sequence[str], seed: int = 0) -> Path:
    """BioLORD: MPNet, lower-cased."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = write_tokenizer(folder, texts, lower=True)
    torch.manual_seed(seed + 1)
    config = transformers.MPNetConfig(
        vocab_size=len(tokenizer),
        hidden_size=24,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=32,
        max_position_embeddings=64,
        initializer_range=0.5,
        pad_token_id=tokenizer.pad_token_id,
    )
    transformers.MPNetModel(config).eval().save_pretrained(folder)
    return folder


def write_tiny(folder: Path, texts: Sequence[str], seed: int = 0) -> tuple[Path, Path]:
    """(folder of the NER model, folder of the embedder) below `folder`."""
    return write_ner(folder / "ner", texts, seed), write_embedder(folder / "embedder", texts, seed)
