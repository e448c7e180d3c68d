#!/bin/sh
# transformers 5.23.0: the tokenizer of SigLIP, which image and text models of radiographs are built on, takes all of ASCII's
# punctuation out before it reads: "3.5 cm" and "35 cm" are the same ids, so are "<5 mm" and ">5 mm", and "T1-2" and
# "T12". So does open_clip 3.3.0 with that model's cleaning. Guess: other tokens. Seen: below.
# So: a score of such a model cannot tell a nodule from a mass ten times its size. Write measurements in words, or compare
# them outside the model.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" transformers==5.23.0 sentencepiece==0.2.3 protobuf==7.36.2 numpy==2.4.6
PYTHONPATH="$site" python3 -W ignore - <<'EOF'
import tempfile
from pathlib import Path

import sentencepiece
from transformers import SiglipTokenizer

folder = Path(tempfile.mkdtemp())
(folder / "reports.txt").write_text("A nodule of 3.5 cm, <5 mm or >5 mm at T1-2, 0124679 8.\n" * 50)
sentencepiece.SentencePieceTrainer.train(
    input=str(folder / "reports.txt"), model_prefix=str(folder / "spiece"), vocab_size=32, model_type="char",
    eos_piece="</s>", pad_id=3, minloglevel=2,
)
tokenizer = SiglipTokenizer(str(folder / "spiece.model"))
for first, second in (("3.5 cm", "35 cm"), ("<5 mm", ">5 mm"), ("T1-2", "T12"), ("3.5 cm", "3.6 cm")):
    one, other = (tokenizer(text)["input_ids"] for text in (first, second))
    print(f"{first!r} and {second!r}: {'the same' if one == other else 'other'} ids, read as {tokenizer.tokenize(first)}")
    assert (one == other) == (second != "3.6 cm")
EOF
