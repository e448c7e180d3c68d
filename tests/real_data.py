"""Name the folder of real reports, labels and radiographs, for the tests that read them."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
REAL = Path(os.environ.get("RRG_DATA") or ROOT.parent / "shared" / "data")
IU_XRAY = REAL / "iu_xray"
