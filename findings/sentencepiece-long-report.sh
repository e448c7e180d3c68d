#!/bin/sh
# sentencepiece 0.2.3: a line of more than 4,192 bytes takes no part in the training of a tokenizer. The log says "Found too
# long line" as a warning, which `minloglevel=2` hides. A word that stands 900 times in one long report on one line is
# unknown to the tokenizer; with `max_sentence_length=10000` it is a piece. Guess: it takes part. Seen: below. So: the
# longest reports, of the sickest patients, are those that the vocabulary has never seen. Train on sentences, or set the
# length.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" sentencepiece==0.2.3
PYTHONPATH="$site" python3 - <<'PY'
import io

import sentencepiece

SHORT = ["no effusion and edema of lung base"] * 50
unknown = {}
for length, report in ((4192, "vwxyz " * 900), (10000, "vwxyz " * 900), (4192, "vwxyz " * 600)):
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([report, *SHORT]), model_writer=model, vocab_size=30, hard_vocab_limit=False,
        minloglevel=2, max_sentence_length=length,
    )
    pieces = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    unknown[length, len(report)] = pieces.unk_id() in pieces.encode("vwxyz")
    print(f"a report of {len(report)} bytes, max_sentence_length {length}: its word is "
          f"{'unknown' if unknown[length, len(report)] else 'known'}")
assert unknown == {(4192, 5400): True, (10000, 5400): False, (4192, 3600): False}
PY
