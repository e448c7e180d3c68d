"""Train in TRL with edits, a shared prompt and images: `python examples/trl_rrg.py [STEPS]`.

Phantoms and a tiny model run on a CPU; replace `tiny` by `model=NAME`, `PHANTOMS` by your data.
Needs `pip install 'trl>=1.16,<1.17' torchvision`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from PIL import Image

from rrgdata import Study, load_studies
from rrgdata.phantom import PhantomConfig, write_phantom
from rrgpolicy.model.prompt import prompt_text
from rrgpolicy.model.tiny import build_tiny
from rrgpolicy.settings import PolicySettings
from rrgtrain.algorithms import build_algorithm
from rrgtrain.config import load_config
from rrgtrain.schema import Recipe

SETTINGS = ["rl.algorithm=editgrpo", "rl.group=8", "edit.tau_replace=0.0"]
PHANTOMS = PhantomConfig(train=16, val=1, test=1, size=56)
FIRST_LOSS = "The first loss is 0 by design, but for reports' lengths, which dr_grpo leaves in"


def row(study: Study) -> dict[str, Any]:
    """Make TRL's columns: prompt, images, and the reference that edits and rewards read."""
    images = [Image.open(image.path).convert("RGB") for image in study.images]
    turns = [{"role": "user", "content": prompt_text(study, style="short")}]
    return {"prompt": turns, "images": images, "report": study.report, "id": study.id}


def members(recipe: Recipe) -> str:
    """Say what `num_generations` holds; TRL's reward and lengths are means of all."""
    group, sampled = recipe.rl.group, build_algorithm(recipe).sampled
    return f"num_generations={group}: {sampled} sampled, at most {group - sampled} edits of them"


def tiny(studies: list[Study], place: Path) -> dict[str, Any]:
    """Build a Qwen2.5-VL with random weights, of the words of the studies."""
    from transformers import AutoModelForImageTextToText, Qwen2_5_VLProcessor

    texts = [text for s in studies for text in (s.report or "", prompt_text(s, style="short"))]
    build_tiny(PolicySettings(vocabulary=420), texts, place, side=56)
    model = AutoModelForImageTextToText.from_pretrained(place)
    return {"model": model, "processing_class": Qwen2_5_VLProcessor.from_pretrained(place)}


def main(steps: int = 3) -> list[dict[str, Any]]:
    """Train; return what TRL logged."""
    from datasets import Dataset
    from trl import GRPOConfig

    from rrgtrain.integrations.trl import RRGTrainer
    from rrgtrain.integrations.trl_steps import Extras

    recipe = load_config(Recipe, None, SETTINGS)
    print(members(recipe), FIRST_LOSS, sep="\n")
    with TemporaryDirectory() as name:
        write_phantom(PHANTOMS, data := Path(name, "phantoms"))
        studies = load_studies("iu_xray", data).studies["train"]
        own = {"num_generations": recipe.rl.group, "loss_type": "dr_grpo", "scale_rewards": "none"}
        own |= {"per_device_train_batch_size": 2 * recipe.rl.group, "max_completion_length": 32}
        made = RRGTrainer(
            **tiny(studies, Path(name, "model")),
            args=GRPOConfig(output_dir=name, max_steps=steps, bf16=False, logging_steps=1, **own),
            train_dataset=Dataset.from_list(list(map(row, studies))),
            extras=Extras(recipe=recipe),  # without reward_funcs: the recipe's terms, summed
        )
        made.train()
    return made.state.log_history


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
