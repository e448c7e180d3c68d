"""`RRGTrainer` beside TRL's trainer, where all is off, and beside ours, where all is on."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

from bench.ports import free_port
from rrgdata.study import ImageRef, Study
from rrgtrain.algorithms import Group, Member, build_algorithm
from rrgtrain.config import load_config
from rrgtrain.errors import UserError
from rrgtrain.integrations import trl as integration
from rrgtrain.integrations.trl_alarm import SamplerAlarm
from rrgtrain.policy.load import load_policy
from rrgtrain.policy.policy import Policy
from rrgtrain.policy.prompt import encode_prompt, prompt_text
from rrgtrain.policy.tiny import TinyConfig, build_tiny
from rrgtrain.rewards import RewardService
from rrgtrain.schema import Recipe
from rrgtrain.train import Batch, accumulate_gradients
from rrgtrain.train.reference import reference_of
from tests.parity.padded import peer

peer("trl")

REFERENCES = [
    "Small left pleural effusion. The heart is enlarged.",
    "No pneumothorax. Edema is present.",
]
SAMPLED = [
    "Small right pleural effusion. Pneumothorax.",
    "The heart is enlarged. No edema.",
    "Edema is present. Small left pleural effusion.",
    "No pneumothorax. The heart is enlarged. Pneumonia.",
    "Pneumothorax is present.",
    "Edema is present. No pneumothorax.",
]
GROUP, LENGTH = 6, 48
ALL = "editgrpo+ditpo+orapo"


def recipe(*more: str) -> Recipe:
    base = [f"rl.algorithm={ALL}", f"rl.group={GROUP}", "rl.beta=0.02", "token_weights.kind=tfidf"]
    base += ["reward.terms={label_f1: 1.0}", f"rl.max_new_tokens={LENGTH}", "rl.std=none"]
    return load_config(Recipe, None, [*base, "rl.aggregation=dr_grpo", *more])


def pictures() -> list[Image.Image]:
    drawn = np.random.default_rng(0).integers(0, 255, (2, 56, 56, 3), dtype=np.uint8)
    return [Image.fromarray(picture) for picture in drawn]


def studies() -> list[Study]:
    view = (ImageRef(Path("frontal.png"), "frontal"),)
    return [Study(f"s{b}", "train", REFERENCES[b], None, view) for b in range(2)]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    texts = [prompt_text(studies()[0], style="short"), *REFERENCES, *SAMPLED] * 3
    return build_tiny(TinyConfig(image_size=56), texts, tmp_path_factory.mktemp("policy"))


def wakened(model: torch.nn.Module) -> None:
    """At initialisation attention is nearly uniform, and a wrong mask would hardly show."""
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.dim() > 1 and "embed_tokens" not in name:
                weight.mul_(2.0)


def qwen2_5_vl(place: Path, dtype: torch.dtype) -> tuple[Any, Any]:
    from transformers import (
        AutoTokenizer,
        Qwen2_5_VLForConditionalGeneration,
        Qwen2_5_VLProcessor,
        Qwen2VLImageProcessorPil,
        Qwen2VLVideoProcessor,
    )

    tokenizer = AutoTokenizer.from_pretrained(place)
    processor = Qwen2_5_VLProcessor(
        image_processor=Qwen2VLImageProcessorPil.from_pretrained(place),
        tokenizer=tokenizer,
        video_processor=Qwen2VLVideoProcessor(),
        chat_template=tokenizer.chat_template,
    )
    model = Qwen2_5_VLForConditionalGeneration.from_pretrained(
        place, dtype=dtype, attn_implementation="sdpa"
    )
    return model, processor


def qwen3_vl(place: Path, dtype: torch.dtype) -> tuple[Any, Any]:
    from transformers import (
        AutoConfig,
        AutoTokenizer,
        Qwen2VLImageProcessorPil,
        Qwen3VLConfig,
        Qwen3VLForConditionalGeneration,
        Qwen3VLProcessor,
        Qwen3VLVideoProcessor,
    )

    tokenizer, like = AutoTokenizer.from_pretrained(place), AutoConfig.from_pretrained(place)
    images = Qwen2VLImageProcessorPil.from_pretrained(place)
    ids = ("image_token_id", "video_token_id", "vision_start_token_id", "vision_end_token_id")
    eyes = {"patch_size": images.patch_size, "spatial_merge_size": images.merge_size}
    eyes |= {"temporal_patch_size": images.temporal_patch_size, **sizes(2), "out_hidden_size": 32}
    eyes |= {"num_heads": 2, "num_position_embeddings": 64, "deepstack_visual_indexes": [0, 1]}
    rope = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 1, 1]}
    text = sizes(2) | {"vocab_size": like.get_text_config().vocab_size, "head_dim": 8}
    text |= {"rope_parameters": {**rope, "mrope_interleaved": True}, **HEADS}
    config = Qwen3VLConfig(
        text_config=text, vision_config=eyes, **{name: getattr(like, name) for name in ids}
    )
    processor = Qwen3VLProcessor(
        image_processor=images,
        tokenizer=tokenizer,
        video_processor=Qwen3VLVideoProcessor(),
        chat_template=tokenizer.chat_template,
    )
    return Qwen3VLForConditionalGeneration(config).to(dtype), processor


def gemma3(place: Path, dtype: torch.dtype) -> tuple[Any, Any]:
    from transformers import (
        AutoConfig,
        AutoTokenizer,
        Gemma3Config,
        Gemma3ForConditionalGeneration,
        Gemma3ImageProcessor,
        Gemma3Processor,
    )

    named = {"boi_token": "<|vision_start|>", "eoi_token": "<|vision_end|>"}
    named["image_token"] = "<|image_pad|>"
    tokenizer = AutoTokenizer.from_pretrained(place, extra_special_tokens=named)
    like = AutoConfig.from_pretrained(place)
    of_ids = {name: tokenizer.convert_tokens_to_ids(token) for name, token in named.items()}
    text = sizes(4) | {"vocab_size": like.get_text_config().vocab_size, "head_dim": 8}
    text |= {"layer_types": ["sliding_attention", "full_attention"] * 2, "sliding_window": 24}
    config = Gemma3Config(
        text_config=text | HEADS | {"query_pre_attn_scalar": 8},
        vision_config=sizes(2) | {"image_size": 28, "patch_size": 7, "num_attention_heads": 2},
        mm_tokens_per_image=4,
        image_token_index=of_ids["image_token"],
        boi_token_index=of_ids["boi_token"],
        eoi_token_index=of_ids["eoi_token"],
    )
    processor = Gemma3Processor(
        image_processor=Gemma3ImageProcessor(size={"height": 28, "width": 28}),
        tokenizer=tokenizer,
        chat_template=TEMPLATE,
        image_seq_length=4,
    )
    return Gemma3ForConditionalGeneration(config).to(dtype), processor


HEADS = {"num_attention_heads": 4, "num_key_value_heads": 2}
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{% for c in m.content %}"
    "{% if c.type == 'image' %}<|vision_start|>{% else %}{{ c.text }}{% endif %}{% endfor %}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def sizes(layers: int) -> dict[str, int]:
    return {
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": layers,
        "depth": layers,
    }


def trainer_of(
    kind: Any,
    place: Path,
    out: Path,
    dtype: torch.dtype = torch.float64,
    build: Callable[[Path, torch.dtype], tuple[Any, Any]] = qwen2_5_vl,
    **more: Any,
) -> Any:
    """A trainer of two studies, whose sampler gives the fixed reports."""
    from datasets import Dataset
    from trl import GRPOConfig

    model, processor = build(place, dtype)
    turn = [{"role": "user", "content": prompt_text(studies()[0], style="short")}]
    data = Dataset.from_list(
        [
            {"prompt": turn, "image": image, "report": text, "id": f"s{b}"}
            for b, (image, text) in enumerate(zip(pictures(), REFERENCES, strict=True))
        ]
    )
    arguments: dict[str, Any] = {
        "output_dir": str(out),
        "per_device_train_batch_size": 2 * GROUP,
        "num_generations": GROUP,
        "max_completion_length": LENGTH,
        "temperature": 1.0,
        "beta": 0.02,
        "loss_type": "dr_grpo",
        "scale_rewards": "none",
        "use_bias_correction_kl": False,
        "learning_rate": 1e-2,
        "gradient_checkpointing": False,
        "bf16": False,
        "use_cpu": True,
        "report_to": [],
        "shuffle_dataset": False,
        "disable_tqdm": True,
        "max_steps": 2,
        "save_strategy": "no",
        "logging_steps": 1,
    }
    made = kind(
        model=model,
        args=GRPOConfig(**(arguments | more.pop("arguments", {}))),
        train_dataset=data,
        processing_class=processor,
        **more,
    )
    return made


def fixed(trainer: Any, policy: Policy, logps: Callable[..., Any] = lambda *_: None) -> None:
    """Let the trainer's sampler give SAMPLED, and log-probs by `logps`."""

    def single_turn(prompt_ids: list[Any], *rest: Any, **named: Any) -> Any:
        count = len(prompt_ids) // 2
        texts = [SAMPLED[(3 * b + k) % 6] for b in range(2) for k in range(count)]
        ids = [policy.codec.encode(text).tolist() for text in texts]
        return ids, logps(prompt_ids, ids)

    trainer._generate_single_turn = single_turn


def backward(trainer: Any) -> tuple[float, dict[str, torch.Tensor]]:
    """Loss and gradients of one batch, one step of the optimiser."""
    model = trainer.model
    model.train()
    model.zero_grad()
    trainer.current_gradient_accumulation_steps = 1
    batch = next(iter(trainer.get_train_dataloader()))
    torch.manual_seed(0)
    loss = trainer.compute_loss(model, trainer._prepare_inputs(batch))
    loss.backward()
    gradients = {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}
    return float(loss.detach()), gradients


def words(completions: list[Any], **_: Any) -> list[float]:
    return [len(c[0]["content"]) / 8 for c in completions]


def test_with_all_off_it_is_trls_to_the_last_bit(place: Path, tmp_path: Path) -> None:
    from trl import GRPOTrainer

    policy, outcomes = load_policy(place), []
    off = integration.RRGTrainer, {"extras": extras(share=False, alarm=False)}
    for kind, more in ((GRPOTrainer, {}), off):
        made = trainer_of(kind, place, tmp_path, torch.float32, reward_funcs=words, **more)
        fixed(made, policy)
        outcomes.append(backward(made))
        made.train()
        outcomes[-1] += ([p.detach().clone() for p in made.model.parameters()],)
    (loss, gradients, weights), (own, ours, trained) = outcomes
    assert own == loss and ours.keys() == gradients.keys()
    assert all(torch.equal(ours[name], gradients[name]) for name in gradients)
    assert all(torch.equal(a, b) for a, b in zip(weights, trained, strict=True))


def extras(**named: Any) -> Any:
    from rrgtrain.integrations.trl_steps import Extras

    return Extras(**named)


def ours(place: Path, cfg: Recipe, change: Callable[[Any], None]) -> tuple[float, dict]:
    """The same step by our trainer."""
    policy = load_policy(place, dtype=torch.float64)
    policy.model.train()
    change(policy.model)
    reference = reference_of(policy)
    algorithm, service = build_algorithm(cfg), RewardService(cfg.reward)
    groups = []
    for b, (study, image) in enumerate(zip(studies(), pictures(), strict=True)):
        prompt = encode_prompt(policy, study, [image], style="short")
        texts = [SAMPLED[(3 * b + k) % 6] for k in range(algorithm.sampled)]
        drawn = tuple(Member(policy.codec.encode(text), text) for text in texts)
        groups.append(Group(b, study, prompt, drawn))
    groups, _ = algorithm.complete(groups, 0, policy.codec.reencode_from)
    every = [(g, m) for g in groups for m in g.members]
    scored = [(g, m) for g, m in every if m.scored]
    total = service([m.text for _, m in scored], [g.study for g, _ in scored])["total"]
    rewards = torch.full((len(every),), torch.nan, dtype=torch.float64)
    rewards[[m.scored for _, m in every]] = torch.tensor(total).float().double()
    assert any(m.origin == "edited" for _, m in every)
    assert any(m.origin == "oracle" for _, m in every) == ("orapo" in cfg.rl.algorithm)
    batch = Batch.of(groups, algorithm.advantages(groups, rewards), cfg.rl)
    work = policy, reference, batch, algorithm.loss, cfg.rl
    loss = accumulate_gradients(*work).read().loss
    named = policy.backbone.named_parameters()
    return loss, {n: p.grad for n, p in named if p.grad is not None}


CASES = [
    ([], {}),
    (["oracle.loss=sft", "rl.aggregation=grpo"], {"loss_type": "grpo"}),
    (["rl.aggregation=dapo", "rl.std=sample"], {"loss_type": "dapo", "scale_rewards": "group"}),
    (["rl.algorithm=editgrpo"], {}),
]


@pytest.mark.parametrize(("settings", "arguments"), CASES, ids=str)
def test_with_all_on_a_step_is_ours(
    settings: list[str], arguments: dict[str, Any], place: Path, tmp_path: Path
) -> None:
    cfg = recipe(*settings)
    loss, gradients = ours(place, cfg, wakened)
    for share in (True, False):
        made = trainer_of(
            integration.RRGTrainer,
            place,
            tmp_path,
            arguments=arguments,
            extras=extras(recipe=cfg, share=share),
        )
        wakened(made.model)
        wakened(made.ref_model)
        fixed(made, load_policy(place))
        own, grads = backward(made)
        assert own == pytest.approx(loss, rel=1e-6)
        assert grads.keys() == gradients.keys()
        for name, gradient in gradients.items():
            assert (grads[name] - gradient).norm() <= 1e-6 * gradient.norm() + 1e-12, name


def two_ranks(rank: int, port: int, place: str, out: str, mode: str) -> None:
    """What a rank does: one group of the two, a step of RRGTrainer."""
    from accelerate.state import AcceleratorState, GradientState, PartialState

    for state in (AcceleratorState, GradientState, PartialState):
        state._reset_state()
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2"}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    torch.set_num_threads(1)
    made = stepped(Path(place), Path(out), GROUP, mode)
    weights = {n: full(p).detach().cpu() for n, p in made.model.named_parameters()}
    torch.save(weights, f"{out}/{mode}{rank}.pt")


def full(parameter: torch.Tensor) -> torch.Tensor:
    return parameter.full_tensor() if isinstance(parameter, DTensor) else parameter


def stepped(place: Path, out: Path, rows: int, mode: str = "ddp") -> Any:
    """A trainer with all on after one step of plain SGD, `rows` completions a process."""
    sgd = {"optim": "sgd", "max_grad_norm": 0.0, "max_steps": 1}
    sgd |= {"per_device_train_batch_size": rows, "learning_rate": 0.1}
    if rows == GROUP:
        sgd["ddp_backend"] = "gloo"
    made = trainer_of(
        integration.RRGTrainer,
        place,
        out,
        arguments=sgd | {"lr_scheduler_type": "constant"},
        extras=extras(recipe=recipe("oracle.loss=sft"), alarm=False),
        reward_funcs=of_letters,
    )
    wakened(made.model)
    wakened(made.ref_model)
    single = load_policy(place)

    def single_turn(prompt_ids: list[Any], *rest: Any, **named: Any) -> Any:
        first = made.accelerator.process_index * len(prompt_ids) // (GROUP // 2)
        drawn = range(len(prompt_ids))
        texts = [SAMPLED[(3 * (first + r // (GROUP // 2)) + r % (GROUP // 2)) % 6] for r in drawn]
        return [single.codec.encode(text).tolist() for text in texts], None

    made._generate_single_turn = single_turn
    if mode == "fsdp2":
        made._probe()
        for layer in made.model.model.language_model.layers:
            fully_shard(layer)
        for model in (made.model, made.ref_model):
            fully_shard(model)
        backward(made)
        with torch.no_grad():
            for parameter in made.model.parameters():
                if parameter.grad is not None:
                    parameter -= 0.1 * parameter.grad
    else:
        made.train()
    return made


def of_letters(completions: list[Any], **_: Any) -> list[float]:
    return [sum(map(ord, c[0]["content"])) % 64 / 8 for c in completions]


@pytest.mark.parametrize("mode", ["ddp", "fsdp2"])
def test_two_ranks_are_one(mode: str, place: Path, tmp_path: Path) -> None:
    alone = {n: p.detach() for n, p in stepped(place, tmp_path, 2 * GROUP).model.named_parameters()}
    arguments = (free_port(), str(place), str(tmp_path), mode)
    torch.multiprocessing.start_processes(two_ranks, arguments, nprocs=2, start_method="fork")
    for rank in range(2):
        for name, weight in torch.load(tmp_path / f"{mode}{rank}.pt").items():
            assert (weight - alone[name]).abs().max() <= 1e-8, name


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
        model = copy.deepcopy(made.model) if fault == "step 0" else made.model
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
        ({"beta": 0.0}, (), "TRL keeps none at beta=0"),
        ({"per_device_train_batch_size": 3, "steps_per_generation": 4}, (), None),
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
    monkeypatch.setattr("importlib.metadata.version", lambda _: "1.17.0")
    with pytest.raises(UserError, match=r"this is TRL 1\.17\.0; .* tested with TRL >=1\.16,<1\.17"):
        integration.refuse_untested()


@pytest.mark.parametrize("build", [qwen2_5_vl, qwen3_vl, gemma3])
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
