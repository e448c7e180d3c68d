#!/bin/sh
# transformers 5.23.0: a token that is added is cut out of every word that holds it. `add_tokens(["no", "PA"])`, for denials and
# views, makes "normal" into "no" and "rmal" and "abnormal" into three, where each was one token. Guess: as before, they are
# other words. Seen: below.
# So: one short word for the vocabulary changes the ids of common words, and "normal" begins with a denial. Add
# `AddedToken("no", single_word=True)`, which leaves them alone.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" transformers==5.23.0 tokenizers==0.23.3
PYTHONPATH="$site" python3 - 2>/dev/null <<'EOF'
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import AddedToken, PreTrainedTokenizerFast

WORDS = ["normal", "abnormal", "pneumonia"]


def tokenizer():
    model = Tokenizer(models.BPE())
    model.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    model.train_from_iterator(WORDS * 9, trainers.BpeTrainer(vocab_size=400, initial_alphabet=alphabet))
    return PreTrainedTokenizerFast(tokenizer_object=model)


plain, added, alone = tokenizer(), tokenizer(), tokenizer()
added.add_tokens(["no", "PA"])
alone.add_tokens([AddedToken("no", single_word=True)])
for name, each in (("before", plain), ("added", added), ("single_word", alone)):
    print(name, [each.tokenize(word) for word in WORDS])
assert added.tokenize("normal") == ["no", "rmal"] and len(added.tokenize("abnormal")) > 2
assert [alone.tokenize(word) for word in WORDS] == [plain.tokenize(word) for word in WORDS]
EOF
