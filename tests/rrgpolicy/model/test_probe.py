"""The probe chooses as it must, and refuses each fault that is planted in a way of sharing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor, nn
from transformers.masking_utils import causal_mask_function

from rrgclinical.common.errors import UserError
from rrgpolicy.model import forward
from rrgpolicy.model.attention import Row, RowGroup
from rrgpolicy.model.backbone import Backbone, window_of
from rrgpolicy.model.cache import Behind, PromptStates
from rrgpolicy.model.families import Family
from rrgpolicy.model.load import checkpoint_layers
from rrgpolicy.model.probe import ATTENTIONS, NoWay, Probed, probe
from rrgpolicy.model.prompt import EncodedPrompt
from tests.rrgkern.shared_prefix.test_flex import uncompiled
from tests.rrgpolicy.model.families import SORTS, backbone, build, forwards, prompt
from tests.rrgpolicy.model.table_of_families import PAGE, written


def opened(name: str, dtype: torch.dtype = torch.float32) -> tuple[Backbone, list[EncodedPrompt]]:
    transformers.logging.set_verbosity_error()
    model = build(name, dtype)
    checkpoint_layers(model)
    found = backbone(model)
    counts = (2, 1) if SORTS[name].sees else (0, 0)
    return found, [prompt(found, name, n, 20 - 7 * k, k) for k, n in enumerate(counts)]


def test_each_family_goes_the_first_way_that_is_exact() -> None:
    # one of each kind: packed, fast attention below, windows, states, temperature by place, caps
    names = ("qwen2_5_vl", "qwen3_vl", "gemma3", "qwen3_5", "llama4", "gpt_oss", "granite")
    for name in filter(forwards, names):
        subject, prompts = opened(name)
        found = probe(subject, prompts)
        line = found.line(type(subject.backbone).__name__)
        assert found.way == SORTS[name].ways[0], line
        assert line.count("\n") == 0 and f"{found.logps:.0e}" in line
        assert ("not by a packed row with blocks of SDPA: log-probs" in line) == (
            found.way == "cache"
        )


class OutOfResources(RuntimeError):
    """Stands in for Triton's, on a card whose shared memory a kernel exceeds."""


def test_the_fast_attention_is_tried_in_the_dtype_of_the_run(monkeypatch):
    """Flex, blocks and dense, each by its name; what a card lacks in fp32 alone decides nothing."""
    uncompiled(monkeypatch)
    flex, blocks = forward.shared_prefix_flex_attention, forward.shared_prefix_attention
    bf16, fp32 = torch.bfloat16, torch.float32

    def without(own: Callable[..., Tensor], *dtypes: torch.dtype) -> Callable[..., Tensor]:
        def attention(query: Tensor, *others: Any, **options: Any) -> Tensor:
            if query.dtype in dtypes:
                raise OutOfResources("shared memory, Required: 147456, Hardware limit: 101376")
            return own(query, *others, **options)

        return attention

    def wrong(query: Tensor, key: Tensor, *others: Any, **options: Any) -> Tensor:
        return without(flex, fp32)(query, key.roll(1, 2), *others, **options)

    lacks = "a packed row with FlexAttention: {}OutOfResources: shared memory, Required: 147456"
    for dtype, of_flex, of_blocks, chosen, reason in (
        (bf16, flex, blocks, "flex", ""),
        (bf16, without(flex, fp32), blocks, "flex", ""),
        (bf16, without(flex, bf16), blocks, "blocks", lacks.format("in bfloat16: ")),
        (bf16, without(flex, bf16), without(blocks, bf16, fp32), "dense", "blocks of SDPA: OutOf"),
        (bf16, wrong, blocks, "blocks", lacks.format("")),
        (fp32, without(flex, fp32), blocks, "blocks", lacks.format("")),
        (fp32, without(flex, bf16), blocks, "flex", ""),
    ):
        subject, prompts = opened("qwen2_5_vl", dtype)
        subject.attn = "flex"
        monkeypatch.setattr(forward, "shared_prefix_flex_attention", of_flex)
        monkeypatch.setattr(forward, "shared_prefix_attention", of_blocks)
        probed = probe(subject, prompts)
        line = probed.line("a Qwen")
        assert (probed.way, probed.attn) == ("row", chosen), line
        assert f"shared by a packed row with {ATTENTIONS[chosen]} (log-probs" in line
        assert reason in line and ("not by" in line) == bool(reason) and "\n" not in line


def test_reentrant_checkpointing_is_what_is_refused_and_not_the_model() -> None:
    subject, prompts = opened("granite")
    subject.model.gradient_checkpointing_enable({"use_reentrant": True})
    with pytest.raises(NoWay, match="use gradient_checkpointing_kwargs=.'use_reentrant': False"):
        probe(subject, prompts)


def test_a_model_whose_own_forward_fails_is_refused_in_one_line(monkeypatch):
    subject, prompts = opened("granite")

    def forward(**_: Any) -> None:
        raise AttributeError("no attribute 'image_outputs'\nsecond line")

    monkeypatch.setattr(subject.model, "forward", forward)
    with pytest.raises(NoWay, match="own forward fails in transformers .*image_outputs") as told:
        probe(subject, prompts)
    assert "\n" not in str(told.value)
    assert "given input_ids; give what it misses, or use another version" in str(told.value)


Fault = Callable[[pytest.MonkeyPatch], Any]


def detached_cache(layers: tuple[int, ...]) -> Fault:
    def plant(patch: pytest.MonkeyPatch) -> None:
        own = PromptStates.update

        def update(
            self: PromptStates, k: Tensor, v: Tensor, layer_idx: int, *_: Any, **__: Any
        ) -> Any:
            if layer_idx not in layers:
                return own(self, k, v, layer_idx)
            own(self, k.detach(), v.detach(), layer_idx)
            return k, v

        patch.setattr(PromptStates, "update", update)

    return plant


def lost_window(patch: pytest.MonkeyPatch) -> None:
    own = Row.masks

    def masks(self: Row, group: RowGroup) -> Any:
        options = {**self.options, "mask_function": causal_mask_function}
        return own(replace(self, options=options, _masks={}), group)

    patch.setattr(Row, "masks", masks)


def window_off_by_one(patch: pytest.MonkeyPatch) -> None:
    own = Behind.kept
    patch.setattr(Behind, "kept", lambda self, layer: max(own(self, layer) - 1, 0))


def plain_positions(patch: pytest.MonkeyPatch) -> None:
    def count(_: Any, model: Any, inputs: dict[str, Tensor]) -> Tensor:
        return torch.arange(inputs["input_ids"].shape[1]).expand(3, -1)

    patch.setattr(Family, "positions", count)


def forgotten_scale(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Backbone, "scale", 1.0)


def forgotten_cap(patch: pytest.MonkeyPatch) -> None:
    own = Backbone.head
    patch.setattr(Backbone, "head", lambda self: own(self)._replace(softcap=None))


def keys_of_the_neighbour(patch: pytest.MonkeyPatch) -> None:
    own = Behind.update

    def update(self: Behind, k: Tensor, v: Tensor, layer_idx: int, *_: Any, **__: Any) -> Any:
        return own(self, k.roll(1, 0), v, layer_idx)

    patch.setattr(Behind, "update", update)


FAULTS: tuple[tuple[str, str, Fault], ...] = (
    ("qwen3_vl", "cache", detached_cache((0, 1, 2, 3))),
    ("qwen3_vl", "cache", detached_cache((0,))),
    ("qwen3_vl", "cache", detached_cache((2,))),
    ("gemma3", "row", lost_window),
    ("mistral", "cache", window_off_by_one),
    ("qwen3_vl", "row", plain_positions),
    ("qwen3_vl", "cache", plain_positions),
    ("granite", "row", forgotten_scale),
    ("cohere2", "cache", forgotten_scale),
    ("qwen3", "cache", keys_of_the_neighbour),
)


def test_the_docs_page_has_the_table_of_the_list() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert written(page) == page, "python -m tests.rrgpolicy.model.table_of_families writes it"


def test_planted_faults_are_refused() -> None:
    passed, told = [], []
    for name, way, plant in FAULTS:
        subject, prompts = opened(name)
        assert probe(subject, prompts, way).way == way
        with pytest.MonkeyPatch.context() as patch:
            plant(patch)
            try:
                passed.append((name, way, str(plant), probe(subject, prompts, way)))
            except NoWay as error:
                told.append(str(error))
    assert not passed
    assert all(" which is not exact for this " in line for line in told)
    assert all(line.endswith("use policy.sharing=auto") for line in told)


def test_a_head_that_does_more_than_its_configuration_says_is_refused() -> None:
    subject, prompts = opened("gemma2")
    subject.text_config.final_logit_softcapping = 2.0
    assert probe(subject, prompts).way == "row"
    with pytest.MonkeyPatch.context() as patch:
        forgotten_cap(patch)
        with pytest.raises(NoWay, match="its head does more than its configuration says"):
            probe(subject, prompts)


def test_the_probe_leaves_the_model_as_it_was() -> None:
    subject, prompts = opened("gemma3")
    dropout = nn.Dropout(0.3)
    subject.backbone.model.language_model.layers[0].extra = dropout
    subject.model.to(torch.bfloat16).eval()
    before = {n: (p.data_ptr(), p.dtype) for n, p in subject.model.named_parameters()}
    drawn = torch.get_rng_state()
    with torch.no_grad():
        assert probe(subject, prompts).logps < 1e-4
    assert {n: (p.data_ptr(), p.dtype) for n, p in subject.model.named_parameters()} == before
    assert all(p.grad is None for p in subject.model.parameters())
    assert not subject.model.training and not dropout.training and dropout.p == 0.3
    assert torch.equal(torch.get_rng_state(), drawn)


def test_a_window_too_long_to_cross_bounds_the_prompts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rrgpolicy.model.probe.LONGEST", 30)
    subject, prompts = opened("mistral")
    subject.text_config.sliding_window = 40
    found = probe(subject, prompts)
    assert found.tokens == 36
    assert ", up to 36 tokens (" in found.line("a Mistral")
    found.applied(subject)
    long = prompt(subject, "mistral", 0, 30)
    with pytest.raises(UserError, match="has 37 tokens, and sharing was probed up to 36"):
        forward.hidden_states(subject, [long], [[torch.arange(7)]])
    forward.hidden_states(subject, [long], [[torch.arange(6)]])
    assert Probed("none", "auto", 0.0, 0.0).tokens is None


@pytest.mark.parametrize("kind", ["longrope", "dynamic"])
def test_a_rope_that_turns_with_length_bounds_the_prompts(kind: str) -> None:
    """One long sequence would turn the keys of each other in its row."""
    rope = {"rope_type": kind, "rope_theta": 10000.0, "factor": 4.0}
    if kind == "longrope":
        rope |= {"short_factor": [1.0] * 8, "long_factor": [4.0] * 8}
        rope |= {"original_max_position_embeddings": 40}
    sizes = {"rope_parameters": rope, "max_position_embeddings": 40}
    subject = backbone(build("qwen3", torch.float32, **sizes))
    examples = {n: [prompt(subject, "qwen3", 0, k, k) for k in (n, 12)] for n in (50, 38, 20)}
    for longest in (50, 38):  # with a report beyond, as all that the run will meet
        found = probe(subject, examples[longest])
        assert (found.way, found.tokens) == ("none", None)
        assert "not by sharing: rope turns otherwise beyond 39 tokens" in found.line("a Qwen3")
    with pytest.raises(NoWay, match="policy.sharing=row, which is not exact .*beyond 39"):
        probe(subject, examples[38], "row")
    found = probe(subject, examples[20])
    assert (found.way, found.tokens) == ("row", 39)
    found.applied(subject)
    prompts = [prompt(subject, "qwen3", 0, n) for n in (35, 20)]
    with pytest.raises(UserError, match="has 40 tokens, .* up to 39: .* or rope may"):
        forward.hidden_states(subject, prompts, [[torch.arange(5)]] * 2)
    forward.hidden_states(subject, prompts, [[torch.arange(4)]] * 2)


@pytest.mark.parametrize(
    ("names", "tokens"),
    [
        ({"layer_types": ["full_attention"], "sliding_window": 7}, None),
        ({"layer_types": ["hybrid_sliding", "hybrid"], "sliding_window_size": 7}, 7),
        ({"layer_types": ["full_attention"], "keep_window_size": 9}, 9),
        ({"index_topk": 8, "sliding_window": None}, 8),
    ],
)
def test_what_a_layer_leaves_out_is_a_window(names: dict[str, Any], tokens: int | None) -> None:
    assert window_of(SimpleNamespace(**names)) == tokens
