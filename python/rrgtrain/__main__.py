"""`python -m rrgtrain`, and `torchrun ... -m rrgtrain` on several GPUs."""

from __future__ import annotations

import sys

from rrgtrain.cli import main

sys.exit(main())
