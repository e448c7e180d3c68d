"""`Policy`: a Qwen2.5-VL or Qwen2 with what reads its input, as the trainer handles it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from torch import Tensor

from rrgclinical.progress_bars import no_progress_bars
from rrgtrain.errors import UserError
from rrgtrain.policy.codec import ReportCodec
from rrgtrain.policy.network import Network


@dataclass(kw_only=True)
class Policy(Network):
    """A Qwen2.5-VL, or a Qwen2 for text alone, in `model`.

    image_processor: None in a policy of text alone. eos_ids: every token that ends a report when
    sampled; end_of_turn: the one that training appends to a report.
    """

    tokenizer: Any
    image_processor: Any
    eos_ids: tuple[int, ...]
    end_of_turn: int

    @cached_property
    def codec(self) -> ReportCodec:
        vocabulary = self.text_config.vocab_size
        return ReportCodec(self.tokenizer, self.eos_ids, self.end_of_turn, vocabulary)

    def save(self, directory: str | Path, weights: dict[str, Tensor] | None = None) -> Path:
        """Write a checkpoint directory that `load_policy` takes (for PEFT, the adapter only).

        Each weight is written in the dtype it is kept in: masters in fp32, since what fine-tuning
        changes in ten steps of lr 1e-5 is mostly lost in bf16; a frozen tower in its own. Whoever
        reads it chooses the dtype (`dtype=` of transformers, `--dtype` of vLLM).

        weights: the model's state where it cannot be asked for it, its parameters being sharded.
        """
        directory = Path(directory)
        if directory.is_file():
            raise UserError(f"cannot save the policy to the file {directory}; name a directory")
        model: Any = self.model
        with no_progress_bars():
            model.save_pretrained(directory, state_dict=weights)
        self.save_preprocessing(directory)
        return directory

    def save_preprocessing(self, directory: Path) -> None:
        """Writes what a checkpoint directory holds beside the model."""
        self.tokenizer.save_pretrained(directory)
        if self.image_processor is not None:
            self.image_processor.save_pretrained(directory)
