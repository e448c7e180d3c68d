"""Lose rank 1 in torchrun's first attempt, and say what is heard in the second, for `test_lost`."""

from __future__ import annotations

import os

from rrgpolicy.ranks import ranks


def main(words: list[str]) -> int:
    with ranks.opened("fsdp2", 60.0, cuda=False):
        ranks.barrier()
        assert ranks._watch is not None and ranks._watch.store is not None
        if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
            if ranks.rank() == 1:
                os._exit(3)
            ranks._watch.missing("")
            return 75
        ranks._watch._learn()
        print(ranks.gather(dict(ranks._watch.ended)))
    ranks.close()
    return 0
