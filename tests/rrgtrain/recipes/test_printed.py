"""Recipes have the numbers that papers print; what they lack is told before the first step."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

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


class Data(NamedTuple):
    """What a row is trained on; the samples are those that its paper counts."""

    source: str
    samples: int
    prior: str = "none"
    max_images: int | None = None
    each_image: bool = False
    splits: Mapping[str, str] = MappingProxyType({})


BOTH = {"train": "train+val"}
MIMIC, REX = Data("mimic_cxr", 146_893, "last", 6), Data("rexgradient", 139_884, "none", 6)
IU = Data("iu_xray", 2365, "none", 6, splits=BOTH)
PADCHEST = Data("padchest_gr", 3640, "last", 6, splits=BOTH)
TABLE_3 = {"MIMIC-CXR": MIMIC, "RexGradient": REX, "IU-Xray": IU, "PadChest-GR": PADCHEST}
IMAGES = Data("iu_xray", 2 * 2069, each_image=True)  # MRG-R1, section IV.A, of R2Gen's split
STUDIES = Data("mimic_cxr", 222_800, each_image=True)
R2GEN, FIFTH = (Data("r2gen_mimic", 270_790 // part, max_images=1) for part in (1, 5))  # DEER, 4.1
PLUS = Data("chexpert_plus", 40_463, max_images=1)  # DEER, table 2, of MambaXray-VL's split
BALANCED = Data("chexpert_plus", 1000)  # OraPO, section 4.1

# recipe of the row's command: stage, data, steps where they are printed or passes, judge
PRINTED_ROWS: dict[str, tuple[str, Data, int, str]] = {
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
        for n in ("", "_grpo", "_grpo_accuracy", "_sft", "_accuracy", "_400")
    },
    "orapo_human": ("OraPO rl", BALANCED._replace(splits={"test": "val"}), 1, "macro_f1"),
    "orapo+on_mimic_cxr": ("OraPO rl", BALANCED._replace(source="mimic_cxr"), 1, "macro_f1"),
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
    stage, data, count, by = PRINTED_ROWS[name]
    recipe = loaded("+".join(f"paper/{part}" for part in name.split("+")))
    sft, rl = recipe.sft, recipe.rl
    train, batch = (sft, sft.batch) if stage.endswith("sft") else (rl, rl.prompts)
    optimiser = (train.optimizer, batch, train.lr, train.beta2)
    assert (*optimiser, train.weight_decay, train.clip, train.schedule) == STAGES[stage]
    chosen = {key: getattr(recipe.data, key) for key in Data._fields if key != "samples"}
    assert Data(**chosen, samples=data.samples) == data
    assert (recipe.eval.best_by, train.beta1) == (by, 0.9)
    if count > 100:
        assert train.steps == count
    elif name != "deer_sft":  # no steps are printed
        assert abs(train.steps * batch - count * data.samples) < count * batch, "whole passes"
    assert train.schedule == "constant" or abs(train.warmup - train.steps / 10) <= 0.5
    assert train.eval_every <= train.steps and rl.group in (4, 8, 10)


@pytest.mark.skipif(not PAPERS.is_dir(), reason=f"no real data at {PAPERS}; set RRG_DATA")
def test_what_the_rows_hold_stands_in_the_papers_text() -> None:
    """Marks of formulas and blanks are left out of the text."""
    text = {each.stem: each.read_text() for each in PAPERS.glob("*.txt")}
    for name, data in TABLE_3.items():
        row = re.search(rf"^{name}\t\d.*$", text["editgrpo"], re.MULTILINE)
        cells = row[0].replace(",", "").split("\t") if row else []
        assert (int(cells[1]), float(cells[5]) > 0) == (data.samples, data.prior == "last"), cells
        assert name != "IU-Xray" or int(cells[1]) + int(cells[2]) == 2955, (
            "no study is left for val"
        )
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
        ("mrg-r1", f"approximately{STUDIES.samples / 1000}k"),
        ("deer", f"split dataset to {R2GEN.samples:,}/"),
        ("deer", f"learningrateof{STAGES['DEER sft'][2] * 1e5:.0f}e-5withabatchsizeof64"),
        ("deer", f"learningrateof{deer_rate * 1e6:.0f}e-6andabatchsizeof{deer_batch};"),
        ("orapo", f"{BALANCED.samples:,} from CheXpert-Plus and 1,000 from MIMIC-CXR"),
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
