#!/bin/sh
# "3½ cm" is "31⁄2 cm" behind the normalization that sentencepiece 0.2.3 trains by default (nmt_nfkc), and "31/2 cm" by
# anyascii 0.3.3; "10⁴" is 104 by both and by Unidecode 1.4.0, which knows the halves: "3 1/2". Guess: the number
# is kept. Seen: below. So: a tokenizer of one's own, or a cleaning of the reports, makes a nodule of three and a
# half centimetres one of thirty-one halves, on both sides of every metric. Put a blank before a fraction first;
# normalization_rule_name="identity" leaves it as it is.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" sentencepiece==0.2.3 Unidecode==1.4.0 anyascii==0.3.3
PYTHONPATH="$site" python3 - <<'EOF'
import io

import anyascii
import sentencepiece
import unidecode


def trained(**options):
    """Return a tokenizer of a handful of lines."""
    model = io.BytesIO()
    lines = ["nodule of the right lung 0 1 2 3 4 5 6 7 8 9 cm / ⁄ ½ ¼ ⁴"] * 50
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(lines), model_writer=model, vocab_size=60,
                                             hard_vocab_limit=False, character_coverage=1.0, minloglevel=2, **options)
    return sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())


usual, identity = trained(), trained(normalization_rule_name="identity")
WAYS = {"sentencepiece": lambda text: usual.decode(usual.encode(text)),
        "sentencepiece, identity": lambda text: identity.decode(identity.encode(text)),
        "anyascii": anyascii.anyascii, "Unidecode": unidecode.unidecode}
SEEN = {"3½ cm": ["31⁄2 cm", "3½ cm", "31/2 cm", "3 1/2 cm"], "1¼ cm": ["11⁄4 cm", "1¼ cm", "11/4 cm", "1 1/4 cm"],
        "10⁴": ["104", "10⁴", "104", "104"]}
for text, rows in SEEN.items():
    made = [way(text) for way in WAYS.values()]
    print(f"{text}: " + ", ".join(f"{name} {row}" for name, row in zip(WAYS, made)))
    assert made == rows
EOF
