"""Recipes have the numbers that papers print; what they lack is told before the first step."""

from __future__ import annotations

import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import yaml

from rrgpolicy.model.prompt import prompt_text
from rrgtrain.config import undone_keys
from rrgtrain.recipe_files import recipe_folder
from rrgtrain.schema import Recipe
from tests.real_data import REAL
from tests.rrgpolicy.model.common import study
from tests.rrgtrain.recipes.loaded import LAYERS, PAPER, loaded
from tests.rrgtrain.recipes.test_recipes import COMMANDS, ROWS
from tests.rrgtrain.recipes.test_rows import of

PAPERS = REAL.parent / "papers"
NUMBERS, STAGES, DATA, ROWS_OF = yaml.safe_load_all(
    Path(__file__).with_name("printed.yaml").read_text()
)
# recipe: stage, data, steps or passes, judge
PRINTED_ROWS = {name: row for names, *row in ROWS_OF for name in names.split()}
# What a row leaves to the reader.
PLAIN = {"prior": "none", "max_images": None, "each_image": False, "splits": {}}


def test_a_papers_size_holds_its_numbers() -> None:
    wrong = []
    for name, key, wanted, source in NUMBERS:
        value: Any = loaded(f"paper/{name}")
        for part in key.split("."):
            value = getattr(value, part)
        if value != wanted or type(value) is not type(wanted):
            wrong.append(f"{name}: {key} is {value!r}, printed {wanted!r} ({source})")
    assert not wrong, "\n".join(wrong)


def test_every_paper_size_is_for_a_gpu() -> None:
    for name in dict.fromkeys(name for name, *_ in NUMBERS):
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
    stage, data, count, by = PRINTED_ROWS[name]
    recipe = loaded("+".join(f"paper/{part}" for part in name.split("+")))
    sft, rl = recipe.sft, recipe.rl
    train, batch = (sft, sft.batch) if stage.endswith("sft") else (rl, rl.prompts)
    optimiser = (train.optimizer, batch, train.lr, train.beta2)
    assert [*optimiser, train.weight_decay, train.clip, train.schedule] == STAGES[stage]
    samples, told = DATA[data]
    assert {key: getattr(recipe.data, key) for key in ("source", *PLAIN)} == PLAIN | told
    assert (recipe.eval.best_by, train.beta1) == (by, 0.9)
    if count > 100:
        assert train.steps == count
    elif name != "deer_sft":  # no steps are printed
        assert abs(train.steps * batch - count * samples) < count * batch, "whole passes"
    assert train.schedule == "constant" or abs(train.warmup - train.steps / 10) <= 0.5
    assert train.eval_every <= train.steps and rl.group in (4, 8, 10)


@pytest.mark.skipif(not PAPERS.is_dir(), reason=f"no real data at {PAPERS}; set RRG_DATA")
def test_what_the_rows_hold_stands_in_the_papers_text() -> None:
    """Marks of formulas and blanks are left out of the text."""
    text = {each.stem: each.read_text() for each in PAPERS.glob("*.txt")}
    for name, (samples, told) in list(DATA.items())[:4]:
        row = re.search(rf"^{name}\t\d.*$", text["editgrpo"], re.MULTILINE)
        cells = row[0].replace(",", "").split("\t") if row else []
        assert (int(cells[1]), float(cells[5]) > 0) == (samples, "prior" in told), cells
        assert name != "IU-Xray" or int(cells[1]) + int(cells[2]) == 2955  # none is left for val
    _, batch, rate, _, decay, *_ = STAGES["EditGRPO rl"]
    _, deer_batch, deer_rate, *_ = STAGES["DEER rl"]
    _, of_16, mrg_rate, beta2, mrg_decay, clip, schedule = STAGES["MRG-R1 sft"]
    for paper, line in (
        ("editgrpo", f"rolloutbatchsizeof{batch}."),
        ("editgrpo", f"learningrateof{rate * 1e6}e-6andaweightdecayof{decay * 100}e-2"),
        ("editgrpo", "cases containing more than six images were excluded"),
        *(("editgrpo", f"step{PRINTED_ROWS[n][2]}") for n in ("editgrpo", "editgrpo_rexgradient")),
        ("mrg-r1", f"8-bitAdamW[66]withlearningrate{mrg_rate * 1e6:.0f}×10-6"),
        ("mrg-r1", f"(0.9,{beta2}),weightdecay{mrg_decay},{schedule}decaywith10%warm-up"),
        ("mrg-r1", f"clippingat{clip},effectivebatchsize{of_16},and1trainingepoch"),
        ("mrg-r1", f"approximately{DATA['MIMIC-CXR, by image'][0] / 1000}k"),
        ("deer", f"split dataset to {DATA['MIMIC-CXR of R2Gen'][0]:,}/"),
        ("deer", f"learningrateof{STAGES['DEER sft'][2] * 1e5:.0f}e-5withabatchsizeof64"),
        ("deer", f"learningrateof{deer_rate * 1e6:.0f}e-6andabatchsizeof{deer_batch};"),
        ("orapo", f"{DATA['CheXpert Plus'][0]:,} from CheXpert-Plus and 1,000 from MIMIC-CXR"),
    ):
        plain = re.sub(r"\\text|[\s$\\{}^]", "", text[paper])
        assert re.sub(r"\s", "", line) in plain, (paper, line)


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
