"""Train the tiny policy's vision tower before the language model.

A real Qwen2.5-VL starts from a tower trained on a very large number of images; the tiny one
starts from noise, and the words of a report are a faint signal to learn vision from. A short
classification of the 14 labels from the mean image token stands in for that pretraining. It
touches the tower and its merger only, and the language model has learned nothing when
fine-tuning begins.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from rrgclinical.common.progress import progress
from rrgclinical.labels import OBSERVATIONS, to_binary
from rrgdata.study import Study
from rrgpolicy.model.forward import vision_embeddings
from rrgpolicy.model.policy import Policy
from rrgtrain.schema import PolicySettings
from rrgtrain.train.loader import PromptLoader, batch_indices


def warm_up_vision(
    policy: Policy,
    prompts: PromptLoader,
    studies: Sequence[Study],
    settings: PolicySettings,
    *,
    batch: int,
) -> float:
    """Train the vision tower on labels for `warmup_steps`; return the last loss.

    Studies without images or labels are left out; with none left, nothing is done and the loss
    is NaN. `settings` gives `warmup_steps`, `warmup_lr` and `seed`.
    """
    usable = [study for study in studies if study.images and study.labels is not None]
    if not usable or settings.warmup_steps == 0:
        return float("nan")
    labels = np.asarray([study.labels for study in usable], dtype=np.int8)
    truth = torch.as_tensor(to_binary(labels)).float().to(policy.device)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed)
        head = torch.nn.Linear(policy.embedding_shape[1], len(OBSERVATIONS))
    head.to(policy.device)
    parameters = [*(p for _, p in policy.eyes()), *head.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=settings.warmup_lr)
    loss = torch.tensor(float("nan"))
    policy.model.train()
    bar = progress(range(settings.warmup_steps), "vision warm-up")
    order = [
        batch_indices(len(usable), batch, step, settings.seed)
        for step in range(settings.warmup_steps)
    ]
    ahead = prompts.ahead([usable[i] for i in chosen] for chosen in order)
    for step, encoded in zip(bar, ahead, strict=True):
        chosen = order[step]
        tokens = vision_embeddings(policy, encoded)
        assert tokens is not None
        counts = [int(prompt.mm_token_type_ids.sum()) for prompt in encoded]
        pooled = torch.stack([part.mean(0) for part in tokens.split(counts)])
        loss = torch.nn.functional.binary_cross_entropy_with_logits(head(pooled), truth[chosen])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        bar.show(loss=loss.item())
    policy.model.eval()
    return loss.item()
