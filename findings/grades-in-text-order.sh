#!/bin/sh
# datasets 5.2.0: `class_encode_column` of a column of numbers, such as grades or counts of 0 to 10, numbers the
# classes by the order of their texts: 0, 1, 10, 2. Guess: by the order of the numbers. Seen: below.
# So: a grade of 2 becomes class 3 and one of 10 class 2, without a word. What is trained on classes does not mind;
# weighted kappa, a mean, a threshold, a regression and whoever reads the number do. Give a ClassLabel with the
# names in their order.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m venv "$site/venv"
"$site/venv/bin/python" -m pip install -qq datasets==5.2.0
HF_HOME="$site" "$site/venv/bin/python" - <<'EOF'
import datasets

datasets.disable_progress_bars()
grades = [0, 1, 2, 10, 2]
made = datasets.Dataset.from_dict({"grade": grades}).class_encode_column("grade")
print("grades:", grades, "classes:", made["grade"][:], "names:", made.features["grade"].names)
assert made["grade"][:] == [0, 1, 3, 2, 3]
assert made.features["grade"].names == ["0", "1", "10", "2"]
EOF
