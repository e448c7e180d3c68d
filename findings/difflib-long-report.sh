#!/bin/sh
# Python 3.11, difflib: `SequenceMatcher.ratio` of a report and the same with one word changed is 0.95 at 190 letters and
# falls to 0.6 at 260 and 0.4 at 380. From 200 letters on, letters that make up more than a hundredth of the text, which are
# nearly all, begin no match. Guess: above 0.9 at each length. Seen: below, with `autojunk=False` beside it.
# So: near copies among long reports pass a gate at 0.9 while short ones are caught, and the likeness of a draft to
# what was signed falls with its length.
set -eu
python3 - <<'EOF'
import platform
from difflib import SequenceMatcher

SHORT = (
    "The heart is normal in size. The lungs are clear without focal consolidation. There is no pleural effusion or pneumothorax. "
    "No acute osseous abnormality is seen. Stable calcified granuloma."
)
LONG = f"{SHORT} Median sternotomy wires are intact. Degenerative changes of the spine."
print("Python", platform.python_version())
ratios = []
for report in (SHORT, LONG, f"{SHORT} {SHORT}"):
    changed = report.replace("normal", "enlarged")
    default = SequenceMatcher(None, report, changed).ratio()
    plain = SequenceMatcher(None, report, changed, autojunk=False).ratio()
    print(f"{len(report)} letters: {default:.2f}, without autojunk {plain:.2f}")
    ratios.append(default)
    assert plain > 0.94
assert ratios[0] > 0.94 and ratios[1] < 0.65 and ratios[2] < 0.45
EOF
