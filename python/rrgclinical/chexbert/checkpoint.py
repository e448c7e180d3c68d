"""`chexbert.pth` into the network: every tensor that belongs there, and no other.

The official loader takes a file with other keys without a word and labels with random weights.
"""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import BertConfig

from rrgclinical import hub
from rrgclinical.chexbert.network import CLASSES, CheXbertNetwork
from rrgclinical.common.errors import UserError, unreadable

SOURCE = f"chexbert.pth of the Hugging Face repository {hub.SCORERS}"
OFFLINE = "the labeller `rules` needs no file"

# Older transformers saved this buffer: 0, 1, 2, ... and no weight.
_IGNORED = "bert.embeddings.position_ids"
_NAMED = 4

# What torch.load raises for a file that is no checkpoint, depending on its first bytes.
_UNREADABLE = (pickle.UnpicklingError, RuntimeError, EOFError, ValueError, LookupError, TypeError)


def load_network(weights: str | Path | None, config: BertConfig) -> CheXbertNetwork:
    """The network in fp32 on the CPU, in evaluation mode, without parameter gradients.

    Args:
        weights: a file {"model_state_dict": {"module.bert...", "module.linear_heads.0..13..."}},
            or "hub" for the official one.
        config: shape of the encoder.

    Raises:
        UserError: no path, no such file, another layout, or keys or shapes that differ.
    """
    state = _read(weights)
    # Its random initial weights must not move the generator of the run that loads it.
    with torch.random.fork_rng(devices=[]):
        network = CheXbertNetwork(config)
    _check(state, _official_shapes(network))
    network.bert.load_state_dict({k: state[f"bert.{k}"] for k in network.bert.state_dict()})
    network.heads.load_state_dict(
        {
            part: torch.cat([state[f"linear_heads.{c}.{part}"] for c in range(len(CLASSES))])
            for part in ("weight", "bias")
        }
    )
    return network.eval().requires_grad_(False)


def _official_shapes(network: CheXbertNetwork) -> dict[str, tuple[int, ...]]:
    """Shape of every tensor of the official layout."""
    shapes = {f"bert.{k}": tuple(v.shape) for k, v in network.bert.state_dict().items()}
    width = network.heads.in_features
    shapes["bert.pooler.dense.weight"] = (width, width)
    shapes["bert.pooler.dense.bias"] = (width,)
    for column, classes in enumerate(CLASSES):
        shapes[f"linear_heads.{column}.weight"] = (classes, width)
        shapes[f"linear_heads.{column}.bias"] = (classes,)
    return shapes


def locate_weights(weights: str | Path | None) -> Path:
    """The file; "hub" downloads it. UserError where there is none."""
    if weights is None:
        raise UserError(
            f"set reward.options.chexbert.weights=PATH ({SOURCE}), or use reward.labeller=rules"
        )
    if weights == "hub":
        return hub.download(hub.SCORERS, "chexbert.pth", OFFLINE)
    path = Path(weights).expanduser()
    if not path.is_file():
        raise UserError(f"labeller chexbert: no file {path}; wanted {SOURCE}: {OFFLINE}")
    return path


def _read(weights: str | Path | None) -> dict[str, Tensor]:
    path = locate_weights(weights)
    try:
        content: Any = torch.load(path, map_location="cpu", weights_only=True)
    except _UNREADABLE as error:
        raise UserError(
            f"{path} is no checkpoint of tensors ({unreadable(error)}); wanted {SOURCE}"
        ) from error
    state = content.get("model_state_dict") if isinstance(content, dict) else None
    if not isinstance(state, dict) or not all(isinstance(v, Tensor) for v in state.values()):
        held = f"keys {_some(map(str, content))}" if isinstance(content, dict) else "another object"
        raise UserError(f"{path} holds {held}, no `model_state_dict` of tensors; wanted {SOURCE}")
    return {key.removeprefix("module."): value for key, value in state.items()}


def _check(state: dict[str, Tensor], shapes: dict[str, tuple[int, ...]]) -> None:
    state.pop(_IGNORED, None)
    faults = []
    if missing := [key for key in shapes if key not in state]:
        faults.append(f"lacks {_some(missing)}")
    if extra := [key for key in state if key not in shapes]:
        faults.append(f"holds {_some(extra)} besides")
    shaped = [
        f"{key} {list(state[key].shape)} where {list(shape)} is wanted"
        for key, shape in shapes.items()
        if key in state and tuple(state[key].shape) != shape
    ]
    if shaped:
        faults.append(f"has {_some(shaped)}")
    if faults:
        raise UserError(f"the CheXbert checkpoint {'; '.join(faults)}; wanted {SOURCE}")


def _some(names: Any) -> str:
    listed = list(names)
    more = f" and {len(listed) - _NAMED} more" if len(listed) > _NAMED else ""
    return ", ".join(listed[:_NAMED]) + more
