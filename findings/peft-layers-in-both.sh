#!/bin/sh
# PEFT 0.21.2 (transformers 5.23.0): `layers_to_transform=[1]` with q_proj on LLaVA adapts layer 1 of the vision tower
# as well as of the language model: a number is looked for in any name. `layers_pattern="layers"` changes nothing,
# for both call theirs so. Guess: the language model's alone. Seen: below.
# So: "the upper layers" of a radiology model train its tower too, and layers that the shorter of both has not are
# in one alone. Name the modules by a pattern that begins at the language model.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" peft==0.21.2 transformers==5.23.0 torch==2.13.0 numpy==2.4.6
PYTHONPATH="$site" python3 -W ignore - <<'EOF'
from peft import LoraConfig, get_peft_model
from transformers import CLIPVisionConfig, LlamaConfig, LlavaConfig, LlavaForConditionalGeneration

sizes = {"hidden_size": 16, "intermediate_size": 32, "num_attention_heads": 2, "num_hidden_layers": 3}
vision = CLIPVisionConfig(image_size=28, patch_size=14, projection_dim=16, **sizes)
text = LlamaConfig(vocab_size=64, num_key_value_heads=2, **sizes)
config = LlavaConfig(vision_config=vision, text_config=text, image_token_index=5)


def adapted(**options: object) -> list[str]:
    model = LlavaForConditionalGeneration(config)
    names = (n for n, _ in get_peft_model(model, LoraConfig(**options)).named_parameters())
    return sorted(n.removeprefix("base_model.model.model.").split(".self_attn")[0] for n in names if "lora_A" in n)


by_number = adapted(target_modules=["q_proj"], layers_to_transform=[1], layers_pattern="layers")
by_pattern = adapted(target_modules=r".*language_model\.layers\.1\..*q_proj")
print(by_number, by_pattern, sep="\n")
assert by_number == ["language_model.layers.1", "vision_tower.encoder.layers.1"]
assert by_pattern == ["language_model.layers.1"]
EOF
