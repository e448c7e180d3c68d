"""The schemas of the ops stay what exported graphs hold, whatever the records look like."""

from __future__ import annotations

import pytest

from rrgkern.policy_loss import op
from rrgkern.policy_loss.from_logits import op as logits_op
from rrgkern.policy_loss.linear import op as linear_op

NUMBERS = (
    "Tensor advantages, Tensor offsets, Tensor scale, Tensor? old, Tensor? ref, Tensor? sampler"
)
FLAGS = "Tensor? on_policy, Tensor? mask, bool advantage_per_token, bool scale_per_token"
FROM_LOGITS = (
    f"Tensor targets, {NUMBERS}, Tensor? weight, {FLAGS}, float temperature, bool entropy, str spec"
)
SCHEMAS = {
    "policy_loss_fwd": (
        f"(Tensor logps, {NUMBERS}, Tensor? weight, Tensor? entropy, {FLAGS}, str spec) "
        f"-> ({', '.join(['Tensor'] * 4)})"
    ),
    "policy_loss_from_logits_fwd": (
        f"(Tensor logits, {FROM_LOGITS}, bool with_gradient) -> ({', '.join(['Tensor'] * 4)})"
    ),
    "policy_loss_from_logits_fwd_": (
        f"(Tensor(a0!) logits, {FROM_LOGITS}) -> ({', '.join(['Tensor'] * 3)})"
    ),
    "linear_policy_loss_fwd": (
        "(Tensor hidden, Tensor weight, Tensor? bias, Tensor targets, "
        f"{NUMBERS}, Tensor? token_weight, {FLAGS}, str spec, float temperature, float softcap, "
        "str mode, bool want_hidden, bool want_weight, bool want_bias, bool entropy, "
        f"bool all_metrics) -> ({', '.join(['Tensor'] * 11)})"
    ),
}


@pytest.mark.parametrize("name", SCHEMAS)
def test_the_schema_stays(name):
    module = next(m for m in (op, logits_op, linear_op) if hasattr(m, name))
    schema = str(getattr(module, name)._opoverload._schema)
    assert schema == f"rrgkern::{name}{SCHEMAS[name]}"
