"""The probe on a GPU, in the kernels that a run there uses: FlexAttention beneath the row.

A case a family, so that processes share the compilations; `make gpu PART=1` runs it.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers

from rrgpolicy.model.load import checkpoint_layers
from rrgpolicy.model.probe import probe
from tests.rrgpolicy.model.families import PLAIN_ROPE, SORTS, backbone, build, prompt

# Head widths of released checkpoints: 128, and 256 of Gemma 3.
HEADS: dict[str, dict[str, Any]] = {
    "qwen3": {"head_dim": 128},
    "gpt_oss": {"head_dim": 64, "rope_parameters": PLAIN_ROPE},
    "gemma3": {"head_dim": 256},
}


@pytest.mark.gpu
@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize("family", SORTS)
def test_each_family_goes_its_way_on_a_gpu(
    family: str, checkpointing: bool, record_property: Any
) -> None:
    transformers.logging.set_verbosity_error()
    model = build(family, torch.float32, **HEADS.get(family, {})).cuda()
    if checkpointing:
        checkpoint_layers(model)
    subject = backbone(model, "cuda")
    counts = (2, 1) if SORTS[family].sees else (0, 0)
    prompts = [prompt(subject, family, n, 20 - 7 * k, k) for k, n in enumerate(counts)]
    probed = probe(subject, prompts)
    line = f"{probed.attn}: {probed.line(family)}"
    print(line)
    record_property("probed", line)
    assert probed.way == SORTS[family].ways[0], line
    # the first attention that is tried is FlexAttention; any refusal says what it cannot do
    assert probed.way != "row" or probed.attn == "auto", line
