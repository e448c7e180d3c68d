#!/bin/sh
# datasets 5.2.0: a column of ClassLabel (no, yes) cast to ClassLabel (yes, no) keeps its numbers and changes its
# names: every "no" is "yes". `concatenate_datasets` of the two orders refuses and asks for like features, which
# makes the cast the next thing to do. Guess: the values follow their names, or the cast refuses. Seen: below. So:
# two sets of labelled reports, brought under one order of names, have the labels of one turned round, in silence.
# `align_labels_with_mapping` follows the names.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" datasets==5.2.0 numpy==2.4.6
cd "$site"
export HF_HOME="$site/cache" HF_HUB_OFFLINE=1 HF_DATASETS_DISABLE_PROGRESS_BARS=1
PYTHONPATH="$site" python3 -W ignore - <<'EOF'
from datasets import ClassLabel, concatenate_datasets, load_dataset


def labels(data):
    """Return the names of the labels of a set."""
    return [data.features["edema"].int2str(value) for value in data["edema"]]


with open("labels.csv", "w") as file:
    file.write("edema\nno\nyes\nno\n")
table = load_dataset("csv", data_files="labels.csv", split="train")
first = table.cast_column("edema", ClassLabel(names=["no", "yes"]))
cast = first.cast_column("edema", ClassLabel(names=["yes", "no"]))
aligned = first.align_labels_with_mapping({"yes": 0, "no": 1}, "edema")
for name, data in (("as read", first), ("cast", cast), ("aligned", aligned)):
    print(f"{name}: {labels(data)}, stored {data['edema'][:]}")
assert labels(first) == labels(aligned) == ["no", "yes", "no"] and labels(cast) == ["yes", "no", "yes"]
try:
    concatenate_datasets([first, cast])
except ValueError as error:
    print(f"concatenated: {str(error)[:60]}...")
else:
    raise SystemExit("the two orders are put together")
EOF
