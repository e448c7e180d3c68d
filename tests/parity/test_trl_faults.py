"""Planted faults of the sampler in TRL's trainer and ours; bad input; other families."""

from __future__ import annotations

import copy
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rrgpolicy.model.load import load_policy
from rrgtrain.errors import UserError
from rrgtrain.integrations import trl as integration
from rrgtrain.integrations.trl_alarm import SamplerAlarm
from tests.parity.padded import peer
from tests.parity.trl_tiny import (
    HEADS,
    SAMPLED,
    backward,
    extras,
    fixed,
    gemma3,
    of_letters,
    qwen2_5_vl,
    recipe,
    trainer_of,
    wakened,
)

peer("trl")


@dataclass
class Sampler:
    """Log-probs of the fixed reports by a model, with one fault."""

    model: Any
    processor: Any
    fault: str = ""

    @torch.no_grad()
    def __call__(self, prompt_ids: list[list[int]], ids: list[list[int]], images: Any) -> list:
        self.model.eval()
        base = self.model.disable_adapter() if self.fault == "adapter" else nullcontext()
        with base:
            rows = zip(prompt_ids, ids, images, strict=True)
            out = [self._of(prompt, own, picture[0]) for prompt, own, picture in rows]
        self.model.train()
        return out

    def _of(self, prompt: list[int], own: list[int], picture: Any) -> list[float]:
        tokenizer = self.processor.tokenizer
        seeing = {**self.processor.image_processor(images=picture, return_tensors="pt")}
        image = tokenizer.convert_tokens_to_ids("<|image_pad|>")
        shown = [image, *tokenizer.convert_tokens_to_ids(["<|vision_start|>", "<|vision_end|>"])]
        if self.fault == "images":
            prompt, seeing = [i for i in prompt if i not in shown], {}
        if self.fault == "template":
            special = {*tokenizer.added_tokens_decoder} - {*shown}
            prompt = [i for i in prompt if i not in special]
        whole = torch.tensor([prompt + own])
        if seeing:
            seeing["mm_token_type_ids"] = (whole == image).long()
        logits = self.model(input_ids=whole, **seeing).logits[0, -len(own) - 1 : -1]
        logits = logits / (0.7 if self.fault == "temperature" else 1.0)
        chosen = torch.tensor(own)[:, None]
        return logits.log_softmax(-1).gather(-1, chosen)[:, 0].tolist()


@pytest.mark.parametrize("kind", ["RRGTrainer", "GRPOTrainer"])
def test_a_planted_fault_of_each_kind_stops_and_is_named(
    kind: str, place: Path, tmp_path: Path
) -> None:
    import trl
    from peft import LoraConfig

    causes = {
        "adapter": "an adapter that the sampler has lost",
        "images": "images that the sampler does not see",
        "temperature": "another temperature: at (0.69|0.7)",
        "template": "another chat template in the sampler",
        "step 0": "weights of step 0 in the sampler",
        "": "",
    }
    policy = load_policy(place)
    if kind == "GRPOTrainer":  # the callback, which asks what RRGTrainer asks
        causes = {fault: causes[fault] for fault in ("images", "step 0", "")}
    for fault, cause in causes.items():
        more: dict[str, Any] = {}
        if fault == "adapter":
            lora = LoraConfig(r=4, target_modules=["q_proj", "v_proj", "o_proj", "up_proj"])
            more = {"peft_config": lora}
        own = getattr(integration if kind == "RRGTrainer" else trl, kind)
        made = trainer_of(own, place, tmp_path, torch.float32, reward_funcs=of_letters, **more)
        wakened(made.model)
        if fault != "adapter":
            wakened(made.ref_model)
        if kind == "GRPOTrainer":
            made.add_callback(SamplerAlarm(made))
        model = made.model
        if fault == "step 0":  # a deep copy would keep forwards that are bound to the trained one
            model = load_policy(place).model
            model.load_state_dict(copy.deepcopy(made.model.state_dict()))
        sampler = Sampler(model, made.processing_class, fault)

        def turn(prompt_ids: Any, images: Any, *_: Any, by: Sampler = sampler) -> Any:
            ids = [policy.codec.encode(SAMPLED[r % 6]).tolist() for r in range(len(prompt_ids))]
            return ids, by(prompt_ids, ids, images)

        made._generate_single_turn = turn
        before = [p.detach().clone() for p in made.model.parameters()]
        if not fault:
            made.train()
            logged = [row for row in made.state.log_history if "sampler/gap_mean" in row]
            assert len(logged) == 2 and all(row["sampler/gap_mean"] < 1e-4 for row in logged)
            continue
        with pytest.raises(UserError, match=f"differ by .* nats a token .*; likely {cause}") as it:
            made.train()
        steps = int(fault in ("step 0", "adapter"))  # a new adapter is 0
        assert made.state.global_step == steps and "\n" not in str(it.value), fault
        same = all(torch.equal(a, b) for a, b in zip(before, made.model.parameters(), strict=True))
        assert same != bool(steps), fault


def test_bad_input_is_one_line(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cases = [
        ({"loss_type": "sapo"}, (), "loss_type=sapo; use one of grpo, dr_grpo"),
        ({"scale_rewards": "batch"}, (), "scale_rewards=batch; use none or group"),
        ({"mask_truncated_completions": True}, (), "mask_truncated_completions"),
        (
            {"multi_objective_aggregation": "normalize_then_sum"},
            (),
            "multi_objective_aggregation=normalize_then_sum; use sum_then_normalize, or no",
        ),
        ({}, ("rl.combine=gdpo", "rl.std=sample"), "rl.combine=gdpo; use TRL's multi_objective_"),
        ({}, ("rl.top_entropy_quantile=0.5",), "rl.top_entropy_quantile; use TRL's"),
        ({"loss_type": "cispo"}, (), r"cispo with epsilon_high=0\.2; use 1 or more"),
        ({"delta": 1.1}, (), r"delta=1\.1; use more than 1 \+ epsilon_high"),
        ({"beta": 0.0}, (), "TRL keeps none at beta=0"),
        ({"per_device_train_batch_size": 3, "steps_per_generation": 4}, (), None),
        ({}, ("edit.keep=not_worse",), "edit.keep=not_worse leaves members out"),
        ({"num_generations": 3, "per_device_train_batch_size": 6}, (), "rl.group=3 is odd"),
    ]
    for arguments, settings, line in cases:
        with pytest.raises(UserError, match=line) if line else nullcontext():
            made = trainer_of(
                integration.RRGTrainer,
                place,
                tmp_path,
                arguments=arguments,
                extras=extras(recipe=recipe(*settings)),
            )
    fixed(made, load_policy(place))
    rows = next(iter(made.get_train_dataloader()))
    made.model.train()
    with pytest.raises(UserError, match="process 0 has 12 completions that are not whole groups"):
        made._generate_and_score_completions(rows[1:] + rows[:1])
    # a group is told by prompt, id and reference: NaN is not NaN, and an array has no truth
    odd = [{**row, "age": float("nan"), "scores": np.arange(2)} for row in rows]
    made._generate_and_score_completions([{**row, "id": np.float64("nan")} for row in odd])
    with pytest.raises(UserError, match="row 1 of the data set: 'report' is NoneType"):
        with_report(made, None)
    monkeypatch.setattr("importlib.metadata.version", lambda _: "1.17.0")
    with pytest.raises(UserError, match=r"this is TRL 1\.17\.0; .* tested with TRL >=1\.16,<1\.17"):
        integration.refuse_untested()


def test_the_auxiliary_loss_of_experts_is_not_lost(place: Path, tmp_path: Path) -> None:
    from datasets import Dataset
    from transformers import AutoTokenizer, Qwen3MoeConfig, Qwen3MoeForCausalLM
    from trl import GRPOConfig, GRPOTrainer

    tokenizer = AutoTokenizer.from_pretrained(place)
    experts = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
    experts |= {"head_dim": 8, "hidden_size": 32}
    config = Qwen3MoeConfig(vocab_size=len(tokenizer), num_hidden_layers=1, **experts, **HEADS)
    rows = [{"prompt": "frontal", "report": "No edema."}] * 2

    def made(kind: Any, coefficient: float, **more: Any) -> Any:
        settings = {"num_generations": 2, "router_aux_loss_coef": coefficient, "bf16": False}
        settings |= {"per_device_train_batch_size": 2, "use_cpu": True, "beta": 0.0}
        return kind(
            Qwen3MoeForCausalLM(config),
            args=GRPOConfig(str(tmp_path), report_to=[], max_completion_length=4, **settings),
            train_dataset=Dataset.from_list(rows),
            processing_class=tokenizer,
            reward_funcs=lambda completions, **_: [float(len(c)) for c in completions],
            **more,
        )

    grpo = extras(recipe=recipe("rl.algorithm=grpo"), share=False)
    with pytest.raises(UserError, match="router_aux_loss_coef, the loss of experts; use 0"):
        made(integration.RRGTrainer, 0.1, extras=grpo)
    with pytest.raises(UserError, match="use router_aux_loss_coef=0"):
        backward(made(integration.RRGTrainer, 0.1, extras=extras()))
    backward(made(integration.RRGTrainer, 0.1, extras=extras(share=False)))
    backward(made(integration.RRGTrainer, 0.0, extras=extras()))
    mixed = type("Mixed", (integration.SharedPrefix, GRPOTrainer), {})
    with pytest.raises(UserError, match="use router_aux_loss_coef=0"):
        backward(made(mixed, 0.1))


def with_report(made: Any, report: str | None) -> None:
    """Build the trainer's algorithm again, the second study's report another."""
    reports = [made.train_dataset[0]["report"], report]
    data = made.train_dataset.remove_columns("report")
    made.train_dataset = data.add_column("report", reports)
    made._build()


def test_a_cut_distribution_is_not_compared_and_trains(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = trainer_of(
        integration.RRGTrainer,
        place,
        tmp_path,
        torch.float32,
        reward_funcs=of_letters,
        arguments={"top_k": 20},
    )
    # log-probs as vLLM gives them to TRL: of the twenty that were left
    fixed(made, load_policy(place), lambda _, ids: [[-0.5] * len(own) for own in ids])
    made.train()
    assert made.state.global_step == 2
    assert capsys.readouterr().err.count("are not compared: top_k=20 changes the sampler's") == 1


def test_gemma_trains_where_all_reports_of_a_group_are_cut_off(place: Path, tmp_path: Path) -> None:
    made = trainer_of(
        integration.RRGTrainer,
        place,
        tmp_path,
        build=gemma3,
        reward_funcs=of_letters,
        arguments={"beta": 0.0, "mask_truncated_completions": True},
    )
    policy = load_policy(place)
    ends = made.eos_token_ids

    def turn(prompt_ids: Any, *_: Any) -> Any:
        ids = [policy.codec.encode(SAMPLED[r % 6]).tolist() for r in range(len(prompt_ids))]
        half = len(ids) // 2
        return [[i for i in own if r < half or i not in ends] for r, own in enumerate(ids)], None

    made._generate_single_turn = turn
    made.train()
    assert made.state.global_step == 2


@pytest.mark.parametrize("build", [qwen2_5_vl, gemma3])
def test_families_are_trained_for_real(build: Any, place: Path, tmp_path: Path) -> None:
    torch.manual_seed(0)
    made = trainer_of(
        integration.RRGTrainer,
        place,
        tmp_path,
        torch.float32,
        build,
        arguments={"beta": 0.0, "max_completion_length": 12},
        extras=extras(recipe=recipe("rl.algorithm=editgrpo")),
        reward_funcs=of_letters,
    )
    wakened(made.model)
    batch = next(iter(made.get_train_dataloader()))
    made.model.train()
    made.current_gradient_accumulation_steps = 1
    inputs = made._prepare_inputs(batch)
    ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], 1)
    mask = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], 1)
    names = ("pixel_values", "image_grid_thw", "num_images", "token_type_ids", "mm_token_type_ids")
    options = {name: inputs[name] for name in names if name in inputs}
    outcomes = []
    for share in (True, False):
        made.extras = extras(share=share)
        keep = inputs["completion_ids"].shape[1]
        logps, *_ = made._get_per_token_logps_and_entropies(made.model, ids, mask, keep, **options)
        logps = logps * inputs["completion_mask"]
        outcomes.append(
            (
                logps.detach(),
                torch.autograd.grad(
                    logps.square().sum(),
                    *[[p for p in made.model.parameters() if p.requires_grad]],
                    allow_unused=True,
                ),
            )
        )
    (ours, slopes), (theirs, wanted) = outcomes
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-4)
    for slope, own in zip(slopes, wanted, strict=True):
        assert (slope is None) == (own is None)
        if slope is not None:
            assert (slope - own).norm() <= 1e-3 * own.norm() + 1e-6
    made._step, made._buffered_inputs = 0, None
    before = [p.detach().clone() for p in made.model.parameters()]
    made.train()
    assert any(not torch.equal(a, b) for a, b in zip(before, made.model.parameters(), strict=True))
    assert all(
        np.isfinite(row["grad_norm"]) for row in made.state.log_history if "grad_norm" in row
    )
