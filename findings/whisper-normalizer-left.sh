#!/bin/sh
# whisper-normalizer 0.1.15: the normalizer by which word error rates of dictation are counted takes "Lt" for a
# rank: "Lt lung clear" becomes "lieutenant lung clear", and joins numbers across a comma: "ribs six, seven and
# eight" becomes "ribs 67 and 8". A size loses its first digit to a word: "1.5 x 2 cm" is "one.5 x 2 cm", and
# "[left] effusion" has no side. Guess: "left" or "lt", and "6 7 and 8". Seen: below.
# So: a dictation of the same ribs counts as three errors or none by its commas. Read sides and numbers first.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" whisper-normalizer==0.1.15
PYTHONPATH="$site" python3 - <<'EOF'
from whisper_normalizer.english import EnglishTextNormalizer

expected = {
    "Lt lung clear.": "lieutenant lung clear",
    "Rt lung clear.": "rt lung clear",
    "Fractures of ribs six, seven and eight.": "fractures of ribs 67 and 8",
    "Fractures of ribs six and seven.": "fractures of ribs 6 and 7",
    "A nodule of 1.5 x 2 cm.": "a nodule of one.5 x 2 cm",
    "[Left] effusion.": "effusion",
}
normalize = EnglishTextNormalizer()
for text, seen in expected.items():
    print(f"{text} -> {normalize(text)}")
    assert normalize(text) == seen
EOF
