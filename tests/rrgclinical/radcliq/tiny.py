"""A tiny distilroberta with random weights and its tokenizer, in the official layout."""

from __future__ import annotations

from pathlib import Path

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import RobertaConfig, RobertaForMaskedLM, RobertaTokenizerFast

TEXTS = [
    "The heart is enlarged.",
    "No pleural effusion or pneumothorax is seen; the lungs are clear.",
    "Épanchement à gauche,   heart  normal",
    "clear",
    "effusion " * 80,
]
SPECIAL = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]


def write_folder(folder: Path, layers: int = 6) -> Path:
    """Config, tokenizer and weights with the head that the hub's checkpoint has."""
    bpe = Tokenizer(models.BPE(unk_token="<unk>"))
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=400, special_tokens=SPECIAL, initial_alphabet=alphabet, show_progress=False
    )
    bpe.train_from_iterator(TEXTS, trainer)
    bpe.model.save(str(folder))
    names = (str(folder / "vocab.json"), str(folder / "merges.txt"))
    tokenizer = RobertaTokenizerFast(*names, model_max_length=62)
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    config = RobertaConfig(
        vocab_size=len(tokenizer),
        hidden_size=16,
        num_hidden_layers=layers,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=64,
        type_vocab_size=1,
        initializer_range=0.3,
    )
    RobertaForMaskedLM(config).save_pretrained(folder)
    return folder
