"""The house: the plan, the rules that keep a tree to it, and the weights of a tree.

`test_house.py` runs the rules on this repository, and on small trees with a violation planted in
them. `python -m tests.house [ROOT]` prints the weights.
"""

from __future__ import annotations

from tests.house.rules import RULES, over
from tests.house.tree import files

__all__ = ["RULES", "files", "over"]
