#!/bin/sh
# torchao 0.18.0 and optimum-quanto 0.2.7: int8 weights of a model with a tied head (transformers 5.23.0) untie it. The head
# gets an int8 copy of its own, the embedding stays fp32, and what trains or merges the embedding no longer moves the
# head; nothing is said, and `tie_word_embeddings` still says true. Guess, of both: still the embedding. Seen: below.
# So: the copy costs memory where most of a model is its vocabulary, and the two part. Leave the head out: quanto's
# `exclude="lm_head"`, torchao's `filter_fn`.
# PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu brings the small build of torch.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" torchao==0.18.0 optimum-quanto==0.2.7 transformers==5.23.0 torch==2.13.0 numpy==2.4.6
PYTHONPATH="$site" python3 -W ignore - <<'EOF'
import torch
from optimum.quanto import freeze, qint8, quantize
from torchao.quantization import Int8WeightOnlyConfig, quantize_
from transformers import LlamaConfig, LlamaForCausalLM

SIZES = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2}


def by_quanto(model: torch.nn.Module, head: bool) -> None:
    quantize(model, weights=qint8, exclude=None if head else "lm_head")
    freeze(model)


def by_torchao(model: torch.nn.Module, head: bool) -> None:
    quantize_(model, Int8WeightOnlyConfig(),
              lambda module, name: isinstance(module, torch.nn.Linear) and (head or name != "lm_head"))


for quantized in (by_quanto, by_torchao):
    for head in (True, False):
        model = LlamaForCausalLM(LlamaConfig(vocab_size=100, tie_word_embeddings=True, **SIZES))
        assert model.lm_head.weight is model.model.embed_tokens.weight
        quantized(model, head)
        hidden = torch.ones(1, 32)
        before = model.lm_head(hidden)
        with torch.no_grad():
            model.model.embed_tokens.weight.mul_(2)
        moved = (model.lm_head(hidden) - before).abs().max().item()
        print(f"{quantized.__name__}, head too {head}: the logits move with the embedding by {moved:.3f}")
        assert (moved == 0) == head and model.config.tie_word_embeddings
EOF
