"""Offsets that would lead outside of memory are refused by every function that takes offsets."""

from __future__ import annotations

import os
import resource
import time

import pytest
import torch

import rrgkern

# From 0 to 4, and every difference of two neighbours is positive once it has wrapped around.
WRAPPED = torch.tensor([0, 2**62, 2**63 - 1, -(2**63), -(2**62), 0, 4])
SIX = torch.zeros(6)
FOUR = torch.zeros(4)
IDS = torch.zeros(4, dtype=torch.int64)
BYTES = torch.zeros(4, dtype=torch.uint8)
UNIT = torch.tensor([[1.0, 0.0]] * 4)


def _sentences(offsets: torch.Tensor) -> rrgkern.SentenceEntities:
    presence = torch.ones(4, dtype=torch.int8)
    return rrgkern.SentenceEntities(offsets, IDS, offsets, IDS, presence, IDS, UNIT)


def _entities(offsets: torch.Tensor) -> rrgkern.ReportEntities:
    return rrgkern.ReportEntities(offsets, torch.ones(4, dtype=torch.int8), UNIT)


PAIRS = rrgkern.PreferencePairs(IDS[:1], IDS[:1], torch.ones(1))
SPANS = torch.zeros(4, 2, dtype=torch.int64)
ALL = torch.tensor([0, 4])
LOSS = {"scale": SIX, "ref": FOUR, "spec": rrgkern.PolicyLoss()}


def _edits(w: torch.Tensor, **options: object) -> object:
    return rrgkern.edit_plan(_sentences(w), _sentences(w), seeds=SIX.long(), **options)


CALLS = {
    "tfidf_weights": lambda w: rrgkern.tfidf_weights(IDS, w, torch.tensor([0, 6])),
    "tfidf_weights, groups": lambda w: rrgkern.tfidf_weights(IDS, torch.arange(5), w),
    "span_max": lambda w: rrgkern.span_max(FOUR, SPANS, w, SPANS, w),
    "policy_loss": lambda w: rrgkern.policy_loss(FOUR, SIX, w, **LOSS),
    "group_advantages": lambda w: rrgkern.group_advantages(FOUR, w),
    "zero_variance_share": lambda w: rrgkern.zero_variance_share(FOUR, w),
    "preference_loss": lambda w: rrgkern.preference_loss(FOUR, FOUR, w, PAIRS),
    "policy_loss_from_logits": lambda w: rrgkern.policy_loss_from_logits(
        torch.zeros(4, 8), IDS, SIX, w, **LOSS
    ),
    "linear_policy_loss": lambda w: rrgkern.linear_policy_loss(
        UNIT, torch.zeros(8, 2), IDS, SIX, w, **LOSS
    ),
    "edit_plan": _edits,
    "edit_plan, no limit": lambda w: _edits(w, max_edits=None),
    "edit_plan, released": lambda w: _edits(w, rule="released"),
    "entity_match": lambda w: rrgkern.entity_match(_entities(w), _entities(w)),
    "loss_scale": lambda w: rrgkern.loss_scale("grpo", w),
    "reward_spread": lambda w: rrgkern.reward_spread(FOUR, w),
    "oracle_pairs": lambda w: rrgkern.oracle_pairs(IDS.bool(), w),
    "byte_level_spans": lambda w: rrgkern.byte_level_spans(
        IDS, w, rrgkern.ByteVocabulary(BYTES, ALL)
    ),
    "byte_level_spans, vocabulary": lambda w: rrgkern.byte_level_spans(
        IDS, ALL, rrgkern.ByteVocabulary(BYTES, w)
    ),
}
OUTSIDE = {
    "far outside": torch.tensor([0, 2**33]),
    "outside": torch.tensor([0, 10**5]),
    "short": torch.tensor([0, 3]),
    "empty": torch.tensor([], dtype=torch.int64),
}


def _said(call: object, offsets: torch.Tensor) -> str:
    try:
        return f"returned {call(offsets)}"
    except ValueError as error:
        return str(error)


def _said_in_a_child(call: object, offsets: torch.Tensor) -> str:
    """Return what the call says in a forked process: a memory error, or no end, ends only that."""
    read, write = os.pipe()
    if (child := os.fork()) == 0:
        status = 1
        try:
            torch.set_num_threads(1)  # the parent's threads are not there
            most = int(time.process_time()) + 20
            resource.setrlimit(resource.RLIMIT_CPU, (most, most))
            os.write(write, _said(call, offsets).encode())
            status = 0
        finally:
            os._exit(status)
    os.close(write)
    with os.fdopen(read) as pipe:
        text = pipe.read()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return f"ended with status {status}" if status else text


def test_differences_that_wrap_around_are_refused_by_every_function() -> None:
    said = {name: _said_in_a_child(call, WRAPPED) for name, call in CALLS.items()}
    wrong = {name: text for name, text in said.items() if "goes down after position 2" not in text}
    assert not wrong


@pytest.mark.parametrize("offsets", OUTSIDE.values(), ids=OUTSIDE)
def test_a_vocabulary_lies_in_its_bytes(offsets: torch.Tensor) -> None:
    with pytest.raises(ValueError, match="vocabulary.offsets"):
        rrgkern.byte_level_spans(
            IDS[:1], torch.tensor([0, 1]), rrgkern.ByteVocabulary(BYTES, offsets)
        )


def test_spans_that_do_not_fit_are_refused() -> None:
    """Narrowed to 32 bits, this span would share characters with the token's."""
    far = torch.tensor([[2**32, 2**32 + 5]])
    token = torch.tensor([[0, 3]])
    one = torch.tensor([0, 1])
    with pytest.raises(ValueError, match=r"piece_spans is 4294967296 at row 0.*2147483647"):
        rrgkern.span_max(torch.ones(1), far, one, token, one)
    with pytest.raises(ValueError, match="token_spans is 4294967296 at row 0"):
        rrgkern.span_max(torch.ones(1), token, one, far, one)


def test_no_group_has_no_spread() -> None:
    assert all(value.isnan() for value in rrgkern.reward_spread(torch.zeros(0), torch.tensor([0])))
