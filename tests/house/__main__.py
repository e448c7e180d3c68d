"""Print the figures of a tree: `python -m tests.house [ROOT]`, by default the working directory."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.house import figures

for line in figures.report(Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()):
    print(line)
