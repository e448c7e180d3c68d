"""Groups sampled in process carry the log-probs of training, whatever the family."""

from __future__ import annotations

import copy
import warnings
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
import torch
import transformers
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file
from torch import nn

from rrgclinical.common.errors import UserError
from rrgkern.ops import flatten
from rrgkern.shared_prefix.op import shared_prefix_decode_op
from rrgpolicy.model.attention import use_rows
from rrgpolicy.model.fewer_kernels import CompiledStep, merged, with_sums
from rrgpolicy.model.forward import head_logps, hidden_states
from rrgpolicy.model.own_forward import VisionCache
from rrgpolicy.model.policy import Policy
from rrgpolicy.model.prompt import placed
from rrgpolicy.rollout import SamplingRequest, TransformersEngine, generate
from rrgpolicy.rollout.cache import GroupLayer
from rrgpolicy.rollout.transformers_engine import DecodeLoop
from tests.products import first_of
from tests.rrgpolicy.model.families import IMAGE, SORTS, backbone, build, forwards, prompt
from tests.rrgpolicy.model.test_strangers import model_of

# One of each kind: deepstack, windows with images, states, temperature by place, soft cap, scale.
NAMES = ("qwen3_vl", "gemma3", "qwen3_5", "lfm2_vl", "llama4", "internvl", "gemma2", "granite")
# with sinks too
ONE_GRAPH = ("qwen2_5_vl", "gemma3", "qwen3_5", "llama4", "gpt_oss")


def policy_of(name: str, dtype: torch.dtype = torch.float32, **sizes: int) -> Policy:
    model = build(name, dtype, **sizes)
    if any("expert" in part for part, _ in model.named_modules()):
        # "eager" asks the host who goes where; the other way, transformers' own, wants bf16
        grouped = dtype == torch.bfloat16
        model.set_experts_implementation("grouped_mm" if grouped else "batched_mm")
    plain = backbone(model)
    if name == "gemma2":
        plain.text_config.final_logit_softcapping = 3.0
    return around(plain.model, *range(3, 25), sharing=SORTS[name].ways[0])


def around(model: Any, *ends: int, sharing: str | None = None) -> Policy:
    return Policy(
        model=model,
        device=torch.device("cpu"),
        pad_id=0,
        sharing=sharing,
        tokenizer=SimpleNamespace(added_tokens_decoder={}),
        image_processor=None,
        eos_ids=ends,
        end_of_turn=ends[0],
    )


def test_sampled_log_probs_are_those_of_training() -> None:
    transformers.logging.set_verbosity_error()
    failures = []
    for name in filter(forwards, NAMES):
        sort = SORTS[name]
        policy = policy_of(name)
        assert (IMAGE in policy.never_sampled) == sort.sees
        for parameter in policy.model.parameters():
            parameter.requires_grad_(False)
        counts = (2, 0) if sort.sees else (0, 0)
        prompts = [prompt(policy, name, n, 20 - 9 * k, k) for k, n in enumerate(counts)]
        seeds = [[1, 2, 3], [4, 5, 6]]
        if sort.sees and policy.family.joins:
            policy.vision_cache = VisionCache(1 << 20)
        request = SamplingRequest(prompts, group=3, max_new_tokens=12, seeds=seeds, temperature=1.3)
        groups = TransformersEngine().generate(policy, request)
        sampled = [rollout for group in groups for rollout in group]
        assert len({len(rollout.ids) for rollout in sampled}) > 1, "no row left the batch early"
        members = [[rollout.ids for rollout in group] for group in groups]
        hidden, batch = hidden_states(policy, prompts, members)
        logps = head_logps(policy, hidden, batch.targets, temperature=1.3)
        far = (torch.cat([rollout.logps for rollout in sampled]) - logps).abs().max()
        if far > 1e-4:
            failures.append(f"{name}: {far:.0e}")
    assert not failures, failures


def loop_of(name: str, dtype: torch.dtype = torch.float32) -> DecodeLoop:
    policy = policy_of(name, dtype)
    return DecodeLoop(policy, request_of(policy, name))


def request_of(policy: Policy, name: str) -> SamplingRequest:
    sees = SORTS[name].sees
    prompts = [prompt(policy, name, sees * n, 20 - 9 * k, k) for k, n in enumerate((2, 0))]
    prompts = prompts if policy.family.joins else prompts[:1]
    seeds = [[b, b + 9] for b in range(len(prompts))]
    return SamplingRequest(prompts, group=2, max_new_tokens=8, seeds=seeds)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_step_is_the_models_own_forward(dtype: torch.dtype) -> None:
    # in fp64 the first keeps its states in fp32, the other's own mask overflows before a prompt
    apart = {"qwen3_5", "gemma2"} if dtype == torch.float64 else set()
    for name in filter(forwards, sorted({*NAMES, *ONE_GRAPH} - apart)):
        with torch.no_grad():
            loop = loop_of(name, dtype)
            loop.run()
            prompts = [loop.request.prompts[member // 2] for member in loop.members]
            ids = loop.ids[loop.members, : int(loop.decoder.place) + 1]
            own = torch.stack([*map(loop.decoder.own, prompts, ids)])
            right, stepped = (
                loop.project(hidden).log_softmax(-1) for hidden in (own, loop.decoder.hidden)
            )
            gap = (right - stepped).abs().max()
        assert gap < {torch.float32: 2e-5, torch.float64: 1e-12}[dtype], name


NARROW = [(name, torch.bfloat16) for name in ("qwen3_vl_moe", "gpt_oss")]  # grouped experts
PLAIN = [(name, torch.float32) for name in ONE_GRAPH]
REST = [(name, torch.float32) for name in sorted(SORTS.keys() - ONE_GRAPH)]


@pytest.mark.parametrize(("name", "dtype"), first_of([*PLAIN, *NARROW, *REST], 7))
def test_a_token_is_one_graph_that_asks_the_host_for_nothing(monkeypatch, name, dtype):
    if not forwards(name):
        pytest.skip("the family's own forward fails in this transformers")
    graphs = []

    def keep(graph: torch.fx.GraphModule, _: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    torch._dynamo.reset()
    monkeypatch.setattr(f"{DecodeLoop.__module__}.TOKENS_A_READ", {False: 8})  # as on a GPU
    with torch.no_grad():
        plain, traced = loop_of(name, dtype), loop_of(name, dtype)
        assert plain.decoder.stays and plain.run()
        # as on a GPU, by the operator
        operator = "rrgkern.shared_prefix.api.decode_reference"
        monkeypatch.setattr(operator, lambda step: shared_prefix_decode_op(*flatten(step)))
        step = torch.compile(traced._step, fullgraph=True, dynamic=False, backend=keep)
        monkeypatch.setattr(traced, "_next", step)
        traced.run()
    assert len(graphs) == 1 and torch.equal(traced.ids, plain.ids)
    layers = [type(layer) for layer in traced.decoder.cache.layers].count(GroupLayer)
    operators = ["shared_prefix_decode" in str(node.target) for node in graphs[0].graph.nodes]
    assert sum(operators) == layers > 0
    assert not any("fallback" in str(node.target) for node in graphs[0].graph.nodes)
    torch.testing.assert_close(traced.logps, plain.logps, rtol=0, atol=2e-5)


def test_an_option_that_the_step_does_not_take_refuses_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with torch.no_grad():
        taken = loop_of("gpt_oss")
        monkeypatch.setattr("rrgpolicy.rollout.cache.TAKEN", {"softcap"})
        refused = loop_of("gpt_oss")
        assert taken.decoder.stays and not refused.decoder.stays
        assert refused.decoder.cache.foreign == {"s_aux"}
        taken.run()
        refused.run()
    assert torch.equal(taken.ids, refused.ids)
    torch.testing.assert_close(taken.logps, refused.logps, rtol=0, atol=2e-5)


def stranger(kind: str, **sizes: Any) -> Policy:
    transformers.logging.set_verbosity_error()
    model = model_of(kind, initializer_range=0.3, **sizes).eval()
    use_rows(model)
    return around(model, 2)


def sampled(policy: Policy) -> tuple[torch.Tensor, torch.Tensor]:
    """Log-probs of tokens sampled behind prompts of two lengths, and those of training."""
    prompts = [placed(policy, {"input_ids": torch.arange(3, n)[None]}) for n in (23, 12)]
    request = SamplingRequest(prompts, group=1, max_new_tokens=6, seeds=[[1], [2]])
    groups = TransformersEngine().generate(policy, request)
    members = [[rollout.ids for rollout in group] for group in groups]
    hidden, batch = hidden_states(policy, prompts, members)
    own = head_logps(policy, hidden, batch.targets)
    return torch.cat([group[0].logps for group in groups]), own


@pytest.mark.parametrize(
    ("kind", "sizes"),
    [
        # its configuration keeps a window that its layers do not have
        ("Llama", {"sliding_window": 6, "intermediate_size": 48}),
        # their forward takes a cache of another name, and no mask behind a prompt
        ("Mamba", {"state_size": 8}),
        ("Mamba2", {"num_heads": 4, "head_dim": 16, "n_groups": 1, "chunk_size": 8}),
        # it was trained with a loss of its routers, which its forward would make of step and mask
        ("Mixtral", {"num_key_value_heads": 2, "intermediate_size": 48, "num_local_experts": 4}),
    ],
)
def test_no_token_is_forgotten_that_the_model_sees(kind: str, sizes: dict[str, Any]) -> None:
    policy = stranger(kind, **sizes)
    policy.config.output_router_logits = True
    with torch.no_grad():
        logps, own = sampled(policy)
    torch.testing.assert_close(logps, own, rtol=0, atol=1e-4)


def test_steps_that_are_not_the_models_own_forward_are_warned_of() -> None:
    """A rope that depends on the sequence's length turns the keys of a cache by another one."""
    rope = {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 4.0}
    sizes = {"intermediate_size": 48, "rope_parameters": rope}
    with torch.no_grad(), pytest.warns(UserWarning, match="other reports with a cache"):
        logps, own = sampled(stranger("Llama", max_position_embeddings=8, **sizes))
    assert (logps - own).abs().max() > 1e-2
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("error")
        sampled(stranger("Llama", max_position_embeddings=64, **sizes))


# tokens that leave no window are compressed in blocks, counted from a row's first place
DEEPSEEK_V4 = {
    **{"num_attention_heads": 4, "head_dim": 16, "qk_rope_head_dim": 8, "q_lora_rank": 16},
    **{"o_lora_rank": 16, "o_groups": 2, "moe_intermediate_size": 16, "n_routed_experts": 4},
    **{"num_experts_per_tok": 2, "sliding_window": 6, "index_topk": 8, "index_n_heads": 2},
    **{"index_head_dim": 16, "layer_types": ["compressed_sparse_attention"] * 2},
}


def test_a_family_that_counts_from_a_rows_first_place_is_sampled_without_padding(monkeypatch):
    policy = stranger("DeepseekV4", **DEEPSEEK_V4)
    with torch.no_grad():
        logps, own = sampled(policy)
    torch.testing.assert_close(logps, own, rtol=0, atol=1e-4)
    monkeypatch.setattr(policy.family, "joins", True)
    with torch.no_grad(), pytest.warns(UserWarning, match="with padding before a shorter prompt"):
        logps, own = sampled(policy)
    assert (logps - own).abs().max() > 1e-2


def test_reports_with_the_most_padding_are_compared_before_they_leave(monkeypatch):
    policy = stranger("DeepseekV4", **DEEPSEEK_V4)
    monkeypatch.setattr(policy.family, "joins", True)
    prompts = [placed(policy, {"input_ids": torch.arange(3, n)[None]}) for n in (23, 12)]
    request = SamplingRequest(prompts, group=1, max_new_tokens=12, seeds=[[1], [2]])
    with torch.no_grad(), pytest.warns(UserWarning, match="other reports with a cache"):
        ((long,), (short,)) = TransformersEngine().generate(policy, request)
    policy.eos_ids = tuple({*short.ids[3:].tolist()} - {*long.ids.tolist()})
    with torch.no_grad(), pytest.warns(UserWarning, match="other reports with a cache"):
        ((long,), (short,)) = TransformersEngine().generate(policy, request)
    assert short.finished and not long.finished


def test_a_forward_that_takes_no_cache_of_ours_is_told_in_one_line() -> None:
    experts = {"num_local_experts": 2, "num_experts_per_tok": 1, "intermediate_size": 48}
    policy = stranger("MiniMax", head_dim=8, **experts)  # wants one of its own
    with pytest.raises(UserError, match="cannot write reports in the trainer's process") as told:
        sampled(policy)
    assert "\n" not in str(told.value) and "rollout.engine=vllm" in str(told.value)


PRODUCTS = r".*language_model.*(q_proj|k_proj|v_proj|o_proj|gate_proj|up_proj)"
RANKS = {"rank_pattern": {"k_proj": 3}, "use_rslora": True, "lora_alpha": 5}
# of linear attention; of attention and MLP behind one norm; beside experts; with LoRAs, whose A and
# B of one input are a product each; with those that are left as they are
MERGED = [
    ("qwen3_5", [4, 2, 3, 2] * 2, {}, torch.float32),
    ("cohere2", [5] * 4, {}, torch.float32),
    ("qwen3_vl_moe", [3] * 4, {}, torch.float32),
    ("llava", [3, 3, 2, 2, 2] * 4, RANKS, torch.float32),
    ("llava", [3, 3, 2, 2, 2] * 4, RANKS, torch.float64),
    ("llava", [6, 4, 2] * 4, {"use_dora": True}, torch.float32),
]


def written(folder: Path, sizes: list[int], name: str, lora: Any, dtype: Any) -> tuple[Any, ...]:
    """Decode with products of one input merged; ids and states, and what is saved meanwhile."""
    policy = policy_of(name, dtype)
    if lora:
        torch.manual_seed(0)
        layers = LoraConfig(r=2, target_modules=PRODUCTS, init_lora_weights=False, **lora)
        policy.model = get_peft_model(policy.model, layers).eval()
    model: Any = policy.model
    before = dict(model.named_parameters())

    class Saving(DecodeLoop):
        def _step(self, token: torch.Tensor) -> torch.Tensor:
            if not folder.exists():
                places = Counter(p.untyped_storage().data_ptr() for p in before.values())
                assert sorted(n for n in places.values() if n > 1) == sorted(sizes)
                for key in (k for k in before if "k_proj" in k and "lora_B" not in k):
                    before[key].mul_(1.5)  # acts at once
                model.save_pretrained(folder)
            return super()._step(token)

    with torch.no_grad():
        off: Any = SimpleNamespace(on=False)
        loop = Saving(policy, request_of(policy, name), off)
        with merged(loop.one_input if sizes else []):
            loop.run()
    assert all(p is before[k] for k, p in model.named_parameters())
    assert len({p.untyped_storage().data_ptr() for p in before.values()}) == len(before)
    assert not any("forward" in vars(module) for module in model.modules())
    return loop.ids, loop.decoder.hidden, load_file(next(folder.glob("*.safetensors")))


@pytest.mark.parametrize(("name", "sizes", "lora", "dtype"), MERGED)
def test_products_of_one_input_are_one_while_tokens_are_decoded(
    tmp_path, name, sizes, lora, dtype
) -> None:
    (ids, apart, plain), (own, together, merged) = (
        written(tmp_path / str(len(own)), own, name, lora, dtype) for own in ([], sizes)
    )
    assert torch.equal(own, ids)
    near = {torch.float32: 2e-5, torch.float64: 1e-12}[dtype]
    torch.testing.assert_close(together, apart, rtol=0, atol=near)
    torch.testing.assert_close(merged, plain, rtol=0, atol=0)


def test_a_merge_that_fails_is_undone() -> None:
    layers = [nn.Linear(2, 2), nn.Linear(2, 2), *(nn.Linear(n, 2, bias=False) for n in (2, 3))]
    with pytest.raises(RuntimeError, match="must match"), merged([layers]):
        pass
    assert not any("forward" in vars(layer) for layer in layers)


def test_a_step_is_compiled_once_for_all_sizes_and_fresh_copies(monkeypatch) -> None:
    policy, compiled = policy_of("qwen2", num_hidden_layers=1), CompiledStep()
    engines = TransformersEngine(), TransformersEngine(compiled)

    def counted(graph: torch.fx.GraphModule, _: Any) -> Any:
        compiled.compilations += 1
        return graph.forward

    monkeypatch.setattr(compiled, "_backend", counted)
    torch._dynamo.reset()
    for group, *texts in ((5, 40, 25), (5, 40, 31), (3, 40, 25), (3, 70, 31), (4, 33, 20)):
        policy = replace(policy, model=copy.deepcopy(policy.model))
        prompts = [prompt(policy, "qwen2", 0, text, k) for k, text in enumerate(texts)]
        seeds = [[10 * k + member for member in range(group)] for k in range(2)]
        request = SamplingRequest(prompts, group=group, max_new_tokens=5, seeds=seeds)
        plain, fast = ([r for g in e.generate(policy, request) for r in g] for e in engines)
        for left, right in zip(plain, fast, strict=True):
            assert torch.equal(left.ids, right.ids)
            torch.testing.assert_close(left.logps, right.logps, rtol=0, atol=2e-5)
    assert compiled.compilations == 1 and compiled.seconds > 0


@pytest.mark.parametrize(
    ("length", "inputs", "options", "sums"),
    [(4, 1, {"groups": 4}, True), (6, 1, {"groups": 4}, False), (4, 4, {}, False)],
)
@pytest.mark.parametrize("bias", [True, False])
def test_a_convolution_over_a_state_and_a_token_is_a_sum(length, inputs, options, sums, bias):
    x, weight, b = (torch.randn(shape).double() for shape in ((2, 4, length), (4, inputs, 3), (4,)))
    args = x, weight, b if bias else None
    graph = torch.fx.symbolic_trace(lambda x, w, b: torch.conv1d(x, w, b, **options))
    rewritten = with_sums(graph)
    torch.testing.assert_close(rewritten(*args), torch.conv1d(*args, **options))
    with mock.patch("torch.conv1d") as library:
        rewritten(*args)
    assert library.called != sums


@pytest.mark.parametrize("stays", [True, False])
def test_a_step_that_cannot_be_compiled_runs_as_it_is_and_says_so(stays, monkeypatch) -> None:
    policy, compiled = policy_of("qwen2", num_hidden_layers=1), CompiledStep()
    monkeypatch.setattr(compiled, "_backend", lambda *_: 1 / 0)
    if not stays:
        monkeypatch.setattr("rrgpolicy.rollout.cache.IGNORED", set())
    request = request_of(policy, "qwen2")
    with pytest.warns(UserWarning, match="a step of decoding cannot be compiled"):
        both = generate(policy, request), generate(policy, request, compiled)
    plain, own = ([r.ids.tolist() for group in groups for r in group] for groups in both)
    assert own == plain and not compiled.on
