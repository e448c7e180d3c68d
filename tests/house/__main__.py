"""Print the weights of a tree.

`python -m tests.house [ROOT]` weighs its files, by default those of the working directory;
`--trace` the lines that a run of `rrgtrain rl` enters; `--caps` prints the plan's CAPS, lowered.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.house import trace, weight

words = sys.argv[1:]
if words == ["--trace"]:
    lines = trace.report()
elif words == ["--caps"]:
    lines = weight.lowered(Path().resolve())
else:
    lines = weight.report(Path(words[0] if words else ".").resolve())
for line in lines:
    print(line)
