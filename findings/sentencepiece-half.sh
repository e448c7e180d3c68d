#!/bin/sh
# sentencepiece 0.2.3: a tokenizer trained by its defaults turns "an effusion of 1½ cm" into "11⁄2 cm": the sign
# for a half becomes three (NFKC), and nothing stands between it and the 1. "2¼" becomes 21⁄4, 10² becomes 102.
# `normalization_rule_name="identity"` keeps them. Guess: "1 1/2 cm". Seen: below.
# So: sizes of old reports, which have these signs, teach a model 5.5 cm for 1.5. Write them out before training.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" sentencepiece==0.2.3
PYTHONPATH="$site" python3 - <<'EOF'
import io

import sentencepiece

reports = ["An effusion of 1½ cm.", "A nodule of 2¼ cm.", "An area of 10² mm."]


def read(**options: str) -> list[str]:
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(reports * 40), model_writer=model, vocab_size=60,
        hard_vocab_limit=False, character_coverage=1.0, minloglevel=2, **options
    )
    tokenizer = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    return [tokenizer.decode(tokenizer.encode(report)) for report in reports]


print(read(), read(normalization_rule_name="identity"), sep="\n")
assert read() == ["An effusion of 11⁄2 cm.", "A nodule of 21⁄4 cm.", "An area of 102 mm."]
assert read(normalization_rule_name="identity") == reports
EOF
