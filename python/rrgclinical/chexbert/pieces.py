"""A report as the word pieces that CheXbert reads, each tied to its characters.

The official preprocessing strips the text and replaces every run of white space by one space.
Here each white-space character becomes one space instead: BERT's tokenizer skips spaces, so the
ids are the same, and character offsets stay those of the report as given. The replacement itself
is needed: left alone, a vertical tab, U+001C..U+001F or U+0085 would be deleted by the tokenizer
and join its neighbours.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from huggingface_hub import hf_hub_download
from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError
from tokenizers import AddedToken, Tokenizer
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer
from torch import Tensor

from rrgclinical.common import json_reader
from rrgclinical.common.errors import UserError
from rrgclinical.inference import padded_rows

SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
ORIGIN = "the vocabulary of bert-base-uncased (vocab.txt or tokenizer.json)"

# Three ids that tell the vocabulary of bert-base-uncased from others of the same size.
BERT_BASE_UNCASED = {"[CLS]": 101, "[SEP]": 102, "the": 1996}

_SPACE = re.compile(r"\s")
# The official tokenizer deletes a lone surrogate as a control character; this one cannot take
# it, and deletes U+FFFD.
_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True)
class Pieces:
    """One report. `ids` begins with [CLS] and ends with [SEP]; `spans` has the pieces between.

    spans: characters [start, end) of the report as given. truncated: pieces were left out.
    """

    ids: list[int]
    spans: list[tuple[int, int]]
    truncated: bool


class ReportTokenizer:
    """Lower-cased, accent-free WordPiece with the given vocabulary, at most `limit` ids a report.

    A longer report keeps its first `limit - 1` ids, then [SEP], as the official preprocessing.
    """

    def __init__(self, vocabulary: Mapping[str, int], limit: int) -> None:
        if limit < 3:
            raise ValueError(f"limit is {limit}; wanted room for [CLS], a piece and [SEP]")
        self.limit = limit
        self.pad, _, self.cls, self.sep, _ = (vocabulary[token] for token in SPECIALS)
        self._tokenizer = Tokenizer(
            WordPiece(dict(vocabulary), unk_token="[UNK]", max_input_chars_per_word=100)
        )
        self._tokenizer.normalizer = BertNormalizer(
            clean_text=True, handle_chinese_chars=True, strip_accents=None, lowercase=True
        )
        self._tokenizer.pre_tokenizer = BertPreTokenizer()
        # "[SEP]" typed into a report is that special token for the official tokenizer too.
        self._tokenizer.add_special_tokens(
            [AddedToken(token, special=True, normalized=False) for token in SPECIALS]
        )

    def __call__(self, reports: Sequence[str]) -> list[Pieces]:
        texts = [_SURROGATE.sub("\ufffd", _SPACE.sub(" ", report)) for report in reports]
        room = self.limit - 2
        return [
            Pieces(
                ids=[self.cls, *encoding.ids[:room], self.sep],
                spans=encoding.offsets[:room],
                truncated=len(encoding.ids) > room,
            )
            for encoding in self._tokenizer.encode_batch(texts, add_special_tokens=False)
        ]


def pad(pieces: Sequence[Pieces], pad_id: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Pad a batch: ids and attention mask (0 at padding), int64 [R, L] each."""
    ids, mask = padded_rows([one.ids for one in pieces], pad_id)
    return ids.to(device), mask.to(device)


def read_vocabulary(name: str | Path | None, size: int) -> dict[str, int]:
    """Read word piece -> id from a folder or the local hub cache; downloads nothing.

    Args:
        name: a folder with vocab.txt or tokenizer.json, or a hub name such as
            "bert-base-uncased" that was downloaded before.
        size: rows of the model's embedding.

    Raises:
        UserError: no name, nothing found, an unreadable file, or a vocabulary of another model.
    """
    if name is None:
        raise UserError(f"labeller chexbert: no tokenizer given; pass a folder with {ORIGIN}")
    path = _locate(str(name))
    try:
        vocabulary = _parse(path)
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path} holds no WordPiece vocabulary; wanted {ORIGIN}") from error
    if sorted(vocabulary.values()) != list(range(size)):
        raise UserError(
            f"{path} has {len(vocabulary)} word pieces, not 0 to {size - 1}: pass {ORIGIN}"
        )
    if absent := [token for token in SPECIALS if token not in vocabulary]:
        raise UserError(f"{path} lacks {', '.join(absent)}; pass {ORIGIN}")
    return vocabulary


def refuse_foreign(vocabulary: Mapping[str, int]) -> None:
    """UserError for a vocabulary that is not bert-base-uncased's, whatever its size."""
    for token, place in BERT_BASE_UNCASED.items():
        if vocabulary.get(token) != place:
            own = vocabulary.get(token, "absent")
            raise UserError(f"{token!r} is {own} in the vocabulary, not {place}: pass {ORIGIN}")


def _locate(name: str) -> Path:
    folder = Path(name).expanduser()
    files = ("vocab.txt", "tokenizer.json")
    if folder.is_dir():
        for file in files:
            if (folder / file).is_file():
                return folder / file
        raise UserError(f"{folder} has neither {' nor '.join(files)}; wanted {ORIGIN}")
    for file in files:
        try:
            return Path(hf_hub_download(name, file, local_files_only=True))
        except (LocalEntryNotFoundError, HFValidationError):
            continue
    raise UserError(
        f"labeller chexbert: {name} is no folder and not in the local hub cache; nothing is "
        f"downloaded unasked: run `hf download {name} vocab.txt`, or pass a folder with {ORIGIN}"
    )


def _parse(path: Path) -> dict[str, int]:
    if path.suffix == ".json":
        return dict(json_reader.read(path, dict)["model"]["vocab"])
    text = path.read_text(encoding="utf-8")
    # Not splitlines: a piece may be U+0085 or U+2028.
    lines = text.split("\n")
    return {
        line.rstrip("\r"): row for row, line in enumerate(lines[:-1] if not lines[-1] else lines)
    }
