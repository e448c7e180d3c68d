"""CheXbert (Smit et al., 2020): BERT and 14 linear heads on [CLS]."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from transformers import BertConfig, BertModel

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
