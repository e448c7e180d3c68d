"""Print the figures of a tree.

`python -m tests.house [ROOT]` counts its files, by default those of the working directory;
`python -m tests.house --trace` the lines of the trainer that a run of `rrgtrain rl` enters.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.house import figures, trace

words = sys.argv[1:]
if words == ["--trace"]:
    lines = trace.report()
else:
    lines = figures.report(Path(words[0] if words else ".").resolve())
for line in lines:
    print(line)
