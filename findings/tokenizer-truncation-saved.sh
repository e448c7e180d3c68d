#!/bin/sh
# transformers 5.23.0 leaves truncation and padding of its last call in the tokenizer beneath it, and
# `save_pretrained` writes both into tokenizer.json. transformers sets them anew at each call, tokenizers 0.23.3
# (and what is built on it) obeys the file: the saved tokenizer cuts every text to the 8 ids of that call, and
# pads "No" to 8. Guess: the file is as before the call. Seen: below. So: one call with max_length before a
# checkpoint is saved, and a reader of the file in Rust sees the first words of each report, in silence. Save the
# tokenizer that was loaded, not the one that was used.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" transformers==5.23.0 tokenizers==0.23.3
HF_HUB_OFFLINE=1 PYTHONPATH="$site" python3 -W ignore - "$site" <<'EOF'
import sys

from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

PLACE = sys.argv[1]
REPORT = "No pleural effusion or pneumothorax is seen. The heart is of normal size."
alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
bytes_alone = Tokenizer(models.BPE({letter: n for n, letter in enumerate([*alphabet, "<pad>"])}, []))
bytes_alone.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
bytes_alone.decoder = decoders.ByteLevel()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=bytes_alone, pad_token="<pad>")

lengths = {}
for when in ("before", "behind"):
    if when == "behind":
        tokenizer("Clear lungs.", truncation=True, max_length=8, padding="max_length")
    folder = f"{PLACE}/{when}"
    tokenizer.save_pretrained(folder)
    by_file = Tokenizer.from_file(folder + "/tokenizer.json")
    by_transformers = AutoTokenizer.from_pretrained(folder)
    lengths[when] = [[len(by_file.encode(text).ids), len(by_transformers(text).input_ids)] for text in (REPORT, "No")]
    print(f"saved {when} the call: ids of a report and of 'No', by tokenizers and by transformers: {lengths[when]}")
whole = len(REPORT)
assert lengths["before"] == [[whole, whole], [2, 2]]
assert lengths["behind"] == [[8, whole], [8, 2]]
EOF
