"""The plug-in for verl: what it registers, its losses beside verl's own, its advantages."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rrgtrain.errors import UserError
from tests.parity.padded import Padded, padded, peer

core = peer("verl.trainer.ppo.core_algos")
plugin = peer("rrgtrain.integrations.verl")
verl_loss = peer("rrgtrain.integrations.verl_loss")
actor = peer("tests.parity.verl_worker").actor
DataProto = peer("verl").DataProto
trainer = peer("verl.trainer.ppo.ray_trainer")

ROOT = Path(__file__).parents[2]
# verl divides by a count + 1e-8 in one of its modes.
TOLERANCE = {"rtol": 1e-6, "atol": 1e-8}
MODES = ("token-mean", "token-sum", "seq-mean-token-mean", "seq-mean-token-sum",
         "seq-mean-token-sum-norm")  # fmt: skip
STEP = {"dp_size": 2, "batch_num_tokens": 97, "global_batch_size": 11, "loss_scale_factor": 40}


def result(name: str, data: Padded, mode: str, info: dict, weights) -> tuple:
    logps = data.logps.clone().requires_grad_()
    loss, metrics = core.get_policy_loss_fn(name)(
        old_log_prob=data.old, log_prob=logps,
        advantages=data.advantages[:, None] * torch.linspace(0.5, 2, logps.shape[1]).double(),
        response_mask=data.mask.to(logps.dtype), loss_agg_mode=mode, config=actor(info),
        rollout_is_weights=weights,
    )  # fmt: skip
    return loss.detach(), torch.autograd.grad(loss, logps)[0], metrics


def test_each_loss_is_verls_own_in_every_aggregation_and_step() -> None:
    wrong = []
    for seed, ours in enumerate(verl_loss.LOSSES):
        theirs = ours.removeprefix("rrgkern_") if "_" in ours else "vanilla"
        for mode in MODES:
            for info in ({}, STEP):
                data = padded(seed)
                weights = (data.old - data.logps).exp().clamp(0.5, 2).nan_to_num(1.0)
                for sampler in (None, weights):
                    mine = result(ours, data, mode, info, sampler)
                    verls = result(theirs, data, mode, info, sampler)
                    try:
                        torch.testing.assert_close(mine[:2], verls[:2], **TOLERANCE)
                        assert verls[1].any()
                        key = "actor/ppo_kl"
                        if key in verls[2]:
                            assert mine[2][key] == pytest.approx(verls[2][key], rel=1e-5)
                    except AssertionError as error:
                        wrong.append(
                            (ours, mode, bool(info), sampler is not None, str(error)[:200])
                        )
    assert not wrong, wrong


def test_padding_changes_nothing_and_what_verl_refuses_is_refused() -> None:
    data = padded(3)
    clean = result("rrgkern", data, "token-mean", {}, None)
    poisoned = result("rrgkern", data.masked_fill(torch.nan), "token-mean", {}, None)
    assert torch.equal(clean[0], poisoned[0]) and torch.equal(clean[1], poisoned[1])
    with pytest.raises(ValueError, match="seq-mean-token-sum on 2 ranks: wanted the counts"):
        result("rrgkern", data, "seq-mean-token-sum", {"dp_size": 2}, None)
    with pytest.raises(ValueError, match="loss_agg_mode is 'mean'"):
        result("rrgkern", data, "mean", {}, None)


def groups(seed: int = 0) -> Any:
    """Three interleaved groups of 4, 3 and 5 rows."""
    generator = torch.Generator().manual_seed(seed)
    uid = np.array(list("abcabcabcacc"), dtype=object)
    lengths = torch.randint(2, 7, (12,), generator=generator)
    mask = (torch.arange(7) < lengths[:, None]).long()
    rewards = torch.zeros(12, 7)
    rewards[torch.arange(12), lengths - 1] = torch.rand(12, generator=generator)
    return DataProto.from_single_dict(
        {
            "token_level_rewards": rewards,
            "response_mask": mask,
            "responses": torch.randint(0, 9, (12, 7), generator=generator) * mask,
            "uid": uid,
        }
    )


def test_advantages_are_those_of_verls_grpo() -> None:
    for by_std in (False, True):
        data = groups()
        config = {"norm_adv_by_std_in_grpo": by_std}
        named = dict(token_level_rewards=data.batch["token_level_rewards"],
                     response_mask=data.batch["response_mask"],
                     index=data.non_tensor_batch["uid"])  # fmt: skip
        mine, returns = core.get_adv_estimator_fn("rrgkern")(**named, config=config)
        theirs, _ = core.compute_grpo_outcome_advantage(**named, norm_adv_by_std_in_grpo=by_std)
        torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-6)
        assert torch.equal(mine, returns) and mine.any()


def test_token_weights_come_with_the_ids_and_not_without() -> None:
    data = groups(1)
    config = {"norm_adv_by_std_in_grpo": False, "rrgkern_alpha": 2.0}
    out = verl_loss.compute_advantage(data, adv_estimator="rrgkern_ditpo", config=config)
    plain, _ = verl_loss.verl_advantages(
        data.batch["token_level_rewards"], data.batch["response_mask"],
        data.non_tensor_batch["uid"], config,
    )  # fmt: skip
    # by hand: w = 1 + alpha tf idf in the group of the row
    mask, ids, uid = (data.batch["response_mask"].bool(), data.batch["responses"],
                      data.non_tensor_batch["uid"])  # fmt: skip
    for row in range(len(uid)):
        report = ids[row][mask[row]].tolist()
        group = [ids[r][mask[r]].tolist() for r in range(len(uid)) if uid[r] == uid[row]]
        for t, token in enumerate(report):
            holding = sum(token in other for other in group)
            weight = 1 + 2.0 * report.count(token) / len(report) * np.log(len(group) / holding)
            expected = float(plain[row, t]) * weight
            assert float(out.batch["advantages"][row, t]) == pytest.approx(expected, rel=1e-4)
    with pytest.raises(ValueError, match="wants token ids, and verl hands an estimator none"):
        trainer.compute_advantage(groups(1), adv_estimator="rrgkern_ditpo")
    # another estimator goes the old way
    same = verl_loss.compute_advantage(groups(1), adv_estimator="rrgkern", config=config)
    assert torch.equal(same.batch["advantages"], plain)


def test_the_entry_point_registers_and_says_why_where_it_does_not(monkeypatch) -> None:
    entries = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
    ((name, value),) = entries["verl.plugins"].items()
    assert EntryPoint(name, value, "verl.plugins").load() is plugin
    lines = plugin.registered()
    assert {line.split("=")[0] for line in lines} == {
        "loss_mode", "adv_estimator", "reward_manager", "agent_loop",
    }  # fmt: skip
    monkeypatch.setitem(core.POLICY_LOSS_REGISTRY, "rrgkern_gspo", lambda: None)
    monkeypatch.delitem(core.ADV_ESTIMATOR_REGISTRY, "rrgkern")
    with pytest.raises(UserError, match="lack loss_mode=rrgkern_gspo, adv_estimator=rrgkern:"):
        plugin.registered()


def test_a_load_that_verl_swallows_is_seen(tmp_path) -> None:
    """verl logs an error of a plug-in for nobody: the plug-in prints it."""
    script = (
        "import verl.trainer.ppo.core_algos as core\n"
        "core.register_adv_est('rrgkern')(print)\n"
        "try:\n    import rrgtrain.integrations.verl\n"
        "except Exception as error:\n    print('swallowed')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=ROOT,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": f"{ROOT}:{ROOT / 'python'}",
             "HOME": str(tmp_path), "VERL_USE_EXTERNAL_PLUGINS": "none"},
    )  # fmt: skip
    assert "swallowed" in done.stdout
    assert "rrgkern's plug-in for verl did not load: Adv estimator rrgkern has" in done.stderr
