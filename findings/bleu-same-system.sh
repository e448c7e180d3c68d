#!/bin/sh
# sacrebleu 2.6.0: the paired tests of a system against a copy of itself give p = 1 / (trials + 1), by bootstrap
# and by approximate randomization: only a difference GREATER than the one that was seen counts for chance, and
# none is greater. Of 50 reports one differs: randomization can make two values of the difference, as large as
# each other, so that an exact test says 1; it says 0.001. Guess: 1 for equal systems. Seen: below. So: a
# checkpoint held against itself, or one that changed a single report, gets the star of significance in a table.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" sacrebleu==2.6.0 numpy==2.4.6
SACREBLEU_SEED=12345 PYTHONPATH="$site" python3 -W ignore - <<'EOF'
from sacrebleu.metrics import BLEU
from sacrebleu.significance import PairedTest

references = [[f"no effusion or edema in study {n} of the chest" for n in range(50)]]
base = [f"no effusion nor edema in study {n} of chest" for n in range(50)]
p = {}
for name, system in (("a copy", list(base)), ("one report changed", [references[0][0], *base[1:]])):
    for kind in ("bs", "ar"):
        test = PairedTest([("base", base), (name, system)], {"BLEU": BLEU(references=references)},
                          references=None, test_type=kind, n_samples=1000)
        first, second = test()[1]["BLEU"]
        p[name, kind] = second.p_value
        print(f"{name}, {kind}: BLEU {first.score:.2f} and {second.score:.2f}, p = {second.p_value:.4f}")
assert p["a copy", "bs"] == p["a copy", "ar"] == 1 / 1001
assert p["one report changed", "ar"] < 0.01
EOF
