"""Time ten steps with and without `rl.ahead`, where sampling and update take equally long.

    python -m experiments.ahead            five seconds each
    python -m experiments.ahead 2          two

No GPU is needed: the policy is tiny, and both sides sleep, so that a busy machine decides little.
The engine is a server as the loop knows it: weights of its own, which a push replaces, and a delay
before each batch. The update sleeps where the embedding gets its gradient. Both runs follow one
another in one process; what counts is the sum of a step's phases, without validations.
"""

from __future__ import annotations

import copy
import sys
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rrgclinical.common.table import aligned
from rrgpolicy.model.policy import Policy
from rrgpolicy.rollout import Rollout, SamplingRequest, TransformersEngine
from rrgreport.run_files import read_metrics
from rrgtrain.cli import main as rrgtrain

PHASES = ("rollout", "edit", "reward", "update")
WORDS = [
    *("data.phantom.train=8", "data.phantom.val=3", "data.phantom.test=4", "data.phantom.size=56"),
    *("data.images=none", "policy.width=64", "policy.layers=1", "policy.vision_layers=1"),
    *("policy.vocabulary=380", "policy.warmup_steps=0", "sft.steps=1", "sft.batch=1"),
    *("sft.warmup=0", "rl.algorithm=dr_grpo", "rl.prompts=2", "rl.group=2", "rl.steps=10"),
    *("rl.max_new_tokens=4", "rl.beta=0", "rl.eval_every=100"),
    "reward.terms={experiments.ahead:varied: 1}",
    *("log.records=0", "checkpoint.seconds=9999", "checkpoint.steps=9999", "eval.limit=1"),
    *("eval.max_new_tokens=4", "eval.bootstrap=20", "eval.meteor=false"),
]
seconds = 5.0


class DelayedServer(TransformersEngine):
    """Samples from its own copy of the last push, `seconds` after it was asked to."""

    own_kernels = True

    def __init__(self, policy: Policy) -> None:
        super().__init__()
        self._own = copy.deepcopy(policy)

    def update(self, policy: Policy, step: int | None = None) -> None:
        """Take the weights over."""
        self._own.model.load_state_dict(policy.model.state_dict())
        self._own.eos_ids = policy.eos_ids

    def prepare(
        self, policy: Policy, request: SamplingRequest
    ) -> Callable[[], list[list[Rollout]]]:
        """Nothing of the policy's is needed."""

        def draw() -> list[list[Rollout]]:
            if not request.greedy:  # a validation is none of the ten steps
                time.sleep(seconds)
            return TransformersEngine.generate(self, self._own, request)

        return draw

    def generate(self, policy: Policy, request: SamplingRequest) -> list[list[Rollout]]:
        """As asked, while the caller waits."""
        return self.prepare(policy, request)()


def varied(report: str, reference: str) -> float:
    """Give each text a number of its own, so that members differ and gradients arrive."""
    return zlib.crc32(report.encode()) / 2**32


def build(recipe: Any, policy: Policy, directory: Path) -> DelayedServer:
    """The engine; from here on updates of the policy take their time too."""
    engine = DelayedServer(policy)
    weight = policy.backbone.get_input_embeddings().weight
    weight.register_post_accumulate_grad_hook(lambda _: time.sleep(seconds))
    return engine


def ten_steps(home: Path, ahead: int) -> dict[str, float]:
    """Seconds of ten steps by phase, from the weights that `home` holds."""
    out = home / f"ahead-{ahead}"
    words = [
        *WORDS,
        f"rl.ahead={ahead}",
        "rollout.engine=experiments.ahead:build",
        "--from",
        str(home / "sft" / "checkpoints" / "sft"),
    ]
    _command("rl", *words, "--out", str(out))
    rows = [r for r in read_metrics(out / "metrics.jsonl") if "seconds/update" in r]
    rows = [row for row in rows if row["phase"] != "sft"]
    assert len(rows) == 10, len(rows)
    return {phase: sum(row.get(f"seconds/{phase}", 0.0) for row in rows) for phase in PHASES}


def _command(*words: str) -> None:
    status = rrgtrain([*words])
    if status:
        raise SystemExit(status)


def main(arguments: list[str]) -> None:
    """Print both, and the ratio of the sums."""
    global seconds
    seconds = float(arguments[0]) if arguments else seconds
    with TemporaryDirectory() as name:
        home = Path(name)
        _command("sft", *WORDS, "--out", str(home / "sft"))
        taken = {ahead: ten_steps(home, ahead) for ahead in (0, 1)}
    whole = {ahead: sum(phases.values()) for ahead, phases in taken.items()}
    rows = [["rl.ahead", *PHASES, "ten steps"]]
    for ahead, phases in taken.items():
        rows.append([str(ahead), *(f"{s:.1f}" for s in (*phases.values(), whole[ahead]))])
    print("\n".join(aligned(rows)))
    print(f"ratio {whole[1] / whole[0]:.3f}")


if __name__ == "__main__":
    # by the name under which the recipe finds it: one module, one delay
    from experiments.ahead import main as run

    run(sys.argv[1:])
