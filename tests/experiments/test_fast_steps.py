"""Merged products and compiled steps write what plain steps write."""

from __future__ import annotations

import copy
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file

from experiments.fast_steps import CompiledStep, FastEngine, FastLoop
from rrgpolicy.rollout import SamplingRequest, TransformersEngine
from tests.rrgpolicy.model.families import prompt
from tests.rrgpolicy.rollout.test_any_family import policy_of, request_of

# of linear attention; of attention and MLP behind one norm; beside experts; with an adapter
MERGED = [
    ("qwen3_5", [4, 2, 3, 2] * 2, None),
    ("cohere2", [5] * 4, None),
    ("qwen3_vl_moe", [3] * 4, None),
    ("llava", [6, 4] * 4, r".*language_model.*(q_proj|k_proj|v_proj|gate_proj|up_proj)"),
]


def written(folder: Path, sizes: list[int], name: str, adapter: str | None) -> tuple[Any, Any]:
    """Decode with products of one input merged; the log-probs, and what is saved meanwhile."""
    policy = policy_of(name)
    if adapter:
        torch.manual_seed(0)
        layers = LoraConfig(r=2, target_modules=adapter, init_lora_weights=False)
        policy.model = get_peft_model(policy.model, layers).eval()
    model: Any = policy.model
    before = dict(model.named_parameters())

    class Saving(FastLoop):
        def _step(self, token: torch.Tensor) -> torch.Tensor:
            if not folder.exists():
                places = Counter(p.untyped_storage().data_ptr() for p in before.values())
                assert sorted(n for n in places.values() if n > 1) == sorted(sizes)
                next(p for k, p in before.items() if "k_proj" in k).mul_(1.5)  # acts at once
                model.save_pretrained(folder)
            return super()._step(token)

    with torch.no_grad():
        loop = Saving(policy, request_of(policy, name))
        loop.one_input = loop.one_input if sizes else []
        loop.run()
    assert all(p is before[k] for k, p in model.named_parameters())
    assert len({p.untyped_storage().data_ptr() for p in before.values()}) == len(before)
    return loop.logps, load_file(next(folder.glob("*.safetensors")))


@pytest.mark.parametrize(("name", "sizes", "adapter"), MERGED)
def test_products_of_one_input_are_one_while_tokens_are_decoded(
    tmp_path, name, sizes, adapter
) -> None:
    (apart, plain), (together, merged) = (
        written(tmp_path / str(len(own)), own, name, adapter) for own in ([], sizes)
    )
    torch.testing.assert_close(together, apart, rtol=0, atol=2e-5)
    torch.testing.assert_close(merged, plain, rtol=0, atol=0)


def test_a_step_is_compiled_once_for_all_sizes_and_fresh_copies(monkeypatch) -> None:
    policy, compiled = policy_of("qwen2", num_hidden_layers=1), CompiledStep()
    plain, fast = TransformersEngine(), FastEngine(compiles=True)
    fast.compiled = compiled

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
        pairs = zip(*(e.generate(policy, request) for e in (plain, fast)), strict=True)
        for left, right in ((a, b) for pair in pairs for a, b in zip(*pair, strict=True)):
            assert torch.equal(left.ids, right.ids)
            torch.testing.assert_close(left.logps, right.logps, rtol=0, atol=2e-5)
    assert compiled.compilations == 1 and compiled.seconds > 0


def test_a_step_that_cannot_be_compiled_runs_as_it_is_and_says_so(monkeypatch) -> None:
    def broken(*_: Any) -> None:
        raise RuntimeError("no C++ compiler")

    policy, compiled = policy_of("qwen2"), CompiledStep()
    monkeypatch.setattr(compiled, "_backend", broken)
    request = request_of(policy, "qwen2")
    with torch.no_grad():
        plain, loop = FastLoop(policy, request), FastLoop(policy, request, compiled)
        with pytest.warns(UserWarning, match="a step of decoding cannot be compiled"):
            both = zip(plain.run(), loop.run(), strict=True)
    pairs = [pair for own, other in both for pair in zip(own, other, strict=True)]
    assert all(torch.equal(one.ids, two.ids) for one, two in pairs)
    assert not compiled.on
