#!/bin/sh
# optimum-quanto 0.2.7 (transformers 5.23.0): int8 weights of a model with a tied head: `quantize` unties it. Behind `freeze`
# the head has an int8 copy of its own, the embedding stays fp32, and a step on the embedding no longer moves the
# head; nothing is said, and `tie_word_embeddings` still says true. Guess: still the embedding. Seen: below.
# So: the copy costs memory on a model whose vocabulary is most of it, and training or merging the embedding parts the two.
# Leave the head out, `exclude="lm_head"`.
# PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu brings the small build of torch.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" optimum-quanto==0.2.7 transformers==5.23.0 torch==2.13.0 numpy==2.4.6
PYTHONPATH="$site" python3 -W ignore - <<'EOF'
import torch
from optimum.quanto import freeze, qint8, quantize
from transformers import LlamaConfig, LlamaForCausalLM

sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2}
for left_out in (None, "lm_head"):
    model = LlamaForCausalLM(LlamaConfig(vocab_size=100, tie_word_embeddings=True, **sizes))
    assert model.lm_head.weight is model.model.embed_tokens.weight
    quantize(model, weights=qint8, exclude=left_out)
    freeze(model)
    ids = torch.arange(5)[None]
    hidden = model.model(ids).last_hidden_state
    before = model.lm_head(hidden)
    with torch.no_grad():
        model.model.embed_tokens.weight.mul_(2)
    moved = (model.lm_head(hidden) - before).abs().max().item()
    print(f"left out {left_out}: {type(model.lm_head).__name__}, the logits move with the embedding by {moved:.3f}")
    assert (moved == 0) == (left_out is None) and model.config.tie_word_embeddings
EOF
