"""RaTEScore's two networks from their folders, every tensor in its place."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import torch
from transformers import AutoModel, AutoModelForTokenClassification, PreTrainedTokenizerFast

from rrgclinical.common.errors import UserError
from rrgclinical.inference import told_faults
from rrgclinical.progress_bars import no_progress_bars
from rrgclinical.ratescore.affinity import TYPES

NER, EMBEDDER = "Angelakeke/RaTE-NER-Deberta", "FremyCompany/BioLORD-2023-C"
HUB = "hub"
_OFFLINE = "the extractor `rules` needs no file"
_NAMED = 4
# A buffer that older transformers saved, and a head of the embedder that nothing reads.
_HARMLESS = ("position_ids", "pooler.")


class Loaded(NamedTuple):
    """A network in evaluation mode without gradients, and its tokenizer."""

    network: Any
    tokenizer: Any


def load_ner(path: str | Path | None) -> Loaded:
    """The token classifier of RaTE-NER.

    Args:
        path: its folder, its hub name where it lies in the local cache, or "hub" to download it.

    Raises:
        UserError: no path, nothing there, missing or extra tensors, or labels of another model.
    """
    loaded = _load("ner", path, NER, AutoModelForTokenClassification)
    labels = set(loaded.network.config.id2label.values())
    names = {f"{mark}-{kind}" for mark in "BI" for kind in TYPES} | {"O"}
    if labels != names:
        differing = ", ".join(sorted(labels ^ names)[:_NAMED])
        raise UserError(
            f"extractor ratescore: the labels of {path} differ from RaTE-NER's in {differing}; "
            f"wanted the model {NER}"
        )
    return loaded


def load_embedder(path: str | Path | None) -> Loaded:
    """The sentence encoder BioLORD-2023-C. Arguments and errors as of `load_ner`."""
    return _load("embedder", path, EMBEDDER, AutoModel)


def _load(option: str, path: str | Path | None, origin: str, auto: Any) -> Loaded:
    if path is None:
        raise UserError(
            f"extractor ratescore: no {option} given; pass the folder of {origin} "
            f"(hf download {origin} --local-dir DIR), or {HUB}: {_OFFLINE}"
        )
    name = origin if path == HUB else str(Path(path).expanduser())
    local = path != HUB
    if Path(name).is_dir() and not (Path(name) / "tokenizer.json").is_file():
        raise UserError(
            f"extractor ratescore: {option} {path} has no tokenizer.json, which ties tokens to "
            f"characters; wanted the folder of {origin}"
        )
    try:
        # tokenizer.json as it stands, like the package's transformers: version 5 builds the classes
        # of DeBERTa and MPNet anew, without the Unicode normalisation that the file holds.
        tokenizer = PreTrainedTokenizerFast.from_pretrained(name, local_files_only=local)
        # Random initial weights, where any are missing, must not move the caller's generator.
        with torch.random.fork_rng(devices=[]), no_progress_bars(keys=False):
            network, report = auto.from_pretrained(
                name,
                local_files_only=local,
                output_loading_info=True,
                ignore_mismatched_sizes=True,  # reported below, with the names
                dtype=torch.float32,
            )
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        reason = (str(error) or type(error).__name__).strip().splitlines()[0]
        raise UserError(
            f"extractor ratescore: {option} {path} cannot be loaded ({reason}); wanted the folder "
            f"of {origin}: {_OFFLINE}"
        ) from error
    reported = {
        "lacks {}": report["missing_keys"],
        "holds besides {}": report["unexpected_keys"],
        "has other shapes for {}": [key[0] for key in report["mismatched_keys"]],
    }
    harmful = {
        words: sorted(key for key in keys if not any(mark in key for mark in _HARMLESS))
        for words, keys in reported.items()
    }
    if faults := told_faults(harmful):
        raise UserError(f"extractor ratescore: the checkpoint {path} {faults}; wanted {origin}")
    return Loaded(network.eval().requires_grad_(False), tokenizer)
