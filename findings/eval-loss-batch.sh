#!/bin/sh
# transformers 5.23.0: the Trainer's eval_loss is the mean over tokens within a batch and over reports between
# batches, so that it depends on per_device_eval_batch_size wherever reports differ in length: alone, a report of
# one token counts as much as one of forty, in a batch with it a fortieth. Guess: equal to four digits, for 5
# counts tokens in training. Seen: 1 % apart. So: perplexities, and the choice of a best checkpoint, compare only
# at one batch size and one order of the data.
# PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu brings the small build of torch.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" transformers==5.23.0 accelerate==1.15.0 torch==2.13.0 numpy==2.4.6
HF_HUB_OFFLINE=1 PYTHONPATH="$site" python3 -W ignore - "$site" <<'EOF'
import math
import sys

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

torch.manual_seed(0)
model = LlamaForCausalLM(LlamaConfig(vocab_size=64, hidden_size=16, intermediate_size=16, num_hidden_layers=1,
                                     num_attention_heads=2)).eval()
with torch.no_grad():
    model.lm_head.weight.mul_(20)
reports = [torch.randint(64, (length,)).tolist() for length in (3, 60, 4, 50, 3, 40)]


def collate(batch):
    """Pad ids on the right; padded labels are -100."""
    width = max(len(one["input_ids"]) for one in batch)
    ids = torch.tensor([one["input_ids"] + [0] * (width - len(one["input_ids"])) for one in batch])
    lengths = torch.tensor([[len(one["input_ids"])] for one in batch])
    inside = torch.arange(width) < lengths
    return {"input_ids": ids, "attention_mask": inside.long(), "labels": ids.masked_fill(~inside, -100)}


losses = {}
for size in (1, 2, 6):
    settings = TrainingArguments(sys.argv[1] + "/run", per_device_eval_batch_size=size, report_to=[], use_cpu=True,
                                 disable_tqdm=True)
    data = [{"input_ids": one} for one in reports]
    losses[size] = Trainer(model, settings, collate, eval_dataset=data).evaluate()["eval_loss"]
    print(f"eval batch {size}: loss {losses[size]:.4f}, perplexity {math.exp(losses[size]):.4g}")
with torch.no_grad():
    batch = collate([{"input_ids": one} for one in reports])
    over_tokens = model(**batch).loss.item()
    one_by_one = sum(model(**collate([{"input_ids": one}])).loss.item() for one in reports) / len(reports)
assert abs(losses[6] - over_tokens) < 1e-4 and abs(losses[1] - one_by_one) < 1e-4
assert abs(losses[1] / losses[6] - 1) > 0.005
EOF
