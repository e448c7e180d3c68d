"""Put one radiograph through every family's processor: `python -m experiments.processors`.

It is the table of docs/backbones.md (`experiments.page_table`): a picture of 2,544 x 3,056 pixels,
a small one, and both in one prompt. Nothing is fetched: a processor is the class of transformers
with the values that the family publishes, written here, or the class's own where it says "class",
and a tokenizer of its special tokens alone. Rows of transformers want torchvision, which the
environment of `make parity` has; ours are what `sft` and `rl` make of the same pictures.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
import transformers
from PIL import Image
from tokenizers import AddedToken, Tokenizer, models
from transformers import AutoConfig, PreTrainedTokenizerFast

from experiments.page_table import PageTable
from rrgpolicy.model.families import family_of

LARGE, SMALL = (2544, 3056), (512, 512)
PROMPTS = ((LARGE,), (SMALL,), (LARGE, SMALL))


class Processor(NamedTuple):
    """Name a family's processor and how it is made.

    image: its token, once for each feature; mark: what a prompt has for an image; call: options of
    the processor's call; tokens: names of special tokens by what the tokenizer calls them.
    """

    family: str
    bounds: str
    make: Callable[..., Any]
    tokens: Mapping[str, str]
    image: str
    mark: str
    call: Mapping[str, Any] = {}


QWEN = {
    "image_token": "<|image_pad|>",
    "video_token": "<|video_pad|>",
    "vision_bos_token": "<|vision_start|>",
    "vision_eos_token": "<|vision_end|>",
}
GEMMA = {
    "boi_token": "<start_of_image>",
    "eoi_token": "<end_of_image>",
    "image_token": "<image_soft_token>",
}
INTERN = {
    "context_image_token": "<IMG_CONTEXT>",
    "start_image_token": "<img>",
    "end_image_token": "</img>",
    "video_token": "<video>",
}
LLAVA = {"image_token": "<image>", "video_token": "<video>"}
GLM = {"image_token": "<|image|>", "video_token": "<|video|>"}
IDEFICS = {
    "image_token": "<image>",
    "fake_image_token": "<fake_token_around_image>",
    "global_image_token": "<global-img>",
    "end_of_utterance_token": "<end_of_utterance>",
}
PIXTRAL = {"image_token": "[IMG]", "break": "[IMG_BREAK]", "end": "[IMG_END]"}
PAN = {
    "do_pan_and_scan": True,
    "pan_and_scan_min_crop_size": 256,
    "pan_and_scan_max_num_crops": 4,
    "pan_and_scan_min_ratio_to_activate": 1.2,
}


def square(side: int) -> dict[str, int]:
    """Write the size of a square."""
    return {"height": side, "width": side}


def area(least: int, most: int) -> dict[str, int]:
    """Write the bounds of an image's pixels, as Qwen's processors call them."""
    return {"shortest_edge": least, "longest_edge": most}


def processors() -> Iterator[Processor]:
    """Yield the processors, in the order of the page."""
    # their constructors are typed by the class, and each name here stands for several
    of: Any = transformers
    make: Any
    qwen, pil = of.Qwen2_5_VLProcessor, of.Qwen2VLImageProcessorPil
    bounds = {
        "class: 3,136 to 1,003,520 pixels": {},
        "hub: 3,136 to 12,845,056": {"size": area(3136, 12845056)},
    }
    for said, sizes in bounds.items():
        make = partial(qwen, pil(**sizes), video_processor=of.Qwen2VLVideoProcessor())
        yield Processor("Qwen2.5-VL", said, make, QWEN, "<|image_pad|>", "<|image_pad|>")
    patches = pil(size=area(65536, 16777216), patch_size=16)
    make = partial(of.Qwen3VLProcessor, patches, video_processor=of.Qwen3VLVideoProcessor())
    said = "hub: 65,536 to 16,777,216 pixels"
    yield Processor("Qwen3-VL", said, make, QWEN, "<|image_pad|>", "<|image_pad|>")
    patches = of.Glm4vImageProcessorPil()
    make = partial(of.Glm4vProcessor, patches, video_processor=of.Glm4vVideoProcessor())
    yield Processor("GLM-4V", "class: 12,544 to 11,760,000", make, GLM, "<|image|>", "<|image|>")
    make = partial(of.Gemma3Processor, of.Gemma3ImageProcessorPil(size=square(896)))
    ends = (GEMMA, GEMMA["image_token"], GEMMA["boi_token"])
    yield Processor("Gemma 3", "hub: 896 x 896", make, *ends)
    yield Processor("Gemma 3", "the same, pan and scan", make, *ends, {"images_kwargs": PAN})
    tiles = of.GotOcr2ImageProcessorPil(size=square(448))
    rest = {"image_seq_length": 256, "video_processor": of.InternVLVideoProcessor()}
    make = partial(of.InternVLProcessor, tiles, **rest)
    context = INTERN["context_image_token"]
    yield Processor("InternVL3", "hub: up to 12 tiles of 448 x 448", make, INTERN, context, context)
    sides = {"size": {"shortest_edge": 336}, "crop_size": square(336)}
    tower = {"patch_size": 14, "vision_feature_select_strategy": "default"}
    tower["num_additional_image_tokens"] = 1
    make = partial(of.LlavaProcessor, of.CLIPImageProcessorPil(**sides), **tower)
    yield Processor("LLaVA 1.5", "hub: 336 x 336, cropped", make, LLAVA, "<image>", "<image>")
    make = partial(of.LlavaNextProcessor, of.LlavaNextImageProcessorPil(**sides), **tower)
    yield Processor("LLaVA-NeXT", "hub: up to 4 tiles of 336", make, LLAVA, "<image>", "<image>")
    vision = of.LlavaOnevisionImageProcessorPil()
    tower = {"num_image_tokens": 729, "vision_feature_select_strategy": "full"}
    tower["video_processor"] = of.LlavaOnevisionVideoProcessor()
    make = partial(of.LlavaOnevisionProcessor, vision, **tower)
    said = "hub: up to 36 tiles of 384, 9 in tokens"
    yield Processor("LLaVA-OneVision", said, make, LLAVA, "<image>", "<image>")
    patches = of.PixtralImageProcessorPil(size={"longest_edge": 1540}, patch_size=14)
    make = partial(of.PixtralProcessor, patches, patch_size=14, spatial_merge_size=2)
    yield Processor("Mistral 3", "hub: longest edge 1,540", make, PIXTRAL, "[IMG]", "[IMG]")
    make = partial(of.Idefics3Processor, of.Idefics3ImageProcessorPil(), image_seq_len=169)
    yield Processor("Idefics3", "hub: 364 of 1,456", make, IDEFICS, "<image>", "<image>")


def tokenizer(tokens: Mapping[str, str]) -> Any:
    """Make a tokenizer that knows special tokens and no word."""
    made = Tokenizer(models.WordLevel({"<unk>": 0}, unk_token="<unk>"))
    names = [AddedToken(name, special=True, normalized=False) for name in tokens.values()]
    made.add_special_tokens(names)
    return PreTrainedTokenizerFast(
        tokenizer_object=made,
        unk_token="<unk>",
        pad_token="<unk>",
        extra_special_tokens=dict(tokens),
    )


def pictures(sizes: Sequence[tuple[int, int]]) -> list[Image.Image]:
    """Make grey pictures; what they show changes no count."""
    return [Image.new("RGB", size, (90, 90, 90)) for size in sizes]


def computed(values: torch.Tensor) -> str:
    """Say what the tower is given: patches, or squares."""
    if values.dim() == 2:
        return f"{len(values):,} patches"
    *counts, _, height, width = values.shape
    number = int(torch.tensor(counts).prod())
    return f"{number} of {width} x {height}"


def of_transformers() -> Iterator[list[str]]:
    """Yield the rows of the families' own processors."""
    import torchvision  # noqa: F401  the processors ask for it

    for each in processors():
        whole = each.make(tokenizer=tokenizer(each.tokens))
        image = whole.tokenizer.convert_tokens_to_ids(each.image)
        made = []
        for sizes in PROMPTS:
            text = each.mark * len(sizes)
            encoded = whole(text=[text], images=[pictures(sizes)], return_tensors="pt", **each.call)
            made.append((int((encoded["input_ids"] == image).sum()), encoded["pixel_values"]))
        yield [each.family, each.bounds, *cells(made)]


def cells(made: Sequence[tuple[int, torch.Tensor]]) -> Iterator[str]:
    """Yield tokens of each prompt, and what is computed for the first and the last."""
    (large, one), (small, _), (both, two) = made
    yield from (f"{large:,}", computed(one), f"{small:,}", f"{both:,}", computed(two))


RULES: tuple[tuple[str, str, str, dict[str, Any], tuple[int | None, int | None] | None], ...] = (
    ("Qwen2.5-VL", "qwen2_5_vl", "the papers' 262,144 to 401,408", {}, (262144, 401408)),
    ("Qwen3-VL", "qwen3_vl", "the same", {"patch_size": 16}, (262144, 401408)),
    ("Gemma 3", "gemma3", "as published", {"size": square(896)}, None),
    ("InternVL3", "internvl", "12 tiles", {"size": square(448)}, None),
    ("InternVL3", "internvl", "policy.max_pixels=802816", {"size": square(448)}, (None, 802816)),
    ("LLaVA-OneVision", "llava_onevision", "as published", {}, None),
)
"""Family, model type, bounds in words, values of its processor, and `policy.min_pixels`, `max_`."""


def of_ours() -> Iterator[list[str]]:
    """Yield the rows of the rules by which the trainer prepares images."""
    for family, kind, said, values, bounds in RULES:
        config = AutoConfig.for_model(kind)
        rule_of = family_of(config).images
        rule = rule_of(getattr(transformers, rule_of.reads)(**values), config)
        if bounds is not None:
            rule.bound(*bounds)
        made = []
        for sizes in PROMPTS:
            encoded = rule.encode(pictures(sizes))
            assert encoded is not None
            made.append((sum(encoded.tokens), encoded.pixel_values))
        yield [family, said, *cells(made)]


TABLE = PageTable(
    "experiments.processors",
    "backbones.md",
    ("family", "bounds", "tokens", "computed", "tokens of 512 x 512", "of both", "computed"),
    {"transformers": of_transformers, "rrgkern": of_ours},
)


if __name__ == "__main__":
    sys.exit(TABLE.main(sys.argv[1:]))
