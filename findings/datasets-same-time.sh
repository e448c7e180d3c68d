#!/bin/sh
# datasets 5.2.0: `load_dataset("json")` of a local file knows it by its path and its time of change alone. A file that
# was put right and carries the time of the old one, as `cp -p`, `rsync -t`, tar and reproducible builds give it,
# is read from the cache: the old reports, though the size differs too. Guess: the new text. Seen: below. So:
# corrected reports never reach the training, in silence. Touch the file behind every copy.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" datasets==5.2.0 numpy==2.4.6
cd "$site"
export HF_HOME="$site/cache" HF_HUB_OFFLINE=1 HF_DATASETS_DISABLE_PROGRESS_BARS=1
PYTHONPATH="$site" python3 -W ignore - <<'EOF'
import json
import os

from datasets import load_dataset


def reports():
    """Return what the file holds by the package."""
    return load_dataset("json", data_files="reports.jsonl", split="train")["report"][:]


read, time = [], 1_700_000_000
for texts in (["There is an effusion."], ["There is no effusion.", "Clear lungs."]):
    with open("reports.jsonl", "w") as file:
        file.write("".join(json.dumps({"report": text}) + "\n" for text in texts))
    os.utime("reports.jsonl", (time, time))
    read.append(reports())
    print(f"the file says {texts}, {os.path.getsize('reports.jsonl')} bytes; read: {read[-1]}")
assert read[0] == read[1] == ["There is an effusion."]
os.utime("reports.jsonl", (time + 1, time + 1))
assert reports() == texts
EOF
