"""Every number that a paper prints stands in the recipe of its size, with the place it is from.

"released" is the authors' code, "decided" what neither says and the recipe had to settle.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytest

from rrgtrain.config import undone_keys
from rrgtrain.schema import Recipe
from tests.rrgtrain.recipes.loaded import LAYERS, PAPER, loaded
from tests.rrgtrain.recipes.test_papers import COMMANDS
from tests.rrgtrain.recipes.test_rows import of

APPENDIX_E, SECTION_4_1, SECTION_IV_B = "appendix E", "section 4.1", "section IV.B"

# recipe, key, value, where it is printed
PRINTED: list[tuple[str, str, Any, str]] = [
    ("editgrpo", "policy.path", "Qwen/Qwen2.5-VL-3B-Instruct", "section 3.1, Models"),
    ("editgrpo", "policy.freeze_vision", True, "released"),
    ("editgrpo", "policy.gradient_checkpointing", True, APPENDIX_E),
    ("editgrpo", "policy.max_pixels", 401_408, APPENDIX_E),
    ("editgrpo", "policy.min_pixels", 262_144, APPENDIX_E),
    ("editgrpo", "policy.prompt", "editgrpo", APPENDIX_E),
    ("editgrpo", "data.images", "all", "section 3.1 and appendix F"),
    ("editgrpo", "data.prior", "last", "appendix F, the most recent prior exam"),
    ("editgrpo", "data.max_images", 6, "table 3"),
    ("editgrpo", "rl.group", 10, "appendix E, G/2 = 5"),
    ("editgrpo", "rl.temperature", 1.0, APPENDIX_E),
    ("editgrpo", "rl.std", "none", "section 2"),
    ("editgrpo", "rl.aggregation", "dr_grpo", "section 2"),
    ("editgrpo", "rl.surrogate", "clip", "eq. 2"),
    ("editgrpo", "rl.eps_low", 0.2, "released"),
    ("editgrpo", "rl.eps_high", 0.2, "released"),
    ("editgrpo", "rl.beta", 0.01, "released"),
    ("editgrpo", "rl.kl", "k3", "decided"),
    ("editgrpo", "rl.max_new_tokens", 512, "decided"),
    ("editgrpo", "edit.tau", 0.6, APPENDIX_E),
    ("editgrpo", "edit.rule", "paper", "section 2"),
    ("editgrpo", "edit.max_edits", 1, "released"),
    ("editgrpo", "reward.extractor", "ratescore", "section 2, RaTE-NER"),
    (
        "editgrpo",
        "reward.terms",
        {"radgraph": 1.0, "label_f1": 1.0, "ratescore": 1.0},
        "appendix D, without weights",
    ),
    ("editgrpo", "reward.neg_weight", 0.3612, "appendix D, RaTEScore 0.5.0"),
    ("editgrpo_sft", "sft.choose", "before_convergence", "appendix E, stage 2"),
    ("editgrpo_sft", "policy.freeze_vision", False, "appendix E, stage 1 trains theta"),
    ("editgrpo_norm", "rl.std", "sample", "table 1 and eq. 1"),
    ("editgrpo_para", "edit.level", "paragraph", "table 1"),
    ("editgrpo_exact", "edit.match", "exact", "table 4"),
    ("editgrpo_exact", "edit.extractor", "radgraph", "table 4"),
    ("editgrpo_rexgradient", "data.prior", "none", "appendix F and table 3"),
    ("editgrpo_rexgradient", "data.max_images", 6, "table 3"),
    ("editgrpo_iu_xray", "data.splits", {"train": "train+val"}, "table 3, 2,365 of 2,955"),
    ("editgrpo_iu_xray", "data.prior", "none", "table 3"),
    ("editgrpo_padchest", "data.prior", "last", "appendix F and table 3"),
    ("editgrpo_padchest", "data.splits", {"train": "train+val"}, "table 3, 3,640 of 4,555"),
    ("grpo", "rl.std", "sample", "eq. 1"),
    ("grpo", "rl.aggregation", "grpo", "eq. 2"),
    ("dr_grpo", "rl.std", "none", "section 2"),
    ("dr_grpo_rate", "reward.terms", {"ratescore": 1.0}, "figure 3"),
    ("dr_grpo_rate_rg", "reward.terms", {"ratescore": 1.0, "radgraph": 1.0}, "figure 3"),
    (
        "dr_grpo_rate_rg_f1_if",
        "reward.terms",
        {"ratescore": 1.0, "radgraph": 1.0, "label_f1": 1.0, "inverse_frequency": 1.0},
        "figure 3",
    ),
    ("mrg_r1", "policy.path", "FreedomIntelligence/HuatuoGPT-Vision-7B-Qwen2.5VL", SECTION_IV_B),
    ("mrg_r1", "policy.dtype", "bfloat16", SECTION_IV_B),
    ("mrg_r1", "policy.lora.rank", 128, SECTION_IV_B),
    ("mrg_r1", "policy.lora.alpha", 256.0, SECTION_IV_B),
    ("mrg_r1", "policy.lora.dropout", 0.05, SECTION_IV_B),
    ("mrg_r1", "policy.prompt", "think", "section III.B.1"),
    ("mrg_r1", "data.images", "all", "section IV.A, every image of a study"),
    ("mrg_r1", "data.each_image", True, "section IV.A, each a sample with the same report"),
    ("mrg_r1_mimic", "data.sections", "both", "decided; 222.8k are all studies of the split"),
    ("mrg_r1", "rl.group", 4, SECTION_IV_B),
    ("mrg_r1", "rl.std", "population", "eq. 2"),
    ("mrg_r1", "reward.terms", {"mccs": 0.75, "format": 0.25}, SECTION_IV_B),
    ("mrg_r1", "reward.blocks", "think_report", "section III.B.1"),
    ("mrg_r1", "reward.margin", 0.0, "decided; eq. 6 leaves m open"),
    ("mrg_r1", "rl.aggregation", "grpo", "decided"),
    ("mrg_r1", "rl.beta", 0.04, "decided"),
    ("mrg_r1", "rl.max_new_tokens", 768, "decided"),
    ("mrg_r1_sequence", "rl.aggregation", "sum", "eq. 1"),
    ("mrg_r1_sequence", "rl.ratio_level", "sequence", "eq. 1"),
    ("mrg_r1_mccs", "reward.terms", {"mccs": 1.0}, "table II"),
    ("mrg_r1_ce_f1", "reward.terms", {"ce_f1": 1.0}, "table II"),
    ("mrg_r1_ce_f1_format", "reward.terms", {"ce_f1": 0.75, "format": 0.25}, "table II"),
    ("mrg_r1_format", "reward.terms", {"format": 1.0}, "table II"),
    ("mrg_r1_nlg", "reward.terms", {"nlg": 1.0}, "table II"),
    ("mrg_r1_nlg", "reward.blocks", "none", "table II"),
    ("radvlm_grpo", "policy.path", "Qwen/Qwen3-VL-8B-Instruct", "its backbone"),
    ("radvlm_grpo", "data.source", "mimic_cxr", "its data"),
    ("radvlm_grpo", "rl.algorithm", "grpo", "its title"),
    ("radvlm_grpo", "rl.prompts", 512, "released"),
    ("radvlm_grpo", "rl.group", 8, "released"),
    ("radvlm_grpo", "rl.minibatch", 128, "released"),
    ("radvlm_grpo", "rl.lr", 1e-6, "released"),
    ("radvlm_grpo", "rl.beta", 0.01, "released"),
    ("radvlm_grpo", "rl.kl", "k3", "low_var_kl"),
    ("radvlm_grpo", "rl.eps_low", 0.2, "released"),
    ("radvlm_grpo", "rl.eps_high", 0.28, "released"),
    ("radvlm_grpo", "rl.max_new_tokens", 1024, "released"),
    ("radvlm_grpo", "rollout.max_model_len", 4096, "prompts of 3,072 beside 1,024"),
    ("radvlm_grpo", "reward.terms", {"radcliq": 1.0}, "its rewards"),
    ("radvlm_bertscore", "reward.terms", {"bertscore": 1.0}, "its rewards"),
    ("radvlm_bertscore", "rl.group", 8, "released"),
    ("radvlm_grpo", "policy.prompt", "editgrpo", "without reasoning; wording decided"),
    ("radvlm_grpo", "rl.std", "sample", "decided; verl"),
    ("radvlm_grpo", "rl.aggregation", "dapo", "decided; verl"),
    ("radvlm_grpo", "rl.steps", 287, "decided; one pass over 146,893 studies"),
    ("deer", "policy.path", "Qwen/Qwen2.5-VL-3B-Instruct", SECTION_4_1),
    ("deer", "policy.freeze_vision", False, "section 4.1, the entire model"),
    ("deer", "rl.algorithm", "ditpo", "section 3.3"),
    ("deer", "rl.group", 8, SECTION_4_1),
    ("deer", "token_weights.kind", "saliency", SECTION_4_1),
    ("deer", "token_weights.alpha", 4.0, SECTION_4_1),
    ("deer", "token_weights.beta", 1.0, SECTION_4_1),
    ("deer", "token_weights.labeller", "chexbert", "eqs. 9 to 12"),
    ("deer", "reward.labeller", "chexbert", "eq. 1"),
    ("deer", "reward.terms", {"sample_f1": 1.0, "bleu2": 0.25}, "eq. 1 and section 4.1"),
    ("deer", "reward.starts", {"bleu2": 0.8}, "decided; section 4.1 says when F1 is learned"),
    ("deer", "select.samples", 10, SECTION_4_1),
    ("deer", "select.share", 0.2, "table 1"),
    ("deer", "select.method", "diversity", "section 3.2"),
    ("deer", "select.top_p", 0.95, "decided; section 3.2 says nucleus"),
    ("deer", "rl.std", "population", "decided"),
    ("deer", "rl.aggregation", "grpo", "decided"),
    ("deer", "rl.beta", 0.01, "decided"),
    ("deer", "rl.max_new_tokens", 512, "decided"),
    ("deer_tfidf", "token_weights.kind", "tfidf", "table 4"),
    ("deer_f1", "reward.terms", {"sample_f1": 1.0}, "table 5"),
    ("deer_mixed", "reward.starts", {}, "table 5"),
    ("deer_random", "select.method", "random", "table 1"),
    ("deer_sft", "sft.train", "vision", SECTION_4_1),
    ("orapo", "policy.path", "Qwen/Qwen2.5-VL-3B-Instruct", "section 4.1"),
    ("orapo", "data.sections", "findings", "section 4.1, no reports with missing sections"),
    ("orapo", "data.balanced", 1000, "section 4.1"),
    ("orapo", "reward.against", "labels", "section 4.1, labels by the CheXpert labeller"),
    ("orapo", "rl.algorithm", "orapo", "eq. 11"),
    ("orapo", "reward.terms", {"facts": 1.0}, "section 3.3"),
    ("orapo", "rl.group", 8, "table 6"),
    ("orapo", "oracle.momentum", 0.5, "table 6 and eq. 9"),
    ("orapo", "oracle.low", 0.05, "table 6 and eq. 10"),
    ("orapo", "oracle.high", 0.15, "table 6 and eq. 10"),
    ("orapo", "oracle.sharpness", 2.0, "table 6 and eq. 10"),
    ("orapo", "oracle.loss", "dpo", "eqs. 7 and 12"),
    ("orapo", "oracle.length_normalized", True, "appendix A, LN-DPO"),
    ("orapo", "rl.std", "none", "appendix A, Dr. GRPO"),
    ("orapo", "rl.aggregation", "dr_grpo", "appendix A, Dr. GRPO"),
    ("orapo", "reward.fact_beta", 2.0, "decided; section 3.3 weighs recall more"),
    ("orapo", "oracle.tau", 1.0, "decided"),
    ("orapo", "oracle.smooth", "batch", "eq. 9, per prompt or per minibatch"),
    ("orapo", "rl.beta", 0.01, "decided"),
    ("orapo", "rl.max_new_tokens", 512, "decided"),
    ("orapo_human", "data.splits", {"test": "val"}, "table 5, CheXpert's validation set"),
    ("orapo_human", "reward.against", "labels", "table 5, human gold labels"),
    ("orapo_400", "data.balanced", 400, "table 4"),
    ("orapo_sft", "oracle.loss", "sft", "table 4"),
    ("orapo_grpo", "rl.algorithm", "dr_grpo", "table 4"),
    ("orapo_grpo_accuracy", "reward.terms", {"accuracy": 1.0}, "table 4"),
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
    **{
        n: ("EditGRPO rl", MIMIC, 1000, "reward")
        for n in ("grpo", "dr_grpo", "dr_grpo_resample", "editgrpo", "editgrpo_norm")
    },
    **{
        f"editgrpo_{n}": ("EditGRPO rl", MIMIC, 1000, "reward")
        for n in ("para", "prior", "released")
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
    **{
        n: ("DEER rl", R2GEN, 1, "sample_f1")
        for n in ("deer_grpo", "deer", "deer_tfidf", "deer_f1", "deer_mixed", "deer_both")
    },
    **{f"{n}deer_fifth": ("DEER rl", FIFTH, 1, "sample_f1") for n in ("", "deer+", "deer_tfidf+")},
    "deer+on_chexpert_plus": ("DEER rl", PLUS, 1, "macro_f1"),
    "deer_sft+on_chexpert_plus": ("DEER sft", PLUS, 1, "macro_f1"),
    **{
        f"orapo{n}": ("OraPO rl", BALANCED, 1, "macro_f1")
        for n in ("", "_grpo", "_grpo_accuracy", "_sft", "_accuracy", "_400", "_human")
    },
    "orapo+on_mimic_cxr": ("OraPO rl", ("mimic_cxr", 1000), 1, "macro_f1"),
}
# Judged alone, and what belongs to RadVLM-GRPO.
NOT_TRAINED = {"out_of_domain", "deer+on_iu_xray", "radvlm_grpo", "radvlm_bertscore"}


def test_every_row_is_printed_by_a_command_that_is_checked() -> None:
    rows = {of(command)[1][0] for command in COMMANDS if command.startswith("rrgtrain eval")}
    names = {row.replace("paper/", "") for row in rows}
    assert names - NOT_TRAINED <= set(PRINTED_ROWS), names - NOT_TRAINED - set(PRINTED_ROWS)
    assert set(PRINTED_ROWS) - names <= {"mrg_r1+mrg_r1_mimic", "mrg_r1_sequence+mrg_r1_mimic"}


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
