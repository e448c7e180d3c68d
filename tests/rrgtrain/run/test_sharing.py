"""A run decides once how it shares prompts, keeps it, and goes the same way after a resume."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rrgpolicy.model.load import load_policy
from rrgpolicy.model.policy import Policy
from rrgtrain.errors import UserError
from rrgtrain.run.session import FILE, decide_sharing
from rrgtrain.schema import PolicySettings
from tests.rrgpolicy.model.checkpoints import checkpoint
from tests.rrgpolicy.model.common import tiny_directory


def opened(name: str, **options: Any) -> Policy:
    return load_policy(checkpoint(name), **options)


def settings(name: str, **values: Any) -> PolicySettings:
    return PolicySettings(path=str(checkpoint(name)), **values)


def test_a_way_that_is_not_exact_cannot_be_forced(tmp_path: Path) -> None:
    policy = opened("qwen3_5")
    with pytest.raises(UserError, match="policy.sharing=row, which is not exact for this Qwen3_5"):
        decide_sharing(policy, settings("qwen3_5", sharing="row"), tmp_path)
    assert not (tmp_path / FILE).exists()
    decide_sharing(policy, settings("qwen3_5", sharing="none"), tmp_path)
    assert policy.way == "none" == json.loads((tmp_path / FILE).read_text())["way"]


def test_a_resume_goes_the_same_way_or_says_why_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    policy = opened("qwen3")
    decide_sharing(policy, settings("qwen3", sharing="cache"), tmp_path)
    decide_sharing(policy, settings("qwen3"), tmp_path)  # auto would begin with a row
    assert policy.way == "cache"
    assert "so far" not in capsys.readouterr().err
    kept = json.loads((tmp_path / FILE).read_text())
    (tmp_path / FILE).write_text(json.dumps({**kept, "way": "row"}))
    other = opened("qwen3_5")
    decide_sharing(other, settings("qwen3_5"), tmp_path)
    told = capsys.readouterr().err
    assert other.way == "cache"
    assert "not as before the resume: policy.sharing=row, which is not exact" in told
    assert "the run shared prompts by a packed row so far (what is installed has changed)" in told
    (tmp_path / FILE).write_text("{}")
    with pytest.raises(UserError, match=r"sharing.json is not what a run has written; delete it"):
        decide_sharing(other, settings("qwen3_5"), tmp_path)


def test_weights_that_are_unread_are_stood_in_for(tmp_path: Path) -> None:
    tiny = load_policy(tiny_directory(), masters=True, unread=True)  # its tower packs windows
    decide_sharing(tiny, PolicySettings(path=str(tiny_directory())), tmp_path)
    assert tiny.is_packed
    policy = opened("qwen3_vl", masters=True, unread=True, gradient_checkpointing=True)
    assert all(p.is_meta for p in policy.model.parameters())
    decide_sharing(policy, settings("qwen3_vl"), tmp_path)
    assert policy.way == "row"
    assert all(p.is_meta for p in policy.model.parameters())
    decide_sharing(policy, settings("qwen3_vl", sharing="cache"), tmp_path)
    assert policy.way == "cache"  # on any number of ranks
