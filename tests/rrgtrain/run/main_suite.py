"""Two ranks, of which rank 0 works for longer than they wait for each other: `test_scale_runs`."""

from __future__ import annotations

import sys
import time

from rrgpolicy.ranks import ranks
from rrgtrain.errors import UserError
from rrgtrain.run.outcome import wait_for_main

TIMEOUT = 8.0


def fail() -> None:
    raise UserError("the scorecard cannot be written")


def main(words: list[str]) -> int:
    with ranks.opened("fsdp2", TIMEOUT, cuda=False), ranks.propagate_errors():
        wait_for_main(lambda: time.sleep(1.5 * TIMEOUT))
        ranks.barrier()
        try:
            wait_for_main(fail)
        except UserError as error:
            print(error)
    ranks.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
