"""A tiny CheXbert with random weights in the official layout, and the official way to run one.

Nothing here knows a finding: labels of these weights mean nothing clinically.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from pathlib import Path

import torch
from torch import Tensor, nn
from transformers import BertConfig, BertModel
from transformers.models.bert.tokenization_bert_legacy import BertTokenizerLegacy

from rrgclinical.chexbert import CheXbertLabeller

SAID = (
    "the heart lungs is are no normal size effusion pleural small left right edema mild there "
    "clear pneumonia fracture lesion of with and or device tube line in place cafe naive i"
)
WORDS = SAID.split()
PIECES = ["##s", "##al", "##ing", "##ed", "##itis", "##o", "##megaly", "cardio", "un", "##change"]
LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789.,;:!?()[]/-'\"%éß"
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
VOCABULARY = [*SPECIAL, *WORDS, *PIECES, *LETTERS[:-2], *(f"##{c}" for c in LETTERS[:36]), "σ", "ς"]
VOCABULARY = list(dict.fromkeys(VOCABULARY))

CONFIG = BertConfig(
    vocab_size=len(VOCABULARY),
    hidden_size=16,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=32,
    max_position_embeddings=512,
)

LONG = "the heart is normal; no effusion. " * 80
ADVERSARIAL = [
    "",
    " ",
    "\n\t ",
    "heart",
    "Heart\x0bnormal",
    "heart\x1cnormal\x1dsize\x1esmall\x1fleft",
    "heart\x85normal\u2028lungs\u2029clear\u3000edema\xa0mild",
    "no\r\neffusion\n\n\nthe   heart",
    "  leading and trailing  \n",
    "cafe\u0301 na\u00efve CAFÉ \u0130s \ufb01ne stra\u00dfe \u039f\u03a3",
    "soft\u00adhyphen zero\u200bwidth \ufeffbom \x00nul \ufffd",
    "lungs clear 😀 👩🏽‍⚕️ 心臓 한글",
    "[SEP] [CLS] [PAD] [MASK] [UNK] [sep] lungs[SEP]clear",
    "a" * 100 + " " + "a" * 101,
    "\ud800heart\udfff is",
    '1.5-cm (mild) 50% "effusion"!?',
    "the " * 510,
    "the " * 511,
    "heart " * 508 + "cardiomegaly",
    LONG,
]


def reports(count: int, seed: int = 0) -> list[str]:
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(0, 60, (count,), generator=generator).tolist()
    words = [*WORDS, "cardiomegaly", "unchanged", "effusions", ".", ",", "\n", "xyzzy"]
    picks = [torch.randint(len(words), (n,), generator=generator).tolist() for n in lengths]
    return [" ".join(words[i] for i in pick) for pick in picks]


class OfficialNetwork(nn.Module):
    """The layout whose keys are in chexbert.pth: an encoder with its pooler, 14 linear layers."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.bert = BertModel(config)
        sizes = [4] * 13 + [2]
        self.linear_heads = nn.ModuleList(nn.Linear(config.hidden_size, n) for n in sizes)

    def forward(self, ids: Tensor) -> list[Tensor]:
        state = self.bert(ids, attention_mask=torch.ones_like(ids)).last_hidden_state[:, 0]
        return [head(state) for head in self.linear_heads]


@cache
def official_network(seed: int = 0) -> OfficialNetwork:
    return random_network(CONFIG, seed, std=0.4)


def random_network(config: BertConfig, seed: int, std: float) -> OfficialNetwork:
    """Weights large enough, and heads centred, so that every class wins somewhere."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        network = OfficialNetwork(config)
        for name, parameter in network.named_parameters():
            if "LayerNorm" not in name:
                nn.init.normal_(parameter, std=std)
        network.eval().requires_grad_(False)
        draws = [torch.randint(5, 5 + len(WORDS), (1, n)) for n in range(1, 60)]
        cls, sep = torch.tensor([[2]]), torch.tensor([[3]])
        logits = [network(torch.cat([cls, draw, sep], dim=1)) for draw in draws]
        for head, *seen in zip(network.linear_heads, *logits, strict=True):
            head.bias -= torch.cat(seen).median(dim=0).values
    return network


def write_folder(
    folder: Path,
    change: Callable[[dict], None] | None = None,
    network: OfficialNetwork | None = None,
    **save,
) -> Path:
    """weights.pth and vocab.txt; `change` edits the state before it is saved."""
    network = network or official_network()
    # keys as the authors' training saved them
    state = {k: v.clone() for k, v in nn.DataParallel(network).state_dict().items()}
    if change:
        change(state)
    torch.save({"epoch": 3, "model_state_dict": state}, folder / "weights.pth", **save)
    size = network.bert.config.vocab_size
    pieces = [*VOCABULARY, *(f"[unused{row}]" for row in range(len(VOCABULARY), size))]
    (folder / "vocab.txt").write_text("\n".join(pieces) + "\n", encoding="utf-8")
    return folder


def labeller(folder: Path, **options) -> CheXbertLabeller:
    return CheXbertLabeller(folder / "weights.pth", folder, **{"config": CONFIG, **options})


def official_ids(report: str, tokenizer: BertTokenizerLegacy) -> list[int]:
    """The preprocessing of the official package: collapse, tokenize in Python, cut at 512."""
    text = re.sub(r"\s+", " ", report.strip().replace("\n", " ")).strip()
    ids = tokenizer.convert_tokens_to_ids(tokenizer.tokenize(text))
    ids = [tokenizer.cls_token_id, *ids, tokenizer.sep_token_id]
    return ids if len(ids) <= 512 else [*ids[:511], tokenizer.sep_token_id]


def official_labels(texts: list[str], folder: Path) -> list[list[int]]:
    """One report a forward, one matrix product a head, as the official package."""
    network = official_network()
    tokenizer = BertTokenizerLegacy(str(folder / "vocab.txt"), do_lower_case=True)
    with torch.no_grad():
        return [
            [int(head.argmax(1)) for head in network(torch.tensor([official_ids(t, tokenizer)]))]
            for t in texts
        ]
