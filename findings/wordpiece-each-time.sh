#!/bin/sh
# tokenizers 0.23.3: a WordPiece vocabulary trained on the same reports with the same settings is another one in each
# process: pieces that are equally common are taken in the order of a hash table. BPE, Unigram and WordLevel are the same each
# time. Guess: one vocabulary. Seen: below; five trainings read a text in five ways, by other pieces and other numbers. So:
# a model whose tokenizer is trained anew from its recipe reads other ids, and two runs are not one experiment. Keep the
# file of the first training, and its digest with the results.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" tokenizers==0.23.3
cat > "$site/train.py" <<'PY'
import random
import sys

from tokenizers import Tokenizer, models, pre_tokenizers, trainers

WORDS = ("no small large left right pleural effusion edema nodule opacity in the base apex of lung heart is normal enlarged "
         "atelectasis pneumothorax consolidation").split()
random.seed(0)
reports = [" ".join(random.choices(WORDS, k=8)) for _ in range(200)]
quiet = {"show_progress": False}
UNKNOWN = {"special_tokens": ["[UNK]"], **quiet}
KINDS = {
    "WordPiece": (models.WordPiece(unk_token="[UNK]"), trainers.WordPieceTrainer(vocab_size=100, **UNKNOWN)),
    "BPE": (models.BPE(), trainers.BpeTrainer(vocab_size=100, **quiet)),
    "Unigram": (models.Unigram(), trainers.UnigramTrainer(vocab_size=90, **quiet)),
    "WordLevel": (models.WordLevel(unk_token="[UNK]"), trainers.WordLevelTrainer(vocab_size=20, **UNKNOWN)),
}
tokenizer = Tokenizer(KINDS[sys.argv[1]][0])
tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
tokenizer.train_from_iterator(reports, KINDS[sys.argv[1]][1])
print(" ".join(sorted(tokenizer.get_vocab())))
read = tokenizer.encode("consolidated opacities")
print(" ".join(f"{token}={number}" for token, number in zip(read.tokens, read.ids)))
PY
PYTHONPATH="$site" python3 - "$site/train.py" <<'PY'
import subprocess
import sys

for kind in ("WordPiece", "BPE", "Unigram", "WordLevel"):
    runs = [subprocess.run([sys.executable, sys.argv[1], kind], capture_output=True, text=True, check=True).stdout
            for _ in range(5)]
    vocabularies, readings = ({run.split("\n")[line] for run in runs} for line in (0, 1))
    print(f"{kind}: {len(vocabularies)} vocabularies of 5 trainings; 'consolidated opacities' is read in {len(readings)} ways")
    print("\n".join(f"    {reading}" for reading in sorted(readings)[:2]))
    assert (len(readings) == 1) == (kind != "WordPiece") and (kind == "WordPiece" or len(vocabularies) == 1)
PY
