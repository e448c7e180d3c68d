"""Lose rank 1 in torchrun's first attempt, and say who is there in the second, for `test_lost`."""

from __future__ import annotations

import os

from rrgpolicy.ranks import ranks


def main(words: list[str]) -> int:
    with ranks.opened("fsdp2", 60.0, cuda=False):
        ranks.barrier()
        if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
            if ranks.rank() == 1:
                os._exit(3)
            return 75
        print(ranks.gather(ranks.rank()))
    ranks.close()
    return 0
