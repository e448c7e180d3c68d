"""CheXbert's network, and `chexbert.pth` in it: every tensor that belongs there, and no other.

The official loader takes a file with other keys without a word and labels with random weights.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn
from transformers import BertConfig, BertModel

from rrgclinical import hub
from rrgclinical.common.errors import UserError
from rrgclinical.inference import faults_of, load_tensors, told_faults
from rrgclinical.labels import NO_FINDING, OBSERVATIONS, ClassId

# No Finding is blank or positive, the other 13 observations take all four classes.
CLASSES = tuple(2 if c == NO_FINDING else len(ClassId) for c in range(len(OBSERVATIONS)))


class CheXbertNetwork(nn.Module):
    """BERT and its 14 heads: one matrix of 54 rows, ordered as `OBSERVATIONS`."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        # The pooler is in the checkpoint, and no head reads it.
        self.bert = BertModel(config, add_pooling_layer=False)
        self.heads = nn.Linear(config.hidden_size, sum(CLASSES))

    @property
    def word_embeddings(self) -> nn.Embedding:
        """The table e_j of DiTPO eq. 9 comes from."""
        return self.bert.embeddings.word_embeddings

    def first_state(self, embeddings: Tensor, attention_mask: Tensor) -> Tensor:
        """Compute the state of [CLS], [R, H]; arguments as of `forward`."""
        states = self.bert(inputs_embeds=embeddings, attention_mask=attention_mask)
        return states.last_hidden_state[:, 0]

    def forward(self, embeddings: Tensor, attention_mask: Tensor) -> Tensor:
        """Logits [R, 14, 4], fp32 at least; -inf where an observation lacks the class.

        Args:
            embeddings: [R, L, H], rows of `word_embeddings`; position 0 is [CLS].
            attention_mask: [R, L] int64, 0 at padding.
        """
        # The heads stay in fp32: in bf16 two of four logits are often equal.
        flat = self.heads(self.first_state(embeddings, attention_mask).to(self.heads.weight.dtype))
        parts = [
            nn.functional.pad(part, (0, len(ClassId) - part.shape[1]), value=-torch.inf)
            for part in flat.split(CLASSES, dim=1)
        ]
        return torch.stack(parts, dim=1)


SOURCE = f"chexbert.pth of the Hugging Face repository {hub.SCORERS}"
OFFLINE = "the labeller `rules` needs no file"

# Older transformers saved this buffer: 0, 1, 2, ... and no weight.
_IGNORED = "bert.embeddings.position_ids"


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
    shapes = _official_shapes(network)
    extra = [key for key in state if key not in shapes and key != _IGNORED]
    if faults := faults_of(state, shapes, extra):
        raise UserError(f"the CheXbert checkpoint {faults}; wanted {SOURCE}")
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
    content = load_tensors(path, str(path), SOURCE)
    state = content.get("model_state_dict") if isinstance(content, dict) else None
    if not isinstance(state, dict) or not all(isinstance(v, Tensor) for v in state.values()):
        keys = told_faults({"keys {}": map(str, content)}) if isinstance(content, dict) else ""
        held = keys or "another object"
        raise UserError(f"{path} holds {held}, no `model_state_dict` of tensors; wanted {SOURCE}")
    return {key.removeprefix("module."): value for key, value in state.items()}
