"""Print what bytes and operations predict: `python -m experiments.head_epilogue`."""

from __future__ import annotations

from experiments.head_epilogue.predictions import lines

if __name__ == "__main__":
    print("\n".join(lines()))
