#!/bin/sh
# seqeval 1.2.2 reads the first letter of a tag: O is outside, whatever follows. RadGraph's labels of observations are
# OBS-DP, OBS-U and OBS-DA, so that a model which misses every observation, or calls what is absent present, has an F1
# of 1. Its warning, "seems not to be NE tag", is the same for the anatomy's ANAT-DP, which counts. With "B-" before
# each label the F1 is 0.5 and 0.33. Guess: below 1. Seen: below. So: an F1 of such tags is one of the anatomy alone;
# write the labels as B-OBS-DP.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" seqeval==1.2.2 scikit-learn==1.9.1 numpy==2.4.6
PYTHONPATH="$site" python3 - <<'PY'
import warnings

from seqeval.metrics import f1_score

reference = ["ANAT-DP", "O", "OBS-DP", "OBS-DA"]
ANSWERS = {"no observation": ["ANAT-DP", "O", "O", "O"],
           "both the other way round": ["ANAT-DP", "O", "OBS-DA", "OBS-DP"],
           "all as it is": reference}


def marked(tags):
    """Return the tags with B- before each label."""
    return [tag if tag == "O" else f"B-{tag}" for tag in tags]


for name, answer in ANSWERS.items():
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        bare = f1_score([reference], [answer])
    full = f1_score([marked(reference)], [marked(answer)])
    print(f"{name}: F1 {bare:.2f}, with B- {full:.2f}; warned of {sorted({str(w.message).split()[0] for w in warned})}")
    assert bare == 1 and (full == 1) == (answer is reference)
    assert any("ANAT-DP seems not" in str(w.message) for w in warned)
PY
