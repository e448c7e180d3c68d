#!/bin/sh
# peft 0.21.2: LoRA begun by `pissa` or `olora` takes its first weights out of the base. With the adapter on nothing has changed, but
# within `disable_adapter()`, by which RL and DPO read their reference from the same model, what is left of the base
# answers: off by as much as the logits themselves. LoRA begun with zeros and `orthogonal` give the base. Guess: the base by all.
# Seen: below.
# So: the KL to the start is large at step 0, and training is pulled towards a broken model. Keep a reference of its own.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" peft==0.21.2 transformers==5.23.0 torch==2.13.0 numpy==2.4.6
PYTHONPATH="$site" python3 -W ignore - <<'EOF'
import torch
from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM

ids = torch.arange(24).reshape(2, 12)
sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 64}


@torch.no_grad()
def divergence(begin):
    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(**sizes, initializer_range=0.3)).eval()
    base = model(ids).logits.log_softmax(-1)
    names = ["q_proj", "v_proj", "up_proj", "down_proj"]
    adapted = get_peft_model(model, LoraConfig(r=8, target_modules=names, init_lora_weights=begin))

    def kl():
        now = adapted(ids).logits.log_softmax(-1)
        return float((base.exp() * (base - now)).sum(-1).mean())

    on = kl()
    with adapted.disable_adapter():
        return on, kl()


for begin in (True, "orthogonal", "pissa", "olora"):
    on, off = divergence(begin)
    print(f"{begin}: KL from the base {on:.4f} with the adapter, {off:.4f} without")
    assert abs(on) < 1e-3 and (off > 0.1 if begin in ("pissa", "olora") else abs(off) < 1e-3)
EOF
