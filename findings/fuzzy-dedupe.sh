#!/bin/sh
# thefuzz 0.22.1: `process.dedupe` of six statements of a report, three pairs of a finding and its denial or its
# other side, leaves two. Its scorer, `token_set_ratio`, is 100 where one statement's words are all in the other, and of
# what counts as one it keeps the longest: "No pleural effusion" in place of "Pleural effusion". At a threshold of 100
# four are left, by `token_sort_ratio` at 95 all six. Guess: a finding and its denial both stay. Seen: below. So: a
# list of findings that was cleaned by it tends to its denials; give it a scorer that counts every word.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" thefuzz==0.22.1 rapidfuzz==3.14.6
PYTHONPATH="$site" python3 - <<'PY'
from thefuzz import fuzz, process

statements = ["Pleural effusion", "No pleural effusion", "Left effusion", "Right effusion", "Edema", "No edema"]
default = process.dedupe(statements)
strict = process.dedupe(statements, threshold=100)
sorted_words = process.dedupe(statements, threshold=95, scorer=fuzz.token_sort_ratio)
print("by default:", default)
print("threshold 100:", strict)
print("token_sort_ratio, 95:", sorted_words)
assert sorted(default) == ["No edema", "No pleural effusion"]
assert process.dedupe(["Pleural effusion", "No pleural effusion"], threshold=100) == ["No pleural effusion"]
assert "Edema" not in strict and sorted(sorted_words) == sorted(statements)
PY
