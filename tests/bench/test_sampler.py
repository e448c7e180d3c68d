"""What a token of sampling may cost: operators and host reads, never times."""

from __future__ import annotations

from unittest import mock

import pytest
import torch
import transformers

from bench import sampler
from rrgpolicy.rollout import generate

# Operators a layer in bf16, and outside the layers: greedy, by temperature, by a nucleus.
LIMITS = {"qwen2_5_vl": (57, 52, 61, 71, 1 / 8), "qwen3_vl": (73, 54, 63, 73, 1 / 8)}


@pytest.mark.parametrize("name", LIMITS)
def test_a_token_costs_no_more_operators_and_host_reads(name: str) -> None:
    transformers.logging.set_verbosity_error()
    row = sampler.row_of(name)
    a_layer, greedy, temperature, top_p, reads = LIMITS[name]
    assert row.operators_a_layer <= a_layer
    assert row.outside_greedy <= greedy
    assert row.outside_temperature <= temperature
    assert row.outside_top_p <= top_p
    assert row.host_reads <= reads


def test_the_host_reads_once_in_eight_tokens_while_rows_leave() -> None:
    policy = sampler.policy_of("qwen2_5_vl", 2, torch.float32)
    policy.eos_ids = tuple(range(3, 10))
    reports, reads = [], []
    for tokens in (1, 60):
        with mock.patch(sampler.CAPTURING, return_value=True), sampler.Operators() as operators:
            groups = generate(policy, sampler.request_of(policy, "qwen2_5_vl", tokens))
        reports, reads = [r for group in groups for r in group], [*reads, operators.reads]
    lengths = sorted(len(report.ids) for report in reports)
    assert lengths[0] < 8 < lengths[len(lengths) // 2] < lengths[-1]
    assert reads[1] - reads[0] <= lengths[-1] / 8 + 1


def test_every_read_of_the_host_is_counted() -> None:
    values = torch.arange(3)
    with sampler.Operators() as operators:
        int(values.sum())  # one operator, one read
        (values + 1).tolist()
        values.nonzero()
        values.view(3, 1)
    assert (operators.work, operators.reads) == (3, 3)
