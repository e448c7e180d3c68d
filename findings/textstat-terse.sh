#!/bin/sh
# textstat 0.7.13: a sentence of one or two words is not counted, but its words are: of "No effusion. No edema. Lungs
# clear." it finds one sentence of 6 words, and one of 12 where a sentence of six words joins them. The point of "3.5
# cm" makes two sentences of one. Guess: each sentence counts. Seen: below. So: the terser a report, the harder to read
# it is by Flesch, Flesch-Kincaid and Gunning fog, which divide words by sentences; and mean sentence lengths of
# real and generated reports differ by style alone. Count with a splitter of one's own.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" textstat==0.7.13
PYTHONPATH="$site" python3 - <<'PY'
import textstat

REPORTS = {
    "No effusion. No edema. Lungs clear.": (1, 6),
    "No effusion. The heart is of normal size. No edema. Lungs clear.": (1, 12),
    "There is no effusion. There is no edema. The lungs are clear.": (3, 4),
    "Nodule of 3.5 cm is seen.": (2, 3),
}
for report, expected in REPORTS.items():
    counted = textstat.sentence_count(report), textstat.words_per_sentence(report)
    print(f"{counted[0]} sentences of {counted[1]:.1f} words: {report}")
    assert counted[0] == expected[0] and abs(counted[1] - expected[1]) < 0.4
PY
