"""Test the taught text: the report alone, or in a template with the study's findings."""

from __future__ import annotations

import sys
from dataclasses import replace
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

import pytest
import torch

from rrgclinical import build_labeller
from rrgpolicy.model.policy import Policy
from rrgpolicy.ranks.sharding import load_optimizer, load_weights
from rrgtrain.errors import UserError
from rrgtrain.rewards.batch import parse_blocks
from rrgtrain.state.store import load_checkpoint, write_checkpoint
from rrgtrain.train.loader import PromptLoader
from rrgtrain.train.optim import optimizer_of
from rrgtrain.train.sft import sft_loss
from rrgtrain.train.target_text import check_template, target_text, with_findings
from tests.rrgpolicy.model.common import tiny_policy
from tests.rrgtrain.common import recipe, studies

THINK = "<think>{findings}</think><report>{report}</report>"


def test_a_template_holds_the_report_and_its_findings() -> None:
    first, second = studies(2)
    assert target_text(first) == first.report
    text = target_text(first, THINK)
    blocks = parse_blocks(text)
    assert blocks.report == first.report and blocks.format == 1.0
    assert blocks.think == "Cardiomegaly, Pleural Effusion"
    assert parse_blocks(target_text(second, THINK)).think == "No Finding"


def test_the_loss_is_of_the_template() -> None:
    policy = tiny_policy()
    given = studies(2)
    prompts = PromptLoader(policy, "short").batch(given)
    plain, tokens = sft_loss(policy, prompts, given)
    framed, more = sft_loss(policy, prompts, given, THINK)
    assert more == sum(len(policy.codec.encode(target_text(s, THINK))) for s in given) > tokens
    assert not torch.isclose(plain, framed)


@pytest.mark.parametrize(
    "template", ["{findings}", "", "{report} {labels}", "{report", "{}", "plain words"]
)
def test_a_template_that_cannot_be_taught(template: str) -> None:
    with pytest.raises(UserError, match="sft.template=") as caught:
        check_template(template)
    assert "\n" not in str(caught.value)
    check_template(THINK)


def test_findings_of_a_study_without_labels() -> None:
    bare = replace(studies(1)[0], labels=None)
    with pytest.raises(UserError, match="asks for findings, but study train-0 has no labels"):
        target_text(bare, THINK)
    assert target_text(bare, "Report: {report}") == f"Report: {bare.report}"


def test_the_optimiser_is_the_recipes() -> None:
    model = tiny_policy().model
    rl = recipe("rl.lr=0.5", "rl.weight_decay=0.1", "rl.beta2=0.99").rl
    optimizer = optimizer_of(model, rl)
    assert isinstance(optimizer, torch.optim.AdamW)
    assert [g["weight_decay"] for g in optimizer.param_groups] == [0.1, 0.0]
    assert all(g["betas"] == (0.9, 0.99) and g["lr"] == 0.5 for g in optimizer.param_groups)


def test_eight_bits_without_their_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UserError, match="rl.optimizer=adamw_8bit needs the package bitsandbytes"):
        optimizer_of(tiny_policy().model, recipe("rl.optimizer=adamw_8bit").rl)


def test_eight_bits_train_the_same_parameters() -> None:
    pytest.importorskip("bitsandbytes")
    policy = tiny_policy()
    before = {n: p.detach().clone() for n, p in policy.model.named_parameters()}
    settings = recipe("rl.optimizer=adamw_8bit", "rl.lr=0.01", "rl.weight_decay=0.5").rl
    optimizer = optimizer_of(policy.model, settings)
    assert [g["weight_decay"] for g in optimizer.param_groups] == [0.5, 0.0], "matrices alone"
    loss, _ = sft_loss(policy, PromptLoader(policy, "short").batch(studies(2)), studies(2))
    loss.backward()
    optimizer.step()
    changed = [n for n, p in policy.model.named_parameters() if not torch.equal(p, before[n])]
    assert any(n.endswith("mlp.up_proj.weight") for n in changed)


def test_findings_that_nobody_gave_are_read_in_the_report() -> None:
    labeller = build_labeller("rules")
    given = studies(3)
    bare = [replace(given[0], labels=None), given[1], replace(given[2], labels=None, report=None)]
    assert with_findings(bare, "{report}", labeller) == bare
    found = with_findings(bare, THINK, labeller)
    assert found == [given[0], given[1], bare[2]], "the rules read what the rules had labelled"
    own = replace(given[1], labels=(1,) * 14)
    assert with_findings([own], THINK, labeller) == [own], "a study keeps its own"


def test_eight_bits_go_on_from_a_checkpoint(tmp_path: Path) -> None:
    pytest.importorskip("bitsandbytes")
    rl = recipe("rl.optimizer=adamw_8bit", "rl.lr=0.01").rl

    def stepped(optimizer: torch.optim.Optimizer, policy: Policy) -> None:
        loss, _ = sft_loss(policy, PromptLoader(policy, "short").batch(studies(2)), studies(2))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    policy = tiny_policy()
    optimizer = optimizer_of(policy.model, rl)
    stepped(optimizer, policy)
    weights = {n: p.detach().clone() for n, p in policy.model.named_parameters()}
    write_checkpoint(tmp_path / "kept", {"optimizer": optimizer.state_dict(), "weights": weights})
    stepped(optimizer, policy)

    again = tiny_policy()
    saved = load_checkpoint(tmp_path / "kept").state
    load_weights(again, saved["weights"])
    second = optimizer_of(again.model, rl)
    load_optimizer(second, saved["optimizer"])
    stepped(second, again)
    for (name, one), two in zip(
        policy.model.named_parameters(), again.model.parameters(), strict=True
    ):
        assert torch.equal(one, two), name


def test_eight_bits_where_bitsandbytes_cannot_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise NotImplementedError("no kernel for cpu\nand a second line")

    fake = ModuleType("bitsandbytes")
    fake.__spec__ = ModuleSpec("bitsandbytes", None)
    fake.__version__ = "0.1"  # type: ignore[attr-defined]
    fake.optim = ModuleType("bitsandbytes.optim")  # type: ignore[attr-defined]
    fake.optim.AdamW8bit = refuse  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "bitsandbytes", fake)
    monkeypatch.setitem(sys.modules, "bitsandbytes.optim", fake.optim)  # type: ignore[attr-defined]
    with pytest.raises(UserError, match=r"bitsandbytes 0.1 cannot run on cpu \(no kernel") as told:
        optimizer_of(tiny_policy().model, recipe("rl.optimizer=adamw_8bit").rl)
    assert "\n" not in str(told.value)
