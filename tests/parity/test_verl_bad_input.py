"""Mistakes in verl's configuration and batches are one line, and never another number."""

from __future__ import annotations

import asyncio
import math
import re
import uuid
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from rrgtrain.errors import UserError
from tests.parity.padded import padded, peer

verl_loss = peer("rrgtrain.integrations.verl_loss")
verl_rewards = peer("rrgtrain.integrations.verl_rewards")
verl_edits = peer("rrgtrain.integrations.verl_edits")
actor = peer("tests.parity.verl_worker").actor
DataProto = peer("verl").DataProto
OmegaConf = peer("omegaconf").OmegaConf
BATCH = padded(0)


def loss(*, settings: dict | None = None, info: dict | None = None, **changes: Any) -> torch.Tensor:
    config = actor(info or {})
    for name, value in (settings or {}).items():
        object.__setattr__(config, name, value)
    arguments = {
        "old_log_prob": BATCH.old,
        "log_prob": BATCH.logps,
        "advantages": BATCH.advantages[:, None].expand_as(BATCH.logps),
        "response_mask": BATCH.mask.double(),
        "config": config,
    }
    return verl_loss.verl_loss(**{"name": "rrgkern", **arguments, **changes})[0]


NAN = torch.full_like(BATCH.logps, math.nan)


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"name": "rrgker"}, "the loss is 'rrgker'; wanted one of rrgkern, "),
        ({"config": None}, "config is NoneType; wanted verl's ActorConfig"),
        ({"settings": {"clip_ratio_low": math.nan}}, "actor.clip_ratio_low is nan; it must be"),
        ({"loss_agg_mode": "mean"}, "loss_agg_mode is 'mean', which verl 0.9 does not have"),
        *(
            ({"info": {"batch_num_tokens": value}}, "global_batch_info has batch_num_tokens=")
            for value in (math.nan, -1, "97")
        ),
        ({"info": {"dp_size": 1.5}}, "global_batch_info has dp_size=1.5; wanted a count above 0"),
        (
            {"info": {"loss_scale_factor": 0}, "loss_agg_mode": "seq-mean-token-sum-norm"},
            "global_batch_info has loss_scale_factor=0; wanted a count above 0",
        ),
        ({"response_mask": BATCH.mask[:, :-1]}, "response_mask has shape (6, 8) and log_prob"),
        ({"response_mask": NAN}, "response_mask holds nan; wanted 1 on scored tokens"),
        ({"advantages": BATCH.advantages}, "advantages has shape (6,) and log_prob (6, 9); wanted"),
        ({"rollout_is_weights": -BATCH.mask.double()}, "rollout_is_weights of a scored token is b"),
    ],
)
def test_a_loss_is_computed_of_what_fits(changes, line) -> None:
    with pytest.raises((TypeError, ValueError), match="^" + re.escape(line)):
        loss(**changes)


def test_a_loss_of_no_rows_is_zero() -> None:
    for shape in ((0, 5), (3, 0)):
        none = torch.zeros(shape, dtype=torch.float64)
        names = ("old_log_prob", "log_prob", "advantages", "response_mask")
        assert loss(**dict.fromkeys(names, none)) == 0.0


@pytest.mark.parametrize("mode", verl_loss.MODES)
def test_a_mini_batch_whose_rows_are_all_rejected_trains_on_nothing(mode: str) -> None:
    logps = BATCH.logps.clone().requires_grad_()
    info = {"dp_size": 2, "batch_num_tokens": 0, "global_batch_size": 8}
    none = torch.zeros_like(BATCH.mask)
    value = loss(info=info, log_prob=logps, response_mask=none, loss_agg_mode=mode)
    value.backward()
    assert value == 0.0 and not logps.grad.any()


@pytest.mark.parametrize("name", ["log_prob", "old_log_prob", "advantages"])
def test_a_number_that_is_none_is_left_to_verl_which_leaves_the_step_out(name: str) -> None:
    assert loss(**{name: NAN}).isnan()


def advantages(function: Any = None, **changes: Any) -> torch.Tensor:
    mask = torch.tensor([[1, 1, 0]] * 4)
    arguments = {
        "token_level_rewards": torch.tensor([[1.0, 0, 0], [0, 0, 0], [0, 2, 0], [0, 5, 0]]),
        "response_mask": mask,
        "index": np.array(list("aabb"), dtype=object),
        "config": {"norm_adv_by_std_in_grpo": False},
    }
    return (function or verl_loss.verl_advantages)(**{**arguments, **changes})[0]


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        *(
            ({"config": {"norm_adv_by_std_in_grpo": value}}, "algorithm.norm_adv_by_std_in_grpo is")
            for value in ("false", None, 0, math.nan)
        ),
        ({"index": [None] * 4}, "index[0] is None; wanted the name of a group"),
        ({"index": np.full(4, math.nan)}, "index[0] is nan; wanted the name of a group"),
        ({"response_mask": torch.ones(4)}, "response_mask has shape (4,) and token_level_rewards"),
        ({"token_level_rewards": torch.ones(4)}, "token_level_rewards has shape (4,); wanted"),
        ({"token_weight": torch.ones(4, 1)}, "token_weight has shape (4, 1) and token_level_rew"),
    ],
)
def test_an_advantage_is_computed_of_what_fits(changes, line) -> None:
    with pytest.raises((TypeError, ValueError), match="^" + re.escape(line)):
        advantages(**changes)


def test_groups_are_those_of_equal_names() -> None:
    halves = [0.5, -0.5, -1.5, 1.5]
    one, two = uuid.uuid4(), uuid.uuid4()
    seven = [np.int64(7), np.int64(7), torch.tensor(3), 3]
    for index in (
        *(list("aabb"), torch.tensor([7, 7, 3, 3]), np.array([7, 7, 3, 3]), seven),
        *(np.array([7, np.int64(7), 3, 3], dtype=object), [one, one, two, two]),
        [b"a", b"a", b"b", b"b"],
    ):
        assert advantages(index=index)[:, 0].tolist() == halves
    for index in ([1, "1", 2, "2"], ["a", "a\0", "b", "b\0"], list("abcd")):
        apart = advantages(index=np.array(index, dtype=object))
        assert not apart.any(), "each is alone in its group"
    assert advantages(
        token_level_rewards=torch.zeros(0, 3), response_mask=torch.zeros(0, 3), index=[]
    ).shape == (0, 3)


def test_weights_want_their_ids_and_a_number() -> None:
    ids = torch.ones(4, 3, dtype=torch.int64)
    for changes, line in (
        ({"responses": ids[:, :2]}, "response_mask has shape (4, 3) and responses (4, 2)"),
        *(
            ({"responses": ids, "config": {"rrgkern_alpha": a}}, f"algorithm.rrgkern_alpha is {a}")
            for a in (True, -1.0, math.inf)
        ),
    ):
        with pytest.raises((TypeError, ValueError), match="^" + re.escape(line)):
            advantages(verl_loss.weighted_advantages, **changes)
    rest = {"token_level_rewards": torch.ones(4, 3), "response_mask": ids, "responses": ids}
    with pytest.raises(ValueError, match="^the batch has no 'uid', it has response_mask, resp"):
        verl_loss.compute_advantage(DataProto.from_single_dict(rest), "rrgkern_ditpo")
    with pytest.raises(TypeError, match="^data is dict; wanted verl's DataProto"):
        verl_loss.compute_advantage(rest, "rrgkern_ditpo")


class Words:
    def decode(self, ids: torch.Tensor, skip_special_tokens: bool) -> str:
        return " ".join({2: "Edema.", 3: "No"}[int(i)] for i in ids)


def scored(manager: Any, **changes: Any) -> dict:
    fields = {
        "prompts": torch.ones(1, 2, dtype=torch.int64),
        "responses": torch.tensor([[2, 3, 0]]),
        "attention_mask": torch.tensor([[1, 1, 1, 0, 0]]),
        "reward_model": np.array([{"ground_truth": "Edema."}], dtype=object),
    }
    fields = {k: v for k, v in {**fields, **changes}.items() if v is not None}
    data = DataProto.from_single_dict(fields)
    return asyncio.new_event_loop().run_until_complete(manager.run_single(data))


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"attention_mask": torch.ones(1, 2)}, "responses are torch.int64 (3,) and attention_mask"),
        ({"attention_mask": torch.tensor([[1, 1, 1, 0, 1]])}, "attention_mask of a response is"),
        ({"attention_mask": None}, "a sample has no attention_mask, it has prompts, responses"),
        ({"reward_model": None}, "a sample has fields: none; wanted reward_model.ground_truth"),
    ],
)
def test_a_sample_that_cannot_be_read_has_no_score(changes, line) -> None:
    config = OmegaConf.create({"reward": {"reward_kwargs": {"terms": {"label_f1": 1.0}}}})
    manager = verl_rewards.ReportRewardManager(config, Words(), None)
    assert scored(manager)["reward_score"] == 1.0
    with pytest.raises(UserError, match="^" + re.escape(line)):
        scored(manager, **changes)


def test_settings_of_the_reward_are_read_or_refused() -> None:
    for config in ({}, {"reward": None}, None):
        with pytest.raises(UserError, match="^verl's configuration has reward=None; wanted its se"):
            verl_rewards.reward_settings(config)
    with pytest.raises(UserError, match="^reward.reward_kwargs: unknown key 'term'; did you mean"):
        verl_rewards.reward_settings(OmegaConf.create({"reward": {"reward_kwargs": {"term": 1}}}))


@pytest.fixture
def bare(monkeypatch):
    """Build the agent loop on three members, without verl's engine and tokenizer."""

    def begin(self: Any, **_: Any) -> None:
        values = SimpleNamespace(n=1)
        self.rollout_config = SimpleNamespace(n=3, val_kwargs=values, calculate_log_probs=False)

    monkeypatch.setattr(verl_edits.SingleTurnAgentLoop, "__init__", begin)
    return verl_edits.EditAgentLoop


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"edited": True}, "rrgkern_edits: edited is True; wanted a whole number"),
        ({"edited": 3}, "rrgkern_edits: edited=3 of rollout.n=3; leave one as it is"),
        ({"edites": 2}, "rrgkern_edits: unknown option 'edites'; did you mean edited? it takes"),
        ({"edit": {"taus": 0.5}}, "rrgkern_edits: edit: unknown key 'taus'; did you mean tau?"),
        ({"edit": {"tau": 2}}, "rrgkern_edits: edit: tau is 2; wanted a value >= -1.0"),
    ],
)
def test_settings_of_the_agent_loop_are_read_or_refused(bare, options, line) -> None:
    assert bare(name="rrgkern_edits", tools=None, hf_model_type=None).first_edited == 2
    with pytest.raises(UserError, match="^" + re.escape(line)):
        bare(**options)


@pytest.mark.parametrize("member", ["2", 1.9, None, True, -1, 3], ids=repr)
def test_a_member_has_a_number_of_its_group(bare, member) -> None:
    with pytest.raises(UserError, match="^rrgkern_edits: session_id"):
        asyncio.new_event_loop().run_until_complete(bare().run({}, session_id=member))
