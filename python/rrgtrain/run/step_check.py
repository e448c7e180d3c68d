"""Measure one real update of a recipe at its longest lengths: `rrgtrain check --step`."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from PIL import Image

from rrgdata.settings import DataSettings
from rrgtrain.config import replaced
from rrgtrain.errors import UserError
from rrgtrain.run.model_check import HEIGHT, WIDTH
from rrgtrain.run.room import gib
from rrgtrain.run.stages import Stages
from rrgtrain.schema import LogSettings, Recipe
from rrgtrain.train.speed import peak_memory

SENTENCE = "Small left pleural effusion with adjacent atelectasis. No pneumothorax."
INDICATION = "Shortness of breath, fever and cough for three days."
SCORE = f"{__name__}:drawn_score"
NO_TOKEN = -1
USUAL_IMAGES = 2
"""Of a study, where the recipe sets no limit: frontal and lateral."""


def drawn_score(report: str, reference: str) -> float:
    """Score a report by its text alone: members that differ all have a gradient."""
    return zlib.crc32(report.encode()) / 2**32


def measure_step(recipe: Recipe, stage: str) -> Iterator[str]:
    """Train one step, of "sft" or "rl", on made-up studies; yield its peak.

    The studies have as many full-size radiographs as the recipe allows, and no report ends before
    its largest length. Scores are drawn from the text, so that nearly every member trains, and no
    model that reads reports is counted. In one process, whatever ranks the recipe is for.
    Nothing is left. Raises UserError as a run does.
    """
    if recipe.rollout.engine != "transformers":
        raise UserError(
            f"--step measures rollout.engine=transformers, and the recipe has "
            f"{recipe.rollout.engine}, which holds memory of its own; add "
            "rollout.engine=transformers"
        )
    with TemporaryDirectory() as name:
        home = Path(name)
        count = recipe.sft.batch if stage == "sft" else recipe.rl.prompts
        images = 0 if recipe.data.images == "none" else recipe.data.most_images or USUAL_IMAGES
        _write_studies(home, count, images, recipe.eval.max_new_tokens)
        data = DataSettings(source="table", root=str(home / "studies.jsonl"))
        read: dict[str, Any] = {"labeller": "rules", "extractor": "rules", "options": {}}
        small = replaced(
            recipe,
            data=replace(data, images=recipe.data.images, cache_mib=recipe.data.cache_mib),
            reward=replace(recipe.reward, terms={SCORE: 1.0}, starts={}, against="report", **read),
            edit=replace(recipe.edit, extractor=None),
            rl=replace(recipe.rl, steps=1, warmup=0, resample=0, truncated="score"),
            sft=replace(recipe.sft, steps=1, warmup=0, eval_every=1, drops=0),
            eval=replace(recipe.eval, limit=1, best_by="micro_f1_13", meteor=False, samples=0),
            log=LogSettings(records=0),
        )
        with Stages.open(small, home / "run", sft=stage == "sft", rl=stage == "rl") as stages:
            policy = stages.session.policy
            # a token that is never drawn: every report has its largest length
            policy.eos_ids = (NO_TOKEN,)
            _ = stages.sft() if stage == "sft" else stages.rl()
            peak, device = peak_memory(policy.device), policy.device.type
    what = "the GPU's allocator" if device == "cuda" else "this process, PyTorch included"
    tokens = recipe.rl.max_new_tokens if stage == "rl" else recipe.eval.max_new_tokens
    yield (
        f"step: one {stage} update of {count} prompts, {images} images each, "
        f"reports of {tokens} tokens: "
        f"peak {gib(peak)} of {what}; models that read reports are not counted"
    )


def _write_studies(home: Path, count: int, images: int, words: int) -> None:
    """Write a table of `count` training studies, one to validate and one to test, and images."""
    picture = Image.linear_gradient("L").resize((WIDTH, HEIGHT))
    report = " ".join([SENTENCE] * (1 + words // len(SENTENCE.split())))
    rows = []
    for number, split in enumerate([*["train"] * count, "val", "test"]):
        names = [f"{number}-{k}.png" for k in range(images)]
        for name in names:
            picture.save(home / name)
        row = {"id": f"study{number}", "split": split, "report": report, "images": names}
        rows.append(json.dumps(row | {"indication": INDICATION, "view": "frontal"}))
    (home / "studies.jsonl").write_text("\n".join(rows) + "\n")
