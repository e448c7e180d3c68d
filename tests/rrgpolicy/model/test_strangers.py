"""Models that no list names, as somebody brings them: served, or refused in one line."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import peft
import pytest
import torch
import transformers

from rrgclinical.common.errors import UserError
from rrgpolicy.model.families import Family
from rrgpolicy.model.load import load_policy
from rrgpolicy.model.policy import ids_of_images
from rrgpolicy.model.probe import NoWay
from rrgpolicy.model.shared_prefix import shared_prefix_logps
from tests.rrgpolicy.model.common import text_directory
from tests.rrgpolicy.model.families import SORTS, TEXT, TOWER, backbone, build, text_alone

SIZES: dict[str, Any] = {
    **{"vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4},
    **{"max_position_embeddings": 512, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2},
}


def seeded(name: str, config: Any) -> Any:
    """A model of this class in training, of weights drawn anew."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return getattr(transformers, name)(config).train()


def model_of(kind: str, **sizes: Any) -> Any:
    transformers.logging.set_verbosity_error()
    config = getattr(transformers, f"{kind}Config")(**{**SIZES, **sizes})
    return seeded(f"{kind}ForCausalLM", config)


def way_of(model: Any, **more: Any) -> str:
    draw = torch.Generator().manual_seed(0)
    ids = text_alone(0, 20, draw)["input_ids"]
    reports = [[ids[0, :5]] * 2]
    return shared_prefix_logps(model, [{"input_ids": ids, **more}], reports).sharing


def test_what_a_model_draws_in_training_is_off_while_it_is_probed() -> None:
    experts = {"num_local_experts": 4, "num_experts_per_tok": 2, "intermediate_size": 48}
    mixtral = model_of("Mixtral", router_jitter_noise=0.1, num_key_value_heads=2, **experts)
    assert way_of(mixtral) == "row"
    assert mixtral.model.layers[0].mlp.jitter_noise == 0.1
    opt = model_of("OPT", layerdrop=0.5, ffn_dim=48, word_embed_proj_dim=32)
    assert way_of(opt) in ("row", "none")


def test_a_model_that_differs_from_itself_is_told_so() -> None:
    model = model_of("Olmo2", intermediate_size=48, num_key_value_heads=2)
    model.model.norm.register_forward_hook(lambda *args: args[-1] * torch.rand(()))
    with pytest.raises(NoWay, match="own forward, called twice, gives other log-probs") as told:
        way_of(model)
    assert "\n" not in str(told.value)


def test_a_decoder_whose_layers_have_another_name_is_refused_in_one_line(tmp_path: Path) -> None:
    tokenizer = transformers.AutoTokenizer.from_pretrained(text_directory())
    falcon = model_of("Falcon", vocab_size=len(tokenizer))
    with pytest.raises(ValueError, match=r"of a FalconForCausalLM has no `layers`: .*falcon\.py"):
        way_of(falcon)
    ettin = model_of("ModernBertDecoder", vocab_size=len(tokenizer), intermediate_size=48)
    # nor has its decoder one within; a dash is no part of a module's name
    with pytest.raises(ValueError, match="has no `layers`: .*/families/modernbert_decoder.py$"):
        way_of(ettin)
    for part in (falcon, tokenizer):
        part.save_pretrained(tmp_path)
    with pytest.raises(UserError, match="has no `layers`") as told:
        load_policy(tmp_path)
    assert "\n" not in str(told.value)


def test_no_argument_of_a_prompt_is_left_out_in_silence() -> None:
    """Images under a name of their own, and what a collator adds for a loss."""
    model = build("qwen3_vl", torch.float32)
    pixels = {"image_grid_thw": torch.tensor([[1, 4, 4]]), "pixel_values": torch.zeros(16, 294)}
    for name in ("labels", "position_ids"):
        with pytest.raises(ValueError, match=f"prompt 0 has {name}: give input_ids"):
            way_of(model, **{name: torch.zeros(1, 20, dtype=torch.int64)}, **pixels)
    model = model_of("Olmo2", intermediate_size=48, num_key_value_heads=2)
    own = model.forward

    def forward(image_pixel_values: Any = None, **inputs: Any) -> Any:
        return own(**inputs)

    model.forward = forward
    with pytest.raises(ValueError, match="prompt 0 has image_pixel_values: give input_ids"):
        way_of(model, image_pixel_values=torch.zeros(1, 3, 4, 4))


def test_ids_of_sounds_are_never_sampled() -> None:
    config = SimpleNamespace(audio_token_id=7, boa_token_index=8, image_token_id=9, eos_token_id=2)
    assert ids_of_images(config, SimpleNamespace(added_tokens_decoder={}), 99) == [7, 8, 9]


def sighted_of(kind: str, text: dict[str, Any], **top: Any) -> Any:
    """A model around a decoder of another family, with a tower of 16 patches."""
    vision = {**TOWER, "model_type": "siglip_vision_model", "vision_use_head": False}
    config = getattr(transformers, f"{kind}Config")(
        text_config={**TEXT, **text}, vision_config=vision, image_token_index=90, **top
    )
    return seeded(f"{kind}ForConditionalGeneration", config)


def shown(tokens: int, *before: int) -> dict[str, torch.Tensor]:
    """A prompt with an image behind the ids `before`, and text behind it."""
    ids = torch.tensor([[*before, *[90] * tokens, *range(3, 15)]])
    draw = torch.Generator().manual_seed(0)
    return {"input_ids": ids, "pixel_values": torch.randn(1, 3, 28, 28, generator=draw)}


def test_a_decoders_scale_counts_where_the_model_around_it_applies_it() -> None:
    model = sighted_of(
        "AyaVision", {"model_type": "cohere2", "sliding_window": 8}, downsample_factor=2
    )
    assert model.config.text_config.logit_scale == 0.0625
    prompt = shown(4, 1)
    assert way_of(model, **prompt) == "row"


@pytest.mark.parametrize(("kind", "capped"), [("Gemma3", False), ("PaliGemma", True)])
def test_a_decoders_cap_counts_where_the_model_around_it_applies_it(kind, capped):
    more: dict[str, Any] = {"final_logit_softcapping": 2.0, "query_pre_attn_scalar": 16}
    if kind == "Gemma3":
        model, prompt = build("gemma3", torch.float32, **more), {}
    else:
        text = {"model_type": "gemma2", "sliding_window": 8, **more}
        model = sighted_of(kind, text, projection_dim=64, hidden_size=64)
        prompt = shown(16)
    assert (backbone(model).head().softcap is not None) == capped
    assert way_of(model, **prompt) == "row"


@pytest.mark.parametrize(
    ("kind", "way", "sizes"),
    [
        ("RecurrentGemma", "row", {"logits_soft_cap": 2.0, "block_types": ["attention"]}),
        ("Granite", "row", {"logits_scaling": 0.5}),
        ("FalconH1", "cache", {"lm_head_multiplier": 0.5, "mamba_d_ssm": 64, "mamba_n_heads": 4}),
    ],
)
def test_a_head_has_the_cap_and_the_factor_that_its_family_names(kind, way, sizes):
    more = {"intermediate_size": 48, "num_key_value_heads": 2, "initializer_range": 0.3}
    model = model_of(kind, **{**more, **sizes})
    with torch.no_grad():
        model.get_output_embeddings().weight.mul_(3.0)
    assert way_of(model) == way


def test_a_decoder_alone_is_of_the_family_it_was_made_for() -> None:
    sort = SORTS["llama4"]
    config = transformers.Llama4TextConfig(**{**TEXT, **sort.text})
    assert way_of(seeded("Llama4ForCausalLM", config)) == "cache"


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_layers_that_take_the_keys_of_others_are_cut_for_no_row(attention: str) -> None:
    """Gemma 4's small ones compute the last layers for tokens alone that get logits."""
    config = transformers.Gemma4TextConfig(
        **{**TEXT, "vocab_size_per_layer_input": 99, "hidden_size_per_layer_input": 8},
        **{"layer_types": ["sliding_attention", "full_attention"] * 2, "sliding_window": 6},
        **{"global_head_dim": 16, "num_kv_shared_layers": 2, "attn_implementation": attention},
    )
    assert way_of(seeded("Gemma4ForCausalLM", config)) == "row"


def test_features_of_images_are_found_within_a_model() -> None:
    """Janus has no `get_image_features` of its own."""
    tower = {**TOWER, "projection_dim": 64, "num_image_tokens": 16, "mlp_ratio": 2.0}
    drawer = {"base_channels": 32, "channel_multiplier": [1], "num_res_blocks": 1, "num_patches": 4}
    drawer |= {"embed_dim": 4, "num_embeddings": 8, "latent_channels": 8}
    config = transformers.JanusConfig(
        text_config={**TEXT, "model_type": "llama"},
        vision_config=tower,
        vq_config={**drawer, "projection_dim": 64, "image_token_embed_dim": 64},
        image_token_id=90,
    )
    assert way_of(seeded("JanusForConditionalGeneration", config), **shown(16, 1)) == "row"


def test_marks_around_an_image_have_the_features_that_come_with_it() -> None:
    """Ovis 2's tower gives those too, and its processor writes their ids."""
    marks = [94, 95, 96, 97, 98]
    config = transformers.Ovis2Config(
        text_config={**TEXT, "model_type": "qwen2"},
        vision_config={**TOWER, "vocab_size": 40, "hidden_stride": 2},
        **{"image_token_id": 90, "visual_indicator_token_ids": marks, "hidden_size": 64},
    )
    model = seeded("Ovis2ForConditionalGeneration", config)
    assert way_of(model, **shown(4, 94, 95)) == "row"
    prompts = [{**shown(4, 94), "pixel_values": torch.randn(1, 3, 28, 28)} for _ in range(2)]
    reports = [[torch.tensor([5, 6, 7])]] * 2
    together = shared_prefix_logps(model, prompts, reports).logps
    alone = [shared_prefix_logps(model, [p], reports[:1]).logps for p in prompts]
    torch.testing.assert_close(together, torch.cat(alone), rtol=0, atol=1e-5)


def test_a_prompt_may_begin_with_an_image_and_no_report_sees_ahead() -> None:
    text = {"model_type": "gemma2", "query_pre_attn_scalar": 16, "sliding_window": 8}
    model = sighted_of("PaliGemma", text, projection_dim=64, hidden_size=64)
    prompt = shown(16)
    assert way_of(model, **prompt) == "row"
    # 0 is the part whose tokens see each other; of other families, what is no image
    types = torch.zeros_like(prompt["input_ids"])
    with pytest.raises(NoWay, match="see later ones with input_ids, token_type_ids; leave out"):
        shared_prefix_logps(
            sighted_of("PaliGemma", text, projection_dim=64, hidden_size=64),
            [{**prompt, "token_type_ids": types}],
            [[torch.arange(5, 9)]],
        )


@pytest.mark.parametrize(
    ("kind", "left_out"),
    [
        # PEFT would put them on the parameters of the experts instead, or on none
        ("Glm4Moe", {"gate_proj", "up_proj", "down_proj"}),
        # PEFT refuses it, and a kernel reads its weight past an adapter
        ("FalconH1", {"out_proj"}),
    ],
)
def test_an_adapter_goes_on_the_modules_that_are_named(kind: str, left_out: set[str]) -> None:
    sizes = {"n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
    sizes |= {"mamba_n_heads": 4, "mamba_d_head": 16}
    sizes |= {"mamba_n_groups": 1, "mamba_d_ssm": 64, "num_key_value_heads": 2, "head_dim": 8}
    model = model_of(kind, attn_layer_indices=[1], intermediate_size=48, **sizes)
    linear = {n for n, m in model.model.layers.named_modules() if isinstance(m, torch.nn.Linear)}
    named = Family().lora_targets(model)
    kinds = {name.rsplit(".", 1)[-1] for name in linear} - {"gate"}
    assert left_out < kinds
    assert {name.rsplit(".", 1)[-1] for name in named} == kinds - left_out
    config = peft.LoraConfig(r=2, lora_dropout=0.05, target_modules=named)
    adapted = peft.get_peft_model(model, config).get_base_model()
    assert {n for n, m in adapted.named_modules() if hasattr(m, "lora_A")} == {*named}


_MOE = {"num_key_value_heads": 2, "intermediate_size": 48, "moe_intermediate_size": 16}
_MOE |= {"num_experts": 4, "num_local_experts": 4, "num_experts_per_tok": 2, "head_dim": 8}


@pytest.mark.parametrize(
    ("kind", "sizes", "routes"),
    [
        ("Qwen2Moe", {"shared_expert_intermediate_size": 16}, {"mlp.shared_expert_gate"}),
        ("JetMoe", {"kv_channels": 8}, {"mlp.router.layer", "self_attention.experts.router.layer"}),
        ("Doge", {"is_moe": True, "num_experts": 16}, {"mlp.router_gate"}),
    ],
)
def test_no_adapter_goes_on_what_routes(kind: str, sizes: dict[str, Any], routes: set[str]) -> None:
    model = model_of(kind, **{**_MOE, **sizes})
    layers = Family().decoder(model).layers
    names = {n: m for n, m in layers.named_modules() if isinstance(m, torch.nn.Linear)}
    named = {n.rsplit("layers.", 1)[-1] for n in Family().lora_targets(model)}
    left = {name.split(".", 1)[1] for name in names.keys() - named}
    assert routes <= left
    assert {n.split(".", 1)[1] for n in named}.isdisjoint(routes)
    # of attention all are there
    assert {n for n in names if n.endswith(("q_proj", "o_proj"))} <= named


def test_a_gate_that_routes_nothing_takes_an_adapter() -> None:
    experts = {"num_local_experts": 2, "num_experts_per_tok": 1, "intermediate_size": 48}
    model = model_of("MiniMax", head_dim=8, **experts)
    kinds = {name.rsplit(".", 1)[-1] for name in Family().lora_targets(model)}
    assert {"output_gate", "q_proj", "qkv_proj", "out_proj"} <= kinds


def test_a_loss_of_routers_that_config_json_asks_for_does_not_vanish_in_silence(tmp_path):
    tokenizer = transformers.AutoTokenizer.from_pretrained(text_directory())
    sizes = {"num_local_experts": 2, "num_key_value_heads": 2, "intermediate_size": 48}
    sizes |= {"vocab_size": len(tokenizer), "eos_token_id": tokenizer.eos_token_id}
    mixtral = model_of("Mixtral", output_router_logits=True, **sizes)
    for part in (mixtral, tokenizer):
        part.save_pretrained(tmp_path)
    with pytest.warns(UserWarning, match="asks for the auxiliary loss of the experts' routers"):
        load_policy(tmp_path)
