"""Fused losses, edits and matching for reinforcement learning of radiology reports."""

from __future__ import annotations

import sys

from rrgkern.advantages import group_advantages, zero_variance_share
from rrgkern.diversity import (
    RankSample,
    RewardSpread,
    diagnostic_diversity,
    rank_sample,
    reward_spread,
)
from rrgkern.edit_plan import (
    Edit,
    EditScript,
    Rule,
    SentenceEntities,
    SplicedEdit,
    Step,
    edit_plan,
    sentence_body,
    splice,
)
from rrgkern.entity_match import ANY, EQUAL, OPPOSITE, EntityMatch, ReportEntities, entity_match
from rrgkern.logps import TokenLogps, linear_token_logps, token_logps
from rrgkern.mccs import mccs
from rrgkern.policy_loss import (
    PolicyLoss,
    PolicyLossOutput,
    loss_scale,
    off_policy_weight,
    policy_loss,
    top_entropy_weight,
)
from rrgkern.policy_loss.from_logits import policy_loss_from_logits
from rrgkern.policy_loss.linear import linear_policy_loss
from rrgkern.preference_loss import (
    PreferenceLossOutput,
    PreferencePairs,
    oracle_pairs,
    preference_advantages,
    preference_loss,
)
from rrgkern.random import philox_seed
from rrgkern.shared_prefix import (
    AttentionLayout,
    DecodeStep,
    SharedPrefixBatch,
    attention_layout,
    decode_unchecked,
    gather_rows,
    pack_shared_prefix,
    shared_prefix_attention,
    shared_prefix_block_mask,
    shared_prefix_decode,
    shared_prefix_flex_attention,
)
from rrgkern.token_weights import (
    ByteVocabulary,
    byte_level_spans,
    byte_vocabulary,
    span_max,
    tfidf_weights,
)

__all__ = [
    "ANY",
    "EQUAL",
    "OPPOSITE",
    "AttentionLayout",
    "ByteVocabulary",
    "DecodeStep",
    "Edit",
    "EditScript",
    "EntityMatch",
    "PolicyLoss",
    "PolicyLossOutput",
    "PreferenceLossOutput",
    "PreferencePairs",
    "RankSample",
    "ReportEntities",
    "RewardSpread",
    "Rule",
    "SentenceEntities",
    "SharedPrefixBatch",
    "SplicedEdit",
    "Step",
    "TokenLogps",
    "attention_layout",
    "byte_level_spans",
    "byte_vocabulary",
    "decode_unchecked",
    "diagnostic_diversity",
    "edit_plan",
    "entity_match",
    "gather_rows",
    "group_advantages",
    "linear_policy_loss",
    "linear_token_logps",
    "loss_scale",
    "mccs",
    "off_policy_weight",
    "oracle_pairs",
    "pack_shared_prefix",
    "philox_seed",
    "policy_loss",
    "policy_loss_from_logits",
    "preference_advantages",
    "preference_loss",
    "rank_sample",
    "reward_spread",
    "sentence_body",
    "shared_prefix_attention",
    "shared_prefix_block_mask",
    "shared_prefix_decode",
    "shared_prefix_flex_attention",
    "span_max",
    "splice",
    "tfidf_weights",
    "token_logps",
    "top_entropy_weight",
    "zero_variance_share",
]

__version__ = "0.1.0"

# A function named as its package hides it: with the package's namespace as its own, it leads to
# the same modules, `import rrgkern.policy_loss.op as op` included.
for _name in __all__:
    if (_package := sys.modules.get(f"{__name__}.{_name}")) is not None:
        globals()[_name].__dict__ = vars(_package)
