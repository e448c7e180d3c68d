"""A Ray job on CPUs: two workers write, edit, reward and differentiate a batch through the plug-in.

The commands of the page are held against verl's own configuration, which refuses a key it lacks.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
from pathlib import Path

import numpy as np
import pytest
import torch

from rrgpolicy.model.tiny import build_tiny
from rrgpolicy.settings import PolicySettings
from rrgtrain.rewards import RewardService
from rrgtrain.schema import RewardSettings
from tests.parity.padded import peer

ray = peer("ray")
peer("rrgtrain.integrations.verl")
hydra = peer("hydra")
DataProto = peer("verl").DataProto
reward_loop = peer("verl.experimental.reward_loop.reward_loop")
core = peer("verl.trainer.ppo.core_algos")
verl_worker = peer("tests.parity.verl_worker")
ROOT = Path(__file__).parents[2]
REFERENCES = ["No pneumothorax. The heart is enlarged.", "Small left pleural effusion. Edema."]
REPORTS = [
    ["The heart is enlarged.", "Clear lungs.", "There is a pneumothorax. The heart is enlarged."],
    ["Edema.", "Small left pleural effusion.", "Clear lungs."],
]
TERMS = {"label_f1": 1.0, "match": 0.5}


def composed(overrides: list[str]):
    with hydra.initialize_config_module("verl.trainer.config", version_base=None):
        return hydra.compose("ppo_trainer", overrides=overrides)


def test_the_commands_of_the_page_are_of_verls_schema() -> None:
    page = (ROOT / "docs" / "other-trainers.md").read_text("utf-8")
    commands = re.findall(r"```text\n(python3 -m verl\.trainer\.main_ppo .*?)```", page, re.DOTALL)
    assert len(commands) == 2, "one for a 3B model, one for an 8B"
    for command in commands:
        config = composed(shlex.split(command.replace("\\\n", " "))[3:])
        rollout, trainer = config.actor_rollout_ref.rollout, config.trainer
        assert trainer.nnodes > 1 and config.data.train_batch_size % (trainer.nnodes * 8) == 0
        assert config.actor_rollout_ref.actor.policy_loss.loss_mode in core.POLICY_LOSS_REGISTRY
        assert config.algorithm.adv_estimator in core.ADV_ESTIMATOR_REGISTRY
        assert config.reward.reward_manager.name == "rrgkern" and rollout.n == 8
        assert rollout.agent.default_agent_loop == "rrgkern_edits"
        assert rollout.val_kwargs.n < rollout.n and not rollout.calculate_log_probs
        assert peer("rrgtrain.integrations.verl_rewards").reward_settings(config).terms
    with pytest.raises(Exception, match="Could not override 'algorithm.adv_estimatr'"):
        composed(["algorithm.adv_estimatr=rrgkern"])


def start(variables: dict[str, str]) -> None:
    """Start Ray; it waits half a minute for its own node, which a busy machine may exceed."""
    for attempt in (1, 2, 3):
        try:
            ray.init(num_cpus=2, include_dashboard=False, runtime_env={"env_vars": variables})
            return
        except Exception as error:
            ray.shutdown()
            if attempt == 3 or "timed out during startup" not in str(error):
                raise


@pytest.fixture
def job(tmp_path, monkeypatch):
    """Start verl's own reward loop with two workers."""
    tokenizer = build_tiny(
        PolicySettings(), [*REFERENCES, *REPORTS[0], *REPORTS[1]], tmp_path / "tiny"
    )
    config = composed([
        f"actor_rollout_ref.model.path={tokenizer}", "actor_rollout_ref.rollout.n=3",
        "actor_rollout_ref.rollout.calculate_log_probs=false",
        "actor_rollout_ref.rollout.response_length=64",
        "reward.num_workers=2", "reward.reward_manager.name=rrgkern",
        "+reward.reward_kwargs.terms.label_f1=1.0", "+reward.reward_kwargs.terms.match=0.5",
    ])  # fmt: skip
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    monkeypatch.setattr(reward_loop, "RewardLoopWorker", verl_worker.Worker)
    # a worker has no `tests`: some package on its path has that name too
    ray.cloudpickle.register_pickle_by_value(verl_worker)
    variables = {
        "PYTHONPATH": f"{ROOT}:{ROOT / 'python'}",
        "VERL_USE_EXTERNAL_MODULES": "rrgtrain.integrations.verl",
        "OMP_NUM_THREADS": "1",
        "RRGKERN_PARITY": "1",
    }
    before, handler = dict(os.environ), signal.getsignal(signal.SIGTERM)
    try:
        start(variables)
        yield reward_loop.RewardLoopManager(config)
    finally:
        ray.shutdown()
        ray.cloudpickle.unregister_pickle_by_value(verl_worker)
        signal.signal(signal.SIGTERM, handler)
        os.environ.clear()
        os.environ.update(before)


def test_two_workers_write_edit_reward_and_differentiate(job) -> None:
    workers = job.reward_loop_workers
    written = ray.get([
        worker.write.remote(reports, reference)
        for worker, reports, reference in zip(workers, REPORTS, REFERENCES, strict=True)
    ])  # fmt: skip
    assert [[o["steps"] for o in group] for group in written] == [["", "", "a"], ["", "", "ce"]]
    rows = [o for group in written for o in group]
    assert all(o["mask"] == [1] * len(o["ids"]) for o in rows)

    longest, prompt = max(len(o["ids"]) for o in rows), len(rows[0]["prompt"])
    responses = torch.zeros(6, longest, dtype=torch.int64)
    mask = torch.zeros(6, longest, dtype=torch.int64)
    for row, output in enumerate(rows):
        responses[row, : len(output["ids"])] = torch.tensor(output["ids"])
        mask[row, : len(output["ids"])] = 1
    references = [r for r in REFERENCES for _ in range(3)]
    data = DataProto.from_single_dict({
        "prompts": torch.ones(6, prompt, dtype=torch.int64), "responses": responses,
        "attention_mask": torch.cat([torch.ones(6, prompt, dtype=torch.int64), mask], 1),
        "response_mask": mask, "uid": np.array(list("aaabbb"), dtype=object),
        "reward_model": np.array([{"ground_truth": r} for r in references], dtype=object),
        "data_source": np.array(["x"] * 6, dtype=object),
    })  # fmt: skip
    rewarded = job.compute_rm_score(data)
    # of the edited report of each group, not of the one that was sampled
    edited = ["No pneumothorax. The heart is enlarged.", None]
    texts = [t for group in REPORTS for t in group]
    texts[2] = edited[0]
    scores = RewardService(RewardSettings(terms=TERMS))(texts[:5], references[:5])
    got = rewarded.batch["rm_scores"].sum(1)
    torch.testing.assert_close(got[:5].double(), torch.from_numpy(scores["total"]))
    assert got[2] == 1.5 and got[5] > 0.0
    assert rewarded.non_tensor_batch["label_f1"][:5] == pytest.approx(scores["label_f1"])
    assert ray.get([worker.batches.remote() for worker in workers]) == [1, 1], "gathered"

    advantages, _ = core.get_adv_estimator_fn("rrgkern")(
        token_level_rewards=rewarded.batch["rm_scores"], response_mask=mask,
        index=data.non_tensor_batch["uid"],
    )  # fmt: skip
    assert advantages[2].max() > 0 > advantages[1].min()
    generator = torch.Generator().manual_seed(0)
    logps, old = torch.randn(2, 6, longest, generator=generator, dtype=torch.float64)
    whole = {"log_prob": logps, "old_log_prob": old, "advantages": advantages.double(),
             "response_mask": mask.double()}  # fmt: skip
    info = {"dp_size": 2, "batch_num_tokens": int(mask.sum()), "global_batch_size": 6}
    halves = [{k: v[i : i + 3] for k, v in whole.items()} for i in (0, 3)]
    gradients = ray.get([
        worker.gradient.remote(half, info) for worker, half in zip(workers, halves, strict=True)
    ])  # fmt: skip
    alone = logps.clone().requires_grad_()
    loss, _ = core.get_policy_loss_fn("vanilla")(
        **whole | {"log_prob": alone}, config=verl_worker.actor({}), loss_agg_mode="token-mean"
    )
    (verls,) = torch.autograd.grad(loss, alone)
    # ranks average their gradients
    torch.testing.assert_close(torch.cat(gradients) / 2, verls, rtol=1e-7, atol=1e-10)
    assert verls.any()
