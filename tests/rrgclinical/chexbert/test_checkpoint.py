"""Test what a weight file must hold, and the line on each thing that it lacks."""

from __future__ import annotations

import pytest
import torch

from rrgclinical import build_labeller, hub
from rrgclinical.chexbert.checkpoint import load_network
from rrgtrain.errors import UserError
from tests.rrgclinical.chexbert import tiny

POOLER = "module.bert.pooler.dense.bias"
HEAD = "module.linear_heads.13.weight"
FIRST = "module.bert.embeddings.word_embeddings.weight"


def test_every_weight_arrives(folder):
    network, official = load_network(folder / "weights.pth", tiny.CONFIG), tiny.official_network()
    theirs = official.state_dict()
    for key, value in network.bert.state_dict().items():
        assert torch.equal(value, theirs[f"bert.{key}"]), key
    rows = network.heads.weight.split([4] * 13 + [2])
    for column, (row, head) in enumerate(zip(rows, official.linear_heads, strict=True)):
        assert torch.equal(row, head.weight), column
    assert not network.training
    assert not any(p.requires_grad for p in network.parameters())


def test_loading_leaves_the_generator_alone(folder):
    before = torch.get_rng_state()
    load_network(folder / "weights.pth", tiny.CONFIG)
    assert torch.equal(torch.get_rng_state(), before)


def test_the_format_before_torch_1_6_loads(tmp_path):
    tiny.write_folder(tmp_path, _use_new_zipfile_serialization=False)
    load_network(tmp_path / "weights.pth", tiny.CONFIG)


def add_position_ids(state):
    state["module.bert.embeddings.position_ids"] = torch.arange(512)[None]


def test_position_ids_are_ignored(tmp_path):
    load_network(tiny.write_folder(tmp_path, add_position_ids) / "weights.pth", tiny.CONFIG)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda s: s.pop(HEAD), r"lacks linear_heads\.13\.weight; wanted chexbert\.pth"),
        (lambda s: s.pop(POOLER), r"lacks bert\.pooler\.dense\.bias"),
        (lambda s: s.update(other=torch.ones(1)), "holds other besides"),
        (
            lambda s: s.update({HEAD: s[HEAD][:1]}),
            r"has linear_heads\.13\.weight \[1, 16\] where \[2, 16\] is wanted",
        ),
        (
            lambda s: s.update({FIRST: s[FIRST][1:]}),
            r"has bert\.embeddings\.word_embeddings\.weight \[\d+, 16\] where",
        ),
        (lambda s: s.clear(), r"lacks bert\.embeddings.* and \d+ more"),
        (
            lambda s: (s.pop(HEAD), s.update(other=torch.ones(1))),
            r"lacks linear_heads\.13\.weight; holds other besides",
        ),
        (lambda s: s.update({HEAD: "text"}), "no `model_state_dict` of tensors"),
    ],
)
def test_another_state_is_named(tmp_path, change, text):
    tiny.write_folder(tmp_path, change)
    with pytest.raises(UserError, match=text) as caught:
        load_network(tmp_path / "weights.pth", tiny.CONFIG)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", [{"state_dict": {}}, [1], {1: torch.ones(2)}])
def test_another_object_is_named(tmp_path, content):
    torch.save(content, tmp_path / "w.pth")
    with pytest.raises(UserError, match="no `model_state_dict` of tensors; wanted chexbert.pth"):
        load_network(tmp_path / "w.pth", tiny.CONFIG)


@pytest.mark.parametrize(
    "content", [b"", b"<html>", b"\x80\x02}q.", b"PK\x03\x04 cut", b"\x00" * 9]
)
def test_a_file_that_is_no_checkpoint_is_told(tmp_path, content):
    (tmp_path / "w.pth").write_bytes(content)
    with pytest.raises(UserError, match="wanted chexbert.pth") as caught:
        load_network(tmp_path / "w.pth", tiny.CONFIG)
    assert "\n" not in str(caught.value)


class Payload:
    """A pickle that would create a file; module level, so that it can be pickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (self.path, "w")


def test_code_in_a_file_is_not_run(tmp_path):
    torch.save({"model_state_dict": Payload(str(tmp_path / "ran"))}, tmp_path / "w.pth")
    with pytest.raises(UserError, match=r"no checkpoint of tensors \(the file holds code \("):
        load_network(tmp_path / "w.pth", tiny.CONFIG)
    assert not (tmp_path / "ran").exists()


def test_no_weights_says_which_and_where():
    with pytest.raises(
        UserError,
        match="set reward.options.chexbert.weights=PATH .*StanfordAIMI/RRG_scorers.*labeller=rules",
    ):
        build_labeller("chexbert")
    with pytest.raises(UserError, match="no file .*absent.pth; wanted chexbert.pth.*`rules`"):
        build_labeller("chexbert", weights="absent.pth")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"dtype": "fp16"}, "dtype 'fp16'; choose fp32 or bf16"),
        ({"token_budget": 0}, "token_budget is 0"),
        ({"device": "gpu"}, "device 'gpu' is not there"),
    ],
)
def test_options_that_cannot_be(folder, options, text):
    with pytest.raises(UserError, match=text):
        tiny.labeller(folder, **options)


def test_the_hub_is_asked_only_when_told(folder, monkeypatch):
    asked = []

    def fetch(repository, file):
        asked.append((repository, file))
        return str(folder / "weights.pth")

    monkeypatch.setattr(hub, "hf_hub_download", fetch)
    load_network("hub", tiny.CONFIG)
    assert asked == [("StanfordAIMI/RRG_scorers", "chexbert.pth")]
    load_network(folder / "weights.pth", tiny.CONFIG)
    assert len(asked) == 1

    def fail(repository, file):
        raise OSError("no route\nto host")

    monkeypatch.setattr(hub, "hf_hub_download", fail)
    with pytest.raises(UserError, match=r"cannot download chexbert.pth of .*\(no route\)") as told:
        load_network("hub", tiny.CONFIG)
    assert "`rules` needs no file" in str(told.value)


def test_a_changed_copy_leaves_the_network_of_the_tests_alone(tmp_path):
    before = {k: v.clone() for k, v in tiny.official_network().state_dict().items()}
    tiny.write_folder(tmp_path, lambda s: [value.zero_() for value in s.values()])
    for key, value in tiny.official_network().state_dict().items():
        assert torch.equal(value, before[key]), key
