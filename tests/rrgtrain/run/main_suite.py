"""Two ranks that wait for rank 0, and an engine that draws ahead: `test_scale_runs`."""

from __future__ import annotations

import time
from copy import deepcopy
from dataclasses import replace
from functools import partial
from typing import Any

from rrgpolicy.ranks import ranks
from rrgpolicy.rollout import TransformersEngine
from rrgtrain.errors import UserError
from rrgtrain.run.outcome import wait_for_main

TIMEOUT = 8.0


class Beside(TransformersEngine):
    """Draws from a copy of the weights while the policy trains, as a server does."""

    def prepare(self, policy: Any, request: Any) -> Any:
        copied = replace(policy, model=deepcopy(policy.model))
        return partial(self.generate, copied, request)


def build_beside(*_: Any) -> Beside:
    return Beside()


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
