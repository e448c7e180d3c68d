"""A reinforcement-learning step of the same groups: TRL's GRPOTrainer and this trainer.

    make bench ROOM=step                                      # in the environment of the peers
    python -m bench.update_step --groups 2 --members 10 --length 64 --rounds 5

Both train the same Qwen2.5-VL (random weights; tiny on a CPU, the 3B configuration with --size 3b
on a GPU) on the same images, completions and rewards with Dr. GRPO's loss and a KL to a frozen
reference. First losses and gradients are compared, and nothing is timed if they differ. Then:

- update: reference log-probabilities, loss, backward and the optimiser's step; by TRL's
  trainer also with `rrgtrain.integrations.trl.SharedPrefix`;
- generation: `generate` of transformers with num_return_sequences, and ours;
- step: generation and update together, as each trainer runs them;
- peak memory of the update, above what was allocated before it.

`--sweep` repeats the update over group sizes and prompt lengths. On a CPU only ratios are kept:
`update_time` and `update_time_trl` are in units of our own update in the first case of the run.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from types import MethodType
from typing import Any

import numpy as np
import torch
from PIL import Image

from bench import rows, timing
from rrgdata.study import ImageRef, Study
from rrgkern import PolicyLoss, group_advantages
from rrgpolicy.model.load import load_policy
from rrgpolicy.model.policy import Policy
from rrgpolicy.model.prompt import encode_prompt, prompt_text
from rrgpolicy.model.tiny import build_tiny
from rrgpolicy.rollout import SamplingRequest, generate
from rrgpolicy.settings import PolicySettings
from rrgtrain.algorithms.group import Group, Member, group_offsets
from rrgtrain.integrations.trl import SharedPrefix
from rrgtrain.plan import KNOWN
from rrgtrain.schema import RlSettings
from rrgtrain.train import Batch, accumulate_gradients
from rrgtrain.train.optim import adamw, apply_step, clip_gradients
from rrgtrain.train.reference import Reference, reference_of

BETA, LR, CLIP = 0.01, 1e-5, 1.0


@dataclass(frozen=True)
class Case:
    """groups of members, each of `length` tokens, about one square image of `pixels` a side."""

    groups: int
    members: int
    length: int
    pixels: int


class Ours:
    """This trainer: each prompt once, its members behind it."""

    def __init__(self, checkpoint: Path, case: Case, device: str, dtype: torch.dtype) -> None:
        self.case = case
        self.policy: Policy = load_policy(checkpoint, device=device, dtype=dtype)
        self.policy.model.train()
        self.reference: Reference = reference_of(self.policy)
        self.optimizer = adamw(self.policy.model, LR, 0.0)
        self.settings = RlSettings(
            group=case.members,
            beta=BETA,
            max_new_tokens=case.length,
            token_budget=case.groups * (case.members * case.length + 4096),
        )
        self.prompts = [
            encode_prompt(self.policy, study, [image], style="short")
            for study, image in zip(studies(case), images(case), strict=True)
        ]
        self.groups = self.group(completions(self.policy, case))

    def group(self, ids: list[list[torch.Tensor]]) -> list[Group]:
        return [
            Group(b, study, prompt, tuple(Member(i, "") for i in own))
            for b, (study, prompt, own) in enumerate(
                zip(studies(self.case), self.prompts, ids, strict=True)
            )
        ]

    def loss(self) -> float:
        """Gradients of the fixed groups; the loss."""
        self.optimizer.zero_grad(set_to_none=True)
        return self._accumulate(self.groups)

    def update(self, groups: list[Group] | None = None) -> None:
        self._accumulate(groups or self.groups)
        apply_step(self.optimizer, clip_gradients(self.policy.model.parameters(), CLIP), LR)

    def generate(self) -> list[list[torch.Tensor]]:
        case = self.case
        seeds = [[b * case.members + m for m in range(case.members)] for b in range(case.groups)]
        request = SamplingRequest(
            self.prompts, group=self.case.members, max_new_tokens=self.case.length, seeds=seeds
        )
        rollouts = generate(self.policy, request)
        return [[r.ids for r in group] for group in rollouts]

    def step(self) -> None:
        self.update(self.group(self.generate()))

    def gradients(self) -> dict[str, torch.Tensor]:
        named = self.policy.backbone.named_parameters()
        return {n: p.grad.float() for n, p in named if p.grad is not None}

    def _accumulate(self, groups: list[Group]) -> float:
        rewards = torch.tensor(scores(self.case)).flatten()
        batch = Batch.of(groups, group_advantages(rewards, group_offsets(groups)), self.settings)
        work = self.policy, self.reference, batch, PolicyLoss(beta=BETA), self.settings
        return accumulate_gradients(*work).read().loss


class Theirs:
    """TRL's GRPOTrainer, its completions replaced by the given ones where the update is timed."""

    def __init__(self, checkpoint: Path, case: Case, device: str, dtype: torch.dtype) -> None:
        from datasets import Dataset
        from transformers import (
            AutoTokenizer,
            Qwen2_5_VLForConditionalGeneration,
            Qwen2_5_VLProcessor,
            Qwen2VLImageProcessorPil,
            Qwen2VLVideoProcessor,
        )
        from trl import GRPOConfig, GRPOTrainer

        bench = self
        self.case = case
        self.fixed: list[list[int]] | None = None
        self.seen_prompts: list[list[int]] = []

        class Trainer(GRPOTrainer):
            def _generate_single_turn(self, prompt_ids, *rest: Any, **named: Any):
                bench.seen_prompts = prompt_ids
                if bench.fixed is not None:
                    return bench.fixed, None
                return super()._generate_single_turn(prompt_ids, *rest, **named)

        tokenizer = AutoTokenizer.from_pretrained(checkpoint)
        processor = Qwen2_5_VLProcessor(
            image_processor=Qwen2VLImageProcessorPil.from_pretrained(checkpoint),
            tokenizer=tokenizer,
            video_processor=Qwen2VLVideoProcessor(),
            chat_template=tokenizer.chat_template,
        )
        model = Qwen2_5_VLForConditionalGeneration.from_pretrained(
            checkpoint, dtype=dtype, attn_implementation="sdpa"
        )
        wanted = scores(case)
        turn = [{"role": "user", "content": question(case)}]
        data = Dataset.from_list([{"prompt": turn, "image": image} for image in images(case)])
        batch = case.groups * case.members
        arguments = GRPOConfig(
            output_dir=tempfile.mkdtemp(),
            per_device_train_batch_size=batch,
            num_generations=case.members,
            max_completion_length=case.length,
            temperature=1.0,
            beta=BETA,
            loss_type="dr_grpo",
            scale_rewards="none",
            use_bias_correction_kl=False,
            learning_rate=LR,
            max_grad_norm=CLIP,
            weight_decay=0.0,
            gradient_checkpointing=False,
            bf16=False,
            use_cpu=device == "cpu",
            report_to=[],
            shuffle_dataset=False,
            disable_tqdm=True,
        )
        flat = [value for group in wanted for value in group]
        self.trainer = Trainer(
            model=model,
            reward_funcs=lambda completions, **_: flat[: len(completions)],
            args=arguments,
            train_dataset=data,
            processing_class=processor,
        )
        self.model = self.trainer.model
        self.model.train()
        self.trainer.create_optimizer()
        # what `train` would set: one batch is one step
        self.trainer.current_gradient_accumulation_steps = 1
        self.batch = next(iter(self.trainer.get_train_dataloader()))

    def give(self, ids: list[list[torch.Tensor]]) -> None:
        self.fixed = [i.tolist() for group in ids for i in group]

    def loss(self) -> float:
        self.model.zero_grad(set_to_none=True)
        return self._backward()

    def update(self) -> None:
        """The fixed completions: what is left is scoring, reference, loss, backward, optimiser."""
        self._backward()
        self._optimise()

    def update_shared(self) -> None:
        """The same with shared prefixes."""
        shared = MethodType(SharedPrefix._get_per_token_logps_and_entropies, self.trainer)
        self.trainer._get_per_token_logps_and_entropies = shared
        try:
            self.update()
        finally:
            del self.trainer._get_per_token_logps_and_entropies

    def step(self) -> None:
        fixed, self.fixed = self.fixed, None
        try:
            self._backward()
            self._optimise()
        finally:
            self.fixed = fixed

    def gradients(self) -> dict[str, torch.Tensor]:
        return {n: p.grad.float() for n, p in self.model.named_parameters() if p.grad is not None}

    def _backward(self) -> float:
        inputs = self.trainer._generate_and_score_completions(self.batch)
        loss = self.trainer.compute_loss(self.model, inputs, num_items_in_batch=None)
        loss.backward()
        return float(loss)

    def _optimise(self) -> None:
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), CLIP)
        self.trainer.optimizer.step()
        self.model.zero_grad(set_to_none=True)


def studies(case: Case) -> list[Study]:
    view = (ImageRef(Path("frontal.png"), "frontal"),)
    return [Study(f"s{b}", "train", None, None, view) for b in range(case.groups)]


def question(case: Case) -> str:
    return prompt_text(studies(case)[0], style="short")


def images(case: Case) -> list[Image.Image]:
    """Noise: what is on a picture changes no time."""
    shape = (case.groups, case.pixels, case.pixels, 3)
    drawn = np.random.default_rng(0).integers(0, 255, shape, dtype=np.uint8)
    return [Image.fromarray(picture) for picture in drawn]


def scores(case: Case) -> list[list[float]]:
    return np.random.default_rng(1).random((case.groups, case.members)).tolist()


def completions(policy: Policy, case: Case) -> list[list[torch.Tensor]]:
    """Draw random ids, half the limit to the limit long, ending a turn."""
    rng = np.random.default_rng(2)
    words = sorted(i for t, i in policy.tokenizer.get_vocab().items() if not t.startswith("<|"))

    def one() -> torch.Tensor:
        length = int(rng.integers(max(2, case.length // 2), case.length + 1))
        ids = rng.choice(words, length - 1).tolist()
        return torch.tensor([*ids, policy.end_of_turn])

    return [[one() for _ in range(case.members)] for _ in range(case.groups)]


def checkpoint(directory: Path, case: Case, size: str) -> Path:
    """Random weights: the tiny architecture, or the 3B's widths over the tiny tokenizer."""
    texts = [question(case), "No pleural effusion or pneumothorax."] * 5
    place = build_tiny(PolicySettings(), texts, directory, side=case.pixels)
    if size == "tiny":
        return place
    from transformers import AutoConfig, Qwen2_5_VLForConditionalGeneration

    real = AutoConfig.from_pretrained(place)
    for part, values in THREE_BILLION.items():
        for name, value in values.items():
            setattr(getattr(real, part), name, value)
    with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
        torch.set_default_dtype(torch.bfloat16)
        try:
            Qwen2_5_VLForConditionalGeneration(real).save_pretrained(place)
        finally:
            torch.set_default_dtype(torch.float32)
    return place


_3B = KNOWN["Qwen/Qwen2.5-VL-3B-Instruct"]
THREE_BILLION = {
    "text_config": {
        **{name: value for name, value in _3B.items() if name != "vision_config"},
        "layer_types": ["full_attention"] * 36,
        "max_window_layers": 36,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 1e6,
            "mrope_section": [16, 24, 24],
        },
    },
    "vision_config": _3B["vision_config"],
}


def same(ours: Ours, theirs: Theirs) -> dict[str, float]:
    """Loss and gradients of both on the given completions; exits where they differ."""
    a, b = ours.loss(), theirs.loss()
    expanded = [p.input_ids.tolist() for p in ours.prompts]
    wanted = [ids for ids in expanded for _ in range(ours.case.members)]
    if [list(map(int, ids)) for ids in theirs.seen_prompts] != wanted:
        raise SystemExit("the two trainers read the prompts differently: nothing is measured")
    mine, their = ours.gradients(), theirs.gradients()
    if mine.keys() != their.keys():
        lacking = sorted(mine.keys() ^ their.keys())[:3]
        raise SystemExit(f"gradients for different parameters ({', '.join(lacking)})")
    difference = math.sqrt(sum(float((mine[n] - their[n]).square().sum()) for n in mine))
    norm = math.sqrt(sum(float(their[n].square().sum()) for n in their))
    tolerance = 1e-4 if ours.policy.dtype == torch.float32 else 5e-2
    if not (abs(a - b) <= tolerance * max(abs(b), 1e-3) and difference <= tolerance * norm):
        raise SystemExit(
            f"losses {a:.8g} and {b:.8g}, gradients apart by {difference / norm:.2e} of their "
            "norm: the trainers do not compute the same; nothing is measured"
        )
    return {"loss": a, "loss_trl": b, "gradient_difference": difference / norm}


def measure(work: dict[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """Median seconds of each, taken in turns after one warm-up of each.

    On a CPU they are the process's own, which a busy machine does not lengthen: give it one thread
    (OMP_NUM_THREADS=1, as `make bench ROOM=step`), since threads that wait for others count too.
    """
    clock = time.perf_counter if torch.cuda.is_available() else time.process_time
    seconds: dict[str, list[float]] = {name: [] for name in work}
    for number in range(rounds + 1):
        for name, run in work.items():
            _synchronize()
            begin = clock()
            run()
            _synchronize()
            if number:
                seconds[name].append(clock() - begin)
    return {name: statistics.median(values) for name, values in seconds.items()}


def _synchronize() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


@torch.no_grad()
def transformers_generate(ours: Ours) -> None:
    """`generate` of transformers with num_return_sequences, one prompt after another."""
    model = ours.policy.backbone
    for p in ours.prompts:
        model.generate(
            input_ids=p.input_ids[None].to(model.device),
            attention_mask=torch.ones_like(p.input_ids[None]).to(model.device),
            pixel_values=p.pixel_values.to(model.device, model.dtype),
            image_grid_thw=p.image_grid_thw.to(model.device),
            mm_token_type_ids=p.mm_token_type_ids[None].int().to(model.device),
            do_sample=True,
            num_return_sequences=ours.case.members,
            max_new_tokens=ours.case.length,
        )


def compare(
    case: Case, size: str, rounds: int, *, everything: bool
) -> tuple[dict[str, Any], dict[str, float]]:
    """Compare one case: equality, then seconds and ratios of TRL's to ours."""
    cuda = torch.cuda.is_available()
    device, dtype = ("cuda", torch.bfloat16) if cuda else ("cpu", torch.float32)
    with tempfile.TemporaryDirectory() as home:
        place = checkpoint(Path(home), case, size)
        ours = Ours(place, case, device, dtype)
        theirs = Theirs(place, case, device, dtype)
        theirs.give(completions(ours.policy, case))
        found: dict[str, Any] = same(ours, theirs)
        work: dict[str, Callable[[], Any]] = {"update": ours.update, "update_trl": theirs.update}
        if everything:
            work |= {
                "update_trl_shared": theirs.update_shared,
                "step": ours.step,
                "step_trl": theirs.step,
                "generation": ours.generate,
                "generation_transformers": lambda: transformers_generate(ours),
            }
        seconds = measure(work, rounds)
        found["prompt_tokens"] = len(ours.prompts[0].input_ids)
        found["update_ratio"] = seconds["update_trl"] / seconds["update"]
        if everything:
            found["update_ratio_trl_shared"] = seconds["update_trl"] / seconds["update_trl_shared"]
            found["step_ratio"] = seconds["step_trl"] / seconds["step"]
            found["generation_ratio"] = seconds["generation_transformers"] / seconds["generation"]
        if cuda:
            found["seconds"] = seconds
        anchor = torch.zeros(1, device=device)
        peak = timing.peak_mib(lambda _: ours.update(), (anchor,))
        peak_trl = timing.peak_mib(lambda _: theirs.update(), (anchor,))
        found |= {"peak_mib": peak, "peak_mib_trl": peak_trl, "peak_ratio": peak / peak_trl}
    return found, seconds


def main(arguments: list[str] | None = None) -> int:
    top = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    top.add_argument("--groups", type=int, default=2)
    top.add_argument("--members", type=int, default=10)
    top.add_argument("--length", type=int, default=64)
    top.add_argument("--pixels", type=int, default=None, help="560 is 400 tokens; 3b: 1092, 1521")
    top.add_argument("--rounds", type=int, default=5)
    top.add_argument("--size", choices=("tiny", "3b"), default="tiny")
    top.add_argument("--sweep", action="store_true", help="over group sizes and prompt lengths too")
    args = top.parse_args(arguments)
    pixels = args.pixels or (560 if args.size == "tiny" else 1092)
    case = Case(args.groups, args.members, args.length, pixels)
    cases = [(case, True)]
    if args.sweep:
        cases += [(replace(case, members=m), False) for m in (2, 4, 8, 16)]
        cases += [(replace(case, pixels=p), False) for p in (112, 280, 560, 840)]
    unit = None
    for this, everything in cases:
        found, seconds = compare(this, args.size, args.rounds, everything=everything)
        unit = unit or seconds["update"]
        found["update_time"] = seconds["update"] / unit
        found["update_time_trl"] = seconds["update_trl"] / unit
        row = {"bench": "update_step", "size": args.size, **vars(this), **found}
        rows.append(torch.device("cuda" if torch.cuda.is_available() else "cpu"), row)
        print(json.dumps(row), flush=True)
    return 0


if __name__ == "__main__":
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    sys.exit(main())
