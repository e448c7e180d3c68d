"""A small CheXbert that learns another labeller's opinion from training reports alone.

Token weights by saliency need a labeller with a gradient. Where the official weights are not at
hand, this one is trained on the reports, and on their sentences shuffled into new ones, with the
labels that the teacher reads in them. It serves saliency; its labels must not be
quoted as CheXbert's.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer
from transformers import BertConfig

from rrgclinical.backends import Labeller
from rrgclinical.chexbert.checkpoint import CLASSES, CheXbertNetwork
from rrgclinical.chexbert.labeller import CheXbertLabeller
from rrgclinical.chexbert.pieces import SPECIALS, pad
from rrgclinical.common.errors import UserError

WIDTH, LAYERS, LIMIT = 64, 2, 512
STEPS, BATCH, RATE, WARMUP = 400, 32, 3e-3, 20


def distil(
    teacher: Labeller,
    reports: Sequence[str],
    *,
    seed: int = 0,
    steps: int = STEPS,
    each: Callable[[], None] = lambda: None,
) -> CheXbertLabeller:
    """A CheXbert of two narrow layers that labels like `teacher` what resembles `reports`.

    Deterministic in its arguments; `each` is called after every step. Raises UserError without
    any report to learn from.
    """
    parts = ([f"{s.strip()}." for s in report.split(".") if s.strip()] for report in reports)
    split = [sentences for sentences in parts if sentences]
    if not split:
        raise UserError(
            "token_weights.labeller=distilled learns from training reports, and there are none; "
            "use token_weights.kind=tfidf"
        )
    vocabulary = _vocabulary([sentence for own in split for sentence in own])
    config = BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=WIDTH,
        num_hidden_layers=LAYERS,
        num_attention_heads=4,
        intermediate_size=2 * WIDTH,
        max_position_embeddings=LIMIT,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    with torch.random.fork_rng(devices=[]), tempfile.TemporaryDirectory() as folder:
        torch.manual_seed(seed)
        labeller = _open(CheXbertNetwork(config), vocabulary, config, Path(folder))
        _train(labeller, teacher, split, np.random.default_rng(seed), steps, each)
    return labeller


def _vocabulary(sentences: Sequence[str]) -> list[str]:
    """Special tokens, every word of the reports, and single characters for every other word."""
    normal, split = BertNormalizer(lowercase=True), BertPreTokenizer()
    words: dict[str, None] = {}
    for sentence in sentences:
        pieces = split.pre_tokenize_str(normal.normalize_str(sentence))
        words.update((word, None) for word, _ in pieces)
    characters = sorted({c for word in words for c in word} | set("abcdefghijklmnopqrstuvwxyz"))
    return list(
        dict.fromkeys([*SPECIALS, *sorted(words), *characters, *(f"##{c}" for c in characters)])
    )


def _open(
    network: CheXbertNetwork, vocabulary: list[str], config: BertConfig, folder: Path
) -> CheXbertLabeller:
    """The untrained network through the loader of the official layout, so nothing is special."""
    state = {f"module.bert.{k}": v for k, v in network.bert.state_dict().items()}
    state["module.bert.pooler.dense.weight"] = torch.zeros(WIDTH, WIDTH)
    state["module.bert.pooler.dense.bias"] = torch.zeros(WIDTH)
    parts = zip(network.heads.weight.split(CLASSES), network.heads.bias.split(CLASSES), strict=True)
    for column, (weight, bias) in enumerate(parts):
        state[f"module.linear_heads.{column}.weight"] = weight.detach().clone()
        state[f"module.linear_heads.{column}.bias"] = bias.detach().clone()
    torch.save({"model_state_dict": state}, folder / "weights.pth")
    (folder / "vocab.txt").write_text("\n".join(vocabulary) + "\n", encoding="utf-8")
    return CheXbertLabeller(folder / "weights.pth", folder, config=config)


def _train(
    labeller: CheXbertLabeller,
    teacher: Labeller,
    reports: Sequence[list[str]],
    rng: np.random.Generator,
    steps: int,
    each: Callable[[], None],
) -> None:
    sentences = list(dict.fromkeys(sentence for own in reports for sentence in own))
    longest = max(map(len, reports))
    network = labeller.network.train().requires_grad_(True)
    optimizer = torch.optim.AdamW(network.parameters(), lr=RATE)
    for step in range(steps):
        # Half of them whole: shuffles alone would teach neither their lengths nor their order.
        texts = [" ".join(reports[int(i)]) for i in rng.integers(0, len(reports), BATCH // 2)]
        for _ in range(BATCH - len(texts)):
            drawn = rng.integers(0, len(sentences), int(rng.integers(1, longest + 1)))
            texts.append(" ".join(sentences[int(i)] for i in drawn))
        ids, mask = pad(labeller.tokenize(texts), labeller.tokenize.pad, labeller.device)
        logits = network(network.word_embeddings(ids), mask)
        labels = torch.from_numpy(teacher.label(texts)).long()
        # a class that an observation lacks is -inf, and never a label
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())
        for group in optimizer.param_groups:
            group["lr"] = RATE * min(1.0, (step + 1) / WARMUP) * (1.0 - step / steps)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        each()
    network.eval().requires_grad_(False)
