"""What a token of sampling may cost: operators and host reads, never times."""

from __future__ import annotations

import pytest
import torch
import transformers

from bench import sampler

# Operators a layer in bf16, and outside the layers: greedy, by temperature, by a nucleus.
LIMITS = {"qwen2_5_vl": (56, 37, 46, 56, 1), "qwen3_vl": (59, 54, 63, 73, 2)}


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


def test_every_read_of_the_host_is_counted() -> None:
    values = torch.arange(3)
    with sampler.Operators() as operators:
        int(values.sum())  # one operator, one read
        (values + 1).tolist()
        values.nonzero()
        values.view(3, 1)
    assert (operators.work, operators.reads) == (3, 3)
