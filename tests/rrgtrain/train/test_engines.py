"""Engines by name, of the user's own and one step ahead, a stopwatch, steps on a stand-in."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from threading import Semaphore
from typing import Any

import pytest
import torch

from rrgkern import PolicyLoss
from rrgpolicy.model.policy import Policy
from rrgpolicy.rollout import Rollout, SamplingRequest, TransformersEngine, sampling
from rrgpolicy.rollout.engines import build_engine, require_engine
from rrgpolicy.rollout.policy_sampler import PolicySampler
from rrgpolicy.sampler_alarm import ROUNDING
from rrgtrain.algorithms.group import members
from rrgtrain.errors import UserError
from rrgtrain.run.checked import require_ahead
from rrgtrain.state.null_checkpointer import NullCheckpointer, State
from rrgtrain.state.tree import take_out
from rrgtrain.train import rl
from rrgtrain.train.sample import with_old_of_sampler
from tests.rrgkern.test_standin import ROOT, on_standin
from tests.rrgpolicy.model.common import REPORTS, prompt, tiny_policy
from tests.rrgtrain.common import Batch, accumulate, groups_of, recipe, rollout_logps
from tests.rrgtrain.common import gradients as of_policy
from tests.rrgtrain.train.loops import Length
from tests.rrgtrain.train.test_sampler_gap import CHAOS, Elsewhere, Noting, bits, run, steps

OWN = """
from rrgpolicy.rollout import TransformersEngine

class Counted(TransformersEngine):
    asked = 0

    def generate(self, policy, request):
        self.asked += 1
        return super().generate(policy, request)

def build(recipe, policy, directory):
    return Counted()
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "an_engine.py").write_text(textwrap.dedent(OWN))
    monkeypatch.syspath_prepend(tmp_path)
    return "an_engine"


def test_an_engine_of_ones_own_samples(own: str, tmp_path: Path) -> None:
    policy, words = tiny_policy(), recipe(f"rollout.engine={own}:build")
    require_engine(words.rollout, tmp_path)
    engine: Any = build_engine(words, policy, tmp_path)
    request = SamplingRequest(
        [prompt(policy, "s", 1)], group=2, max_new_tokens=4, seeds=[[1, 2]], temperature=1.0
    )
    with sampling(engine, policy, 0) as gathered:
        (reports,) = engine.generate(gathered, request)
        (ours,) = TransformersEngine().generate(gathered, request)
    assert engine.asked == 1
    assert [r.ids.tolist() for r in reports] == [r.ids.tolist() for r in ours]


STEPS = str(ROOT / "tests" / "rrgtrain" / "train" / "on_standin.py")
# Rewards and texts are on the host, and with them what is made of them.
ON_HOST = "group_advantages,edit_plan,entity_match,byte_level_spans,span_max,tfidf_weights"


@pytest.mark.slow
def test_every_algorithm_trains_on_a_device_of_its_own_and_a_fault_is_red(monkeypatch):
    monkeypatch.setenv("RRGKERN_STANDIN_HOST", ON_HOST)
    monkeypatch.setenv("RRGKERN_STANDIN_CASES", "all")
    run = on_standin(STEPS)
    assert "8 passed" in run.stdout, run.stdout[-4000:] + run.stderr


def test_steps_are_compiled_where_a_training_on_a_gpu_repays_it(tmp_path: Path) -> None:
    policy = tiny_policy()
    on_gpu = replace(policy, device=torch.device("cuda"))
    cases = [(on_gpu, "auto", 200, True), (on_gpu, "auto", 199, True), (on_gpu, "off", 200, True)]
    compiled = []
    for of, way, count, trains in [*cases, (on_gpu, "auto", 200, False), (policy, "on", 1, False)]:
        words = recipe(f"rollout.compile={way}", f"rl.steps={count}", "rl.max_new_tokens=100")
        engine: Any = build_engine(words, of, tmp_path, trains=trains)
        compiled.append(engine.compiled is not None)
    assert compiled == [True, False, False, False, True]
    sampler = PolicySampler(lambda _: engine)
    with sampler.weights(policy):
        assert sampler.compile_row() == {"seconds/compile": 0.0}


class Beside(Elsewhere):
    """Draws the batches but the first no sooner than the gradients of the one before are there."""

    def __init__(self, policy: Policy, gradients: Semaphore, **fault: Any) -> None:
        super().__init__(policy, **fault)
        self.gradients, self.drew = gradients, list[dict[str, torch.Tensor]]()

    def prepare(self, policy: Policy, request: SamplingRequest) -> Any:
        first = not self.drew
        self.drew.append(bits(self.policy))

        def draw() -> list[list[Rollout]]:
            assert first or self.gradients.acquire(timeout=60), "the loop waits for the reports"
            return self.generate(policy, request)

        return draw


@pytest.fixture
def gradients(monkeypatch: pytest.MonkeyPatch) -> Semaphore:
    """Free once for each batch whose gradients are there, before its weights change."""
    there, clip = Semaphore(0), rl.clip_gradients

    def clipped(*of: Any) -> torch.Tensor:
        there.release()
        return clip(*of)

    monkeypatch.setattr(rl, "clip_gradients", clipped)
    return there


AHEAD = [*CHAOS, "rl.ahead=1"]


@pytest.mark.parametrize("surrogate", ["clip", "reinforce"])
def test_a_batch_is_drawn_while_the_one_before_is_trained_on(surrogate, gradients, tmp_path):
    policy = tiny_policy()
    engine, rewards = Beside(policy, gradients), Noting(policy)
    words = recipe(*AHEAD, f"rl.surrogate={surrogate}")
    run(tmp_path / "run", policy, words, engine, rewards=rewards)
    first, *later, _ = rewards.seen  # by the weights that step trains
    for drew, wanted in zip(engine.drew, (first, first, *later), strict=True):
        assert all(torch.equal(drew[name], wanted[name]) for name in wanted)
    rows = steps(tmp_path / "run")
    gaps = [row.get("sampler/gap_mean") for row in rows]
    assert gaps[-1] is None and all(0 < gap < ROUNDING[policy.dtype] / 2 for gap in gaps[:-1])
    off = [abs(row["ratio_mean"] - 1) for row in rows]
    assert off[0] < 1e-5, "the first is drawn from the weights that it trains"
    assert surrogate == "reinforce" or min(off[1:]) > 1e-5


def test_a_push_that_is_lost_is_told_from_the_one_update(gradients, tmp_path) -> None:
    policy = tiny_policy()
    engine, rewards = Beside(policy, gradients, frozen=2), Noting(policy)
    with pytest.raises(UserError, match="likely weights that the sampler has not taken over"):
        run(tmp_path / "run", policy, recipe(*AHEAD), engine, rewards=rewards)
    assert len(rewards.seen) == 3 and len(engine.drew) == 4
    after = bits(policy)
    assert all(torch.equal(after[name], was) for name, was in rewards.seen[-1].items())


def test_a_stop_does_not_wait_for_reports_under_way() -> None:
    policy, gate = tiny_policy(), Semaphore(0)
    engine = Beside(policy, gate)
    engine.drew.append({})  # the first waits for nothing
    sampler = PolicySampler(lambda _: engine)
    request = SamplingRequest([prompt(policy, "s", 1)], group=2, max_new_tokens=2, seeds=[[1, 2]])
    drawn = sampler.begin(policy, request)
    sampler.close()
    gate.release()
    assert len(drawn()[0]) == 2


class Remembering(NullCheckpointer):
    """Keeps the state before step 2, as a checkpoint would, and begins from `saved`."""

    def __init__(self, policy: Policy, saved: Any = None) -> None:
        self.policy, self.saved, self.kept = policy, saved, dict[str, Any]()

    def begin(self, stage: str, state: Callable[[], State]) -> State | None:
        self.state = state
        if self.saved is None:
            return None
        self.policy.model.load_state_dict(self.saved["weights"])
        return self.saved["loop"]

    @contextmanager
    def step(self, step: int) -> Iterator[None]:
        if step == 2:
            loop = self.state()
            assert take_out(loop["ahead"])[0] is not None, "plain data and tensors"
            self.kept = deepcopy({"weights": self.policy.model.state_dict(), "loop": loop})
        yield


def test_a_resume_trains_on_the_reports_that_were_drawn(gradients, tmp_path) -> None:
    ends, saved = [], None
    for name in ("whole", "resumed"):
        policy = tiny_policy()
        keeper = Remembering(policy, saved)
        more: Any = {"rewards": Length(), "checkpointer": keeper}
        run(tmp_path / name, policy, recipe(*AHEAD), Beside(policy, gradients), **more)
        ends.append((bits(policy), [row["reward/total"] for row in steps(tmp_path / name)][-2:]))
        saved = keeper.kept
    (one, rewards), (two, again) = ends
    assert rewards == again and all(torch.equal(one[name], two[name]) for name in one)


def test_old_is_the_samplers_and_an_edit_stays_at_ratio_one() -> None:
    policy, settings, loss = tiny_policy(), recipe().rl, PolicyLoss()
    groups = groups_of(policy, [[REPORTS[0], REPORTS[1]], [REPORTS[2]]], edited=True)
    flat, objective = members(groups), torch.linspace(-1, 1, 4)
    own = rollout_logps(policy, None, groups, objective, loss, settings).old
    assert own is not None
    rows = zip(flat, own.split([len(m.ids) for m in flat]), strict=True)
    drew = [m.parent is None for m in flat]
    older = [row - 0.1 * (k + 1) * drew[k] for k, (_, row) in enumerate(rows)]
    told = iter(
        [replace(m, sampler_logps=o) if d else m for m, o, d in zip(flat, older, drew, strict=True)]
    )
    apart = [replace(g, members=tuple(next(told) for _ in g.members)) for g in groups]
    batch, found = Batch.of(apart, objective, settings), []
    for of in (with_old_of_sampler(batch), replace(batch, old=torch.cat(older))):
        accumulate(policy, None, apart, objective, loss, settings, fixed=of)
        found.append(of_policy(policy))
    torch.testing.assert_close(*found)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "rollout.engine=transformers samples where the policy trains; use vllm_server, or"),
        (["rollout.engine=vllm_server", "rl.resample=1"], "rl.resample=1 draws in the step"),
        (["rollout.engine=vllm_server", "rl.epochs=2"], "a batch gets several updates; use"),
        (["rollout.engine=vllm_server", "rl.top_p=0.9"], "rl.top_p=0.9 gives the sampler a scale"),
    ],
)
def test_what_cannot_go_one_step_ahead_is_told_at_once(words: list[str], told: str) -> None:
    cfg = recipe("rl.ahead=1", *words)
    with pytest.raises(UserError, match=re.escape(told)):
        require_ahead(cfg.rl, cfg.rollout.engine)
    with pytest.raises(UserError, match="has no `prepare`: use rollout.engine=vllm_server"):
        PolicySampler().begin(
            tiny_policy(), SamplingRequest([], group=1, max_new_tokens=1, seeds=[])
        )
