#!/bin/sh
# bert-score 0.3.13 with idf: a word that stands in every reference weighs log(1) = 0. A report made of such words
# has an F1 of 0 against itself, and in a corpus of one pair every report has. Without idf it is 1. Guess: 1, as a
# text is its own best match. Seen: below. So: scores with idf of one study at a time (a reward, a server) are 0,
# and those of a batch depend on what else is in it: the normal report that most references repeat counts least,
# or nothing. Take idf from the whole training set. The model is a random BERT, made here: an identical pair needs
# no trained one.
# PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu brings the small build of torch.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" bert-score==0.3.13 transformers==5.23.0 torch==2.13.0 numpy==2.4.6
HF_HUB_OFFLINE=1 PYTHONPATH="$site" python3 -W ignore - "$site" <<'EOF'
import sys

import torch
from bert_score import score
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

PLACE = sys.argv[1] + "/random-bert"
words = "[PAD] [UNK] [CLS] [SEP] no acute process effusion small seen".split()
tokenizer = Tokenizer(models.WordLevel({word: n for n, word in enumerate(words)}, "[UNK]"))
tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
tokenizer.post_processor = processors.TemplateProcessing(
    single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]",
                        sep_token="[SEP]", model_max_length=64).save_pretrained(PLACE)
torch.manual_seed(0)
BertModel(BertConfig(vocab_size=len(words), hidden_size=16, intermediate_size=16, num_hidden_layers=2,
                     num_attention_heads=2)).save_pretrained(PLACE)
f1 = {}
for reports in (["no acute process"], ["no acute process", "no acute process seen"],
                ["no acute process", "small effusion"]):
    for idf in (False, True):
        values = score(reports, reports, model_type=PLACE, num_layers=2, idf=idf)[2]
        f1[len(f1)] = [round(value, 5) for value in values.tolist()]
        print(reports, "against themselves,", "with idf" if idf else "without", f1[len(f1) - 1])
assert f1[0] == [1] and f1[2] == f1[4] == f1[5] == [1, 1]
assert f1[1] == [0] and f1[3] == [0, 1]
EOF
