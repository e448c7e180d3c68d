"""Saliency against finite differences in fp64, batch against single, and its way to tokens."""

from __future__ import annotations

import re
from unittest.mock import Mock

import numpy as np
import pytest
import torch

from rrgclinical import NO_FINDING, OBSERVATIONS, build_labeller, hub
from rrgclinical.chexbert import piece_saliency, token_saliency_weights
from rrgclinical.chexbert.checkpoint import load_network
from rrgtrain.errors import UserError
from tests.pickled import RAN, Code
from tests.rrgclinical.chexbert import tiny

BLANK = np.zeros((1, 14), dtype=np.int8)
REPORT = "mild edema,\nno\x0bcardiomegaly"


def reference(**states: int) -> np.ndarray:
    """[1, 14] class ids: Edema=1 and so on, the rest blank."""
    row = BLANK.copy()
    for name, state in states.items():
        row[0, OBSERVATIONS.index(name.replace("_", " "))] = state
    return row


TARGETS = reference(Edema=1, Pneumonia=3, Fracture=2, No_Finding=1)


def words(report: str) -> torch.Tensor:
    """Spans of the words of `report` with the space before each, as a policy's tokens have."""
    return torch.tensor([m.span() for m in re.finditer(r"\s*\S+", report)], dtype=torch.int32)


def weigh(labeller, report: str, labels=TARGETS, spans: torch.Tensor | None = None, **more):
    """Weights of one report's tokens, by default of its words."""
    spans = words(report) if spans is None else spans
    ends = torch.tensor([0, len(spans)])
    return token_saliency_weights(labeller, [report], labels, spans, ends, **more)


@pytest.fixture(scope="module")
def double(folder):
    labeller = tiny.labeller(folder)
    labeller.network.double()
    return labeller


def target_sum(labeller, report: str, classes: list[int]) -> float:
    """S by hand through the labelling path: Edema and Pneumonia, nothing else."""
    logits = labeller.class_logits([report])[0]
    columns = [OBSERVATIONS.index("Edema"), OBSERVATIONS.index("Pneumonia")]
    return float(logits[columns][:, classes].sum())


@pytest.mark.parametrize(("uncertain", "classes"), [(True, [1, 3]), (False, [1])])
def test_saliency_is_the_norm_of_finite_differences(double, uncertain, classes):
    found = piece_saliency(double, [REPORT], TARGETS, uncertain=uncertain)
    assert found.saliency.dtype == torch.float64
    delta = torch.zeros(0)

    def nudge(module, inputs, output):
        return output + delta

    handle = double.network.word_embeddings.register_forward_hook(nudge)
    step = 1e-6
    norms = []
    try:
        for piece in range(len(found.spans)):
            slopes = []
            for axis in range(tiny.CONFIG.hidden_size):
                ends = []
                for sign in (1, -1):
                    delta = torch.zeros(1, len(found.spans) + 2, tiny.CONFIG.hidden_size).double()
                    delta[0, piece + 1, axis] = sign * step
                    ends.append(target_sum(double, REPORT, classes))
                slopes.append((ends[0] - ends[1]) / (2 * step))
            norms.append(float(np.linalg.norm(slopes)))
    finally:
        handle.remove()
    assert min(norms) > 1e-3
    np.testing.assert_allclose(found.saliency.numpy(), norms, rtol=1e-6)


def test_batch_equals_single(folder):
    """Of the pieces, and of the tokens that they are gathered in."""
    reports = [*tiny.reports(40, seed=3), tiny.LONG, "", REPORT]
    labels = np.random.default_rng(1).integers(0, 4, (len(reports), 14)).astype(np.int8)
    labels[:, NO_FINDING] %= 2
    labels[5] = 0
    labeller = tiny.labeller(folder, token_budget=1500)
    together = piece_saliency(labeller, reports, labels)
    spans = [words(r).reshape(-1, 2) for r in reports]
    offsets = torch.tensor([0, *np.cumsum([len(s) for s in spans])])
    tokens = token_saliency_weights(labeller, reports, labels, torch.cat(spans), offsets)
    for i, report in enumerate(reports):
        alone = piece_saliency(labeller, [report], labels[i : i + 1])
        mine = slice(int(together.offsets[i]), int(together.offsets[i + 1]))
        torch.testing.assert_close(together.saliency[mine], alone.saliency, rtol=1e-3, atol=1e-5)
        assert torch.equal(together.spans[mine], alone.spans)
        own = weigh(labeller, report, labels[i : i + 1], spans[i])
        mine = slice(int(offsets[i]), int(offsets[i + 1]))
        torch.testing.assert_close(tokens.weights[mine], own.weights, rtol=1e-4, atol=1e-5)
        assert torch.equal(tokens.past_limit[mine], own.past_limit)
    assert together.truncated.tolist() == [False] * 40 + [True, False, False]


@pytest.mark.parametrize("guard", [torch.no_grad, torch.inference_mode])
def test_a_gradient_under_the_sampler_guards(labeller, guard):
    expected = piece_saliency(labeller, [REPORT], TARGETS).saliency
    with guard():
        found = piece_saliency(labeller, [REPORT], TARGETS).saliency
    assert torch.equal(found, expected)
    assert not found.requires_grad


@pytest.mark.parametrize("labels", [BLANK, reference(No_Finding=1), reference(Edema=2)])
def test_no_target_weighs_one_without_a_forward(labeller, labels, monkeypatch):
    monkeypatch.setattr(labeller.network, "forward", None)
    found = weigh(labeller, REPORT, labels)
    assert found.weights.tolist() == [1.0] * len(words(REPORT))
    assert not found.past_limit.any()


@pytest.mark.parametrize("beta", [1.0, 0.25, 0.0])
def test_a_token_takes_the_largest_of_its_pieces(labeller, beta):
    pieces = piece_saliency(labeller, [REPORT], TARGETS)
    found = weigh(labeller, REPORT, beta=beta)
    # mild | edema , | no | cardio ##megaly
    assert [REPORT[a:b] for a, b in pieces.spans.tolist()] == [
        "mild", "edema", ",", "no", "cardio", "megaly",
    ]  # fmt: skip
    s = pieces.saliency.tolist()
    expected = [s[0], max(s[1], s[2]), s[3], max(s[4], s[5])]
    np.testing.assert_allclose(found.weights.numpy(), [1 + beta * e for e in expected], rtol=1e-6)
    assert found.weights.dtype == torch.float32


def test_tokens_behind_the_limit_weigh_one_and_are_flagged(labeller):
    report = "the " * 512 + "edema"
    spans = torch.cat([words(report), torch.tensor([[len(report)] * 2], dtype=torch.int32)])
    found = weigh(labeller, report, spans=spans)
    assert found.past_limit.tolist() == [False] * 510 + [True] * 4
    assert (found.weights[:510] > 1).all()
    assert (found.weights[510:] == 1).all()


@pytest.mark.parametrize("report", tiny.ADVERSARIAL)
def test_adversarial_reports_have_finite_weights(labeller, report):
    spans = torch.tensor([[i, i + 1] for i in range(len(report))]).int().reshape(-1, 2)
    found = weigh(labeller, report, spans=spans)
    assert found.weights.isfinite().all()
    assert (found.weights >= 1).all()
    assert (found.weights > 1).any() == bool(labeller.tokenize([report])[0].spans)


ONE = torch.tensor([[0, 5]])


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        ({"reports": ["heart", 3]}, TypeError, r"reports\[1\] is int"),
        ({"labels": BLANK[:0]}, ValueError, "1 reports with 0 rows of reference_labels"),
        ({"spans": ONE + 1}, ValueError, r"token 0 spans \[1, 6\], report 0 has 5 characters"),
        ({"offsets": torch.tensor([0, 2])}, ValueError, "token_offsets"),
    ],
)
def test_bad_input_is_named(labeller, change, error, text):
    given = {"reports": ["heart"], "labels": TARGETS, "spans": ONE, "offsets": torch.tensor([0, 1])}
    with pytest.raises(error, match=text):
        token_saliency_weights(labeller, *(given | change).values())


# Test what a weight file must hold, and the line on each thing that it lacks.
POOLER = "module.bert.pooler.dense.bias"
HEAD = "module.linear_heads.13.weight"


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


def test_the_format_before_torch_1_6_loads(tmp_path):
    tiny.write_folder(tmp_path, _use_new_zipfile_serialization=False)
    load_network(tmp_path / "weights.pth", tiny.CONFIG)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda s: s.pop(HEAD), r"lacks linear_heads\.13\.weight; wanted chexbert\.pth"),
        (lambda s: s.pop(POOLER), r"lacks bert\.pooler\.dense\.bias"),
        (lambda s: s.update(other=torch.ones(1)), "holds other besides"),
        (lambda s: s.update({HEAD: s[HEAD][:1]}), r"weight \[1, 16\] where \[2, 16\] is wanted"),
        (lambda s: s.clear(), r"lacks bert\.embeddings.* and \d+ more"),
        (lambda s: s.update({HEAD: "text"}), "no `model_state_dict` of tensors"),
    ],
)
def test_another_state_is_named(tmp_path, change, text):
    tiny.write_folder(tmp_path, change)
    with pytest.raises(UserError, match=text) as caught:
        load_network(tmp_path / "weights.pth", tiny.CONFIG)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "content", [b"", b"<html>", b"\x80\x02}q.", b"PK\x03\x04 cut", b"\x00" * 9]
)
def test_a_file_that_is_no_checkpoint_is_told(tmp_path, content):
    (tmp_path / "w.pth").write_bytes(content)
    with pytest.raises(UserError, match="wanted chexbert.pth") as caught:
        load_network(tmp_path / "w.pth", tiny.CONFIG)
    assert "\n" not in str(caught.value)


def test_code_in_a_file_is_not_run(tmp_path):
    torch.save({"model_state_dict": Code()}, tmp_path / "w.pth")
    with pytest.raises(UserError, match=r"no checkpoint of tensors \(the file holds code \("):
        load_network(tmp_path / "w.pth", tiny.CONFIG)
    assert RAN == []


def test_no_weights_says_which_and_where():
    with pytest.raises(
        UserError,
        match="set reward.options.chexbert.weights=PATH .*StanfordAIMI/RRG_scorers.*labeller=rules",
    ):
        build_labeller("chexbert")
    with pytest.raises(UserError, match="no file .*absent.pth; wanted chexbert.pth.*`rules`"):
        build_labeller("chexbert", weights="absent.pth")


def test_the_hub_is_asked_only_when_told(folder, monkeypatch):
    fetch = Mock(return_value=str(folder / "weights.pth"))
    monkeypatch.setattr(hub, "hf_hub_download", fetch)
    load_network("hub", tiny.CONFIG)
    load_network(folder / "weights.pth", tiny.CONFIG)
    fetch.assert_called_once_with("StanfordAIMI/RRG_scorers", "chexbert.pth")

    def fail(repository, file):
        raise OSError("no route\nto host")

    monkeypatch.setattr(hub, "hf_hub_download", fail)
    with pytest.raises(UserError, match=r"cannot download chexbert.pth of .*\(no route\)") as told:
        load_network("hub", tiny.CONFIG)
    assert "`rules` needs no file" in str(told.value)
