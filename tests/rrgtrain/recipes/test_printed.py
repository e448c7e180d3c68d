"""Recipes have the numbers that papers print; what they lack is told before the first step."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import yaml

from rrgpolicy.model.prompt import prompt_text
from rrgtrain.config import undone_keys
from rrgtrain.recipe_files import recipe_folder
from rrgtrain.schema import Recipe
from tests.rrgpolicy.model.common import study
from tests.rrgtrain.recipes.loaded import LAYERS, PAPER, loaded
from tests.rrgtrain.recipes.test_recipes import COMMANDS, ROWS
from tests.rrgtrain.recipes.test_rows import of

# recipe, key, value, where it is printed
PRINTED: list[tuple[str, str, Any, str]] = [
    *map(tuple, yaml.safe_load(Path(__file__).with_name("printed.yaml").read_text()))
]


def test_a_papers_size_holds_its_numbers() -> None:
    wrong = []
    for name, key, wanted, source in PRINTED:
        value: Any = loaded(f"paper/{name}")
        for part in key.split("."):
            value = getattr(value, part)
        if value != wanted or type(value) is not type(wanted):
            wrong.append(f"{name}: {key} is {value!r}, printed {wanted!r} ({source})")
    assert not wrong, "\n".join(wrong)


def test_every_paper_size_is_for_a_gpu() -> None:
    for name in dict.fromkeys(name for name, *_ in PRINTED):
        policy = loaded(f"paper/{name}").policy
        assert policy.dtype == "bfloat16" and policy.gradient_checkpointing, name


def test_the_printed_prompt_names_the_views_and_sections_of_a_study() -> None:
    printed = str(recipe_folder() / "paper" / "editgrpo_prompt.txt")
    first = study("a", 3, indication="fever", technique="AP", comparison="2020")[0]
    task, prior, _, described, _, *sections = prompt_text(first, style=printed).splitlines()
    assert task.startswith("As a radiologist assistant") and described.startswith("Please provide")
    assert task.endswith("the current frontal and lateral images,")
    assert prior == "and the prior frontal image."
    assert sections == ["INDICATION: fever", "TECHNIQUE: AP", "COMPARISON: 2020"]


# Of a stage: optimiser, reports or prompts in a step, learning rate, beta2, decay, clip, schedule.
STAGES = {
    # appendix E; clip, KL and beta2 as released; SFT decided
    "EditGRPO rl": ("adamw", 32, 1e-6, 0.999, 0.01, 1.0, "constant"),
    "EditGRPO sft": ("adamw", 64, 1e-5, 0.999, 0.01, 1.0, "constant"),
    # section IV.B: 16 sequences, which are 4 groups of 4
    "MRG-R1 rl": ("adamw_8bit", 4, 5e-6, 0.99, 0.1, 0.1, "cosine"),
    "MRG-R1 sft": ("adamw_8bit", 16, 5e-6, 0.99, 0.1, 0.1, "cosine"),
    # section 4.1; decay and clip decided
    "DEER rl": ("adamw", 64, 1e-6, 0.999, 0.01, 1.0, "constant"),
    "DEER sft": ("adamw", 64, 1e-5, 0.999, 0.01, 1.0, "constant"),
    # decided: its numbers are not in the text
    "OraPO rl": ("adamw", 4, 1e-6, 0.999, 0.01, 1.0, "constant"),
}
# Data, samples that the paper counts there, passes over them; None is no epoch but printed steps.
MIMIC, REX = ("mimic_cxr", 146_893), ("rexgradient", 139_884)  # EditGRPO, table 3
IU, PADCHEST = ("iu_xray", 2365), ("padchest_gr", 3640)  # the same
IMAGES, STUDIES = ("iu_xray", 2 * 2069), ("mimic_cxr", 222_800)  # MRG-R1, section IV.A
R2GEN, FIFTH = ("r2gen_mimic", 270_790), ("r2gen_mimic", 54_158)  # DEER, section 4.1
PLUS, BALANCED = ("chexpert_plus", 40_463), ("chexpert_plus", 1000)  # DEER, table 2; OraPO, 4.1

# recipe of the row's command: stage, (data, samples), steps where they are printed or passes, judge
PRINTED_ROWS: dict[str, tuple[str, tuple[str, int], int, str]] = {
    **{n: ("EditGRPO rl", MIMIC, 1000, "reward") for n in ("grpo", "dr_grpo", "dr_grpo_resample")},
    **{
        f"editgrpo{n}": ("EditGRPO rl", MIMIC, 1000, "reward")
        for n in ("", "_norm", "_para", "_prior", "_released")
    },
    "editgrpo_rexgradient": ("EditGRPO rl", REX, 600, "reward"),
    "editgrpo_iu_xray": ("EditGRPO rl", IU, 1, "reward"),
    "editgrpo_padchest": ("EditGRPO rl", PADCHEST, 1, "reward"),
    "dr_grpo+on_padchest_gr": ("EditGRPO rl", PADCHEST, 1, "reward"),
    **{
        f"{n}+on_iu_xray": ("EditGRPO rl", IU, 1, "reward")
        for n in (
            *("dr_grpo", "dr_grpo_rate", "dr_grpo_rate_rg", "dr_grpo_rate_rg_f1"),
            *("dr_grpo_rate_rg_f1_if", "editgrpo_exact"),
        )
    },
    "editgrpo_sft": ("EditGRPO sft", MIMIC, 5, "reward"),
    "editgrpo_sft+on_rexgradient": ("EditGRPO sft", REX, 5, "reward"),
    "editgrpo_sft+on_iu_xray": ("EditGRPO sft", IU, 5, "reward"),
    "editgrpo_sft+on_padchest_gr": ("EditGRPO sft", PADCHEST, 5, "reward"),
    "mrg_r1_sft": ("MRG-R1 sft", IMAGES, 1, "micro_f1_13"),
    "mrg_r1_sft+mrg_r1_mimic": ("MRG-R1 sft", STUDIES, 1, "micro_f1_13"),
    "mrg_r1_mimic": ("MRG-R1 rl", STUDIES, 1, "micro_f1_13"),
    **{
        f"mrg_r1{n}{on}": ("MRG-R1 rl", data, 1, "micro_f1_13")
        for n in ("", "_nlg", "_ce_f1", "_format", "_ce_f1_format", "_mccs", "_sequence")
        for on, data in (("", IMAGES), ("+mrg_r1_mimic", STUDIES))
    },
    "deer_sft": ("DEER sft", R2GEN, 1, "sample_f1"),
    **{f"deer{n}": ("DEER rl", R2GEN, 1, "sample_f1") for n in ("", "_grpo", "_tfidf", "_both")},
    **{  # table 5 too, whose last row is table 1's DEER of 20 %
        f"{n}deer_fifth": ("DEER rl", FIFTH, 1, "sample_f1")
        for n in ("", "deer+", "deer_tfidf+", "deer_f1+", "deer_mixed+")
    },
    "deer+on_chexpert_plus": ("DEER rl", PLUS, 1, "macro_f1"),
    "deer_sft+on_chexpert_plus": ("DEER sft", PLUS, 1, "macro_f1"),
    **{
        f"orapo{n}": ("OraPO rl", BALANCED, 1, "macro_f1")
        for n in ("", "_grpo", "_grpo_accuracy", "_sft", "_accuracy", "_400", "_human")
    },
    "orapo+on_mimic_cxr": ("OraPO rl", ("mimic_cxr", 1000), 1, "macro_f1"),
}
# Judged alone, and what belongs to RadVLM-GRPO and UniRG-CXR.
NOT_TRAINED = {"out_of_domain", "deer+on_iu_xray", "radvlm_grpo", "radvlm_bertscore", "unirg_like"}


def test_every_row_is_printed_by_a_command_that_is_checked() -> None:
    rows = {of(command)[1][0] for command in COMMANDS if command.startswith("rrgtrain eval")}
    names = {row.replace("paper/", "") for row in rows}
    assert names - NOT_TRAINED <= set(PRINTED_ROWS), names - NOT_TRAINED - set(PRINTED_ROWS)
    assert set(PRINTED_ROWS) - names <= {"mrg_r1+mrg_r1_mimic", "mrg_r1_sequence+mrg_r1_mimic"}
    starts = [row[1] for row in ROWS if "editgrpo_sft`" in row[-2] and "=best" not in row[-2]]
    assert starts == ["SFT, the epoch before it, from which RL starts"], "the others converged"


@pytest.mark.parametrize("name", PRINTED_ROWS)
def test_a_row_has_its_papers_data_optimiser_steps_and_judge(name: str) -> None:
    stage, (source, samples), count, by = PRINTED_ROWS[name]
    recipe = loaded("+".join(f"paper/{part}" for part in name.split("+")))
    sft, rl = recipe.sft, recipe.rl
    train, batch = (sft, sft.batch) if stage.endswith("sft") else (rl, rl.prompts)
    optimiser = (train.optimizer, batch, train.lr, train.beta2)
    assert (*optimiser, train.weight_decay, train.clip, train.schedule) == STAGES[stage]
    assert (recipe.data.source, recipe.eval.best_by, train.beta1) == (source, by, 0.9)
    if count > 100:
        assert train.steps == count
    elif name != "deer_sft":  # no steps are printed
        assert abs(train.steps * batch - count * samples) < count * batch, "whole passes"
    assert train.schedule == "constant" or abs(train.warmup - train.steps / 10) <= 0.5
    assert train.eval_every <= train.steps and rl.group in (4, 8, 10)


def test_no_paper_chooses_by_micro_f1_over_14() -> None:
    """A report that is always normal has 0.62 of it on IU X-Ray, and finds nothing."""
    assert "micro_f1" not in {loaded(n).eval.best_by for n in (None, *LAYERS, *PAPER)}


@pytest.mark.parametrize("layer", LAYERS)
def test_a_layer_of_data_says_nothing_of_the_method(layer: str) -> None:
    """What is laid upon any recipe leaves its algorithm, loss, reward and optimiser as they are."""
    of_data = {"data", "sft.steps", "sft.eval_every", "rl.steps", "rl.eval_every", "eval"}
    for method in ("paper/dr_grpo_rate", "paper/mrg_r1_sft", "paper/deer", "paper/orapo"):
        before, after = (flat(asdict(loaded(name))) for name in (method, f"{method}+{layer}"))
        changed = {key for key in before | after if before.get(key) != after.get(key)}
        assert changed and all({key, key.split(".")[0]} & of_data for key in changed), changed
        assert undone_keys(Recipe, f"{method}+{layer}") == []


def flat(tree: dict, prefix: str = "") -> dict[str, object]:
    pairs: dict[str, object] = {}
    for key, value in tree.items():
        inner = isinstance(value, dict)
        pairs |= flat(value, f"{prefix}{key}.") if inner else {f"{prefix}{key}": value}
    return pairs


def test_a_fifth_of_the_data_is_the_same_training_otherwise() -> None:
    whole, fifth = loaded("paper/deer"), loaded("paper/deer+paper/deer_fifth")
    fifth.rl.steps = whole.rl.steps
    assert fifth == whole


def test_an_image_and_a_micro_batch_are_bounded() -> None:
    """A radiograph of MIMIC-CXR at its own size is 9,919 image tokens of 28 x 28 pixels."""
    for name in PAPER:
        recipe = loaded(name)
        pixels = recipe.policy.max_pixels
        assert pixels is not None and pixels // 28**2 <= 512, name
        one_image = recipe.data.each_image or recipe.data.images == "frontal"
        unbounded = name in ("paper/qwen_3b", "paper/huatuo_7b", "paper/lora_24gb")
        assert one_image or recipe.data.max_images or unbounded, name
        prompt = (recipe.data.max_images or 1) * pixels // 28**2
        assert recipe.sft.token_budget is not None, name
        assert recipe.sft.token_budget >= prompt, name
        answers = (recipe.rl.group + 1) * recipe.rl.max_new_tokens
        assert recipe.rl.token_budget >= prompt + answers, name
