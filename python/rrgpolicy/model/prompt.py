"""Encode a study's prompt, a wording of ours or a file's, with its images."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from rrgclinical.common.errors import UserError
from rrgdata.study import Study
from rrgpolicy.model.backbone import Backbone
from rrgpolicy.model.families.images import Pixels
from rrgpolicy.model.policy import Policy
from rrgpolicy.model.template import check_prompt, filled, parting, render_turn, template_kwargs
from rrgpolicy.model.whole import fetch
from rrgpolicy.settings import PROMPT_STYLES

REASONS = "think"
_ASKS = {
    REASONS: "First reason about what the images show, inside <think> and </think>. "
    "Then write the findings, inside <report> and </report>.",
    "grounded": "Before a finding's full stop write where it lies, left, top, right and bottom in "
    "percent of the image: [55 40 98 80].",
}
_ANSWER = "The heart is normal."
_BLOCKS = f"<think>{_ANSWER}</think>\n<report>{_ANSWER}</report>"
SHOWN = 48  # characters on either side of where a template and training part
# Once parted a token is gone, unless a normaliser takes blanks away.
ROUNDS = 8
# 1 on image tokens, where the forward takes it.
TOKEN_TYPES = ("mm_token_type_ids", "token_type_ids")
# Arguments of a forward that are neither ids, nor the model's view of a whole row.
_NO_IMAGE = ("input_ids", "attention_mask")


@dataclass(frozen=True)
class EncodedPrompt:
    """One prompt of P tokens.

    inputs: the forward's arguments as a processor gives them for one prompt: input_ids int64
    [1, P]; where the model wants them others of that shape, such as mm_token_type_ids; and those
    of the images. positions int64 [A, P], A = 3 with mRoPE, else 1; key: names the images in a
    cache of vision embeddings; text: what the user's turn says after the images; pictures: its
    images, RGB, where `Policy.keeps_pictures`; chat_template_kwargs: what it was rendered with.
    """

    inputs: Mapping[str, Tensor]
    positions: Tensor
    key: str = ""
    text: str = ""
    pictures: tuple[Image.Image, ...] = ()
    chat_template_kwargs: Mapping[str, Any] = field(default_factory=dict)

    @property
    def input_ids(self) -> Tensor:
        return self.inputs["input_ids"][0]

    @property
    def per_token(self) -> dict[str, Tensor]:
        """The arguments with a value for each token, [1, P], without the ids."""
        shape = self.inputs["input_ids"].shape
        named = {k: v for k, v in self.inputs.items() if k.endswith("_ids") and v.shape == shape}
        return {k: v for k, v in named.items() if k != "input_ids"}

    @property
    def images(self) -> dict[str, Tensor]:
        """The arguments that tell of images; empty without any."""
        if "pixel_values" not in self.inputs:
            return {}
        others = (*_NO_IMAGE, *self.per_token)
        return {k: v for k, v in self.inputs.items() if k not in others}

    @property
    def pixel_values(self) -> Tensor | None:
        return self.inputs.get("pixel_values")

    @property
    def image_grid_thw(self) -> Tensor | None:
        return self.inputs.get("image_grid_thw")

    @property
    def mm_token_type_ids(self) -> Tensor:
        """int64 [P], 1 on image tokens."""
        types = self.inputs.get("mm_token_type_ids")
        return torch.zeros_like(self.input_ids) if types is None else types[0]

    def with_tokens(self, more: Tensor) -> dict[str, Tensor]:
        """The arguments of tokens for the prompt with ids `more` [T] behind it."""
        row = more[None]
        values = {k: torch.cat([v, torch.zeros_like(row)], 1) for k, v in self.per_token.items()}
        return values | {"input_ids": torch.cat([self.inputs["input_ids"], row], 1)}

    def with_pixels(self, pixel_values: Tensor | None) -> EncodedPrompt:
        """Put other pixels in place of its own; None leaves none, though it had images."""
        inputs = {k: v for k, v in self.inputs.items() if k != "pixel_values"}
        if pixel_values is None:
            return replace(self, inputs=inputs, pictures=())
        return replace(self, inputs=inputs | {"pixel_values": pixel_values})

    def one_token(self) -> EncodedPrompt:
        """Cut the prompt to its last token, without images; the first may be an image's."""
        cut = {k: v[:, :1] * 0 for k, v in self.per_token.items()}
        inputs = {"input_ids": self.inputs["input_ids"][:, -1:], **cut}
        return replace(self, inputs=inputs, positions=self.positions[:, :1], pictures=())


def prompt_text(study: Study, *, style: str = "editgrpo") -> str:
    """Write the text of the user's turn after the images.

    "editgrpo" carries what EditGRPO's appendix prompt carries: the task, the views of the
    current and the prior images, and the three sections of the request. "short" has the same
    content in as few tokens as will do. "think" is "editgrpo" that asks for reasoning and report
    in blocks (MRG-R1), "grounded" one that asks for boxes (`rrgclinical.grounding`). A section the
    study lacks is left out. Any other style is the path of a file, see `template`.

    Raises:
        UserError: an unknown style, or a file that is no template.
    """
    check_prompt(style, PROMPT_STYLES)
    current = [image.view for image in study.images if not image.prior]
    prior = [image.view for image in study.images if image.prior]
    names = ("indication", "technique", "comparison")
    sections = {name: _plain(getattr(study, name)) for name in names}
    if style not in PROMPT_STYLES:
        views = {"current": _listed(current), "prior": _listed(prior)}
        return filled(style, views | sections)
    head = _short(current, prior) if style == "short" else _editgrpo(current, prior)
    said = [f"{name.upper()}: {text}" for name, text in sections.items() if text]
    return "\n".join([head, *([_ASKS[style]] if style in _ASKS else []), *said])


def encode_prompt(
    policy: Policy, study: Study, images: Sequence[Image.Image], *, style: str = "editgrpo"
) -> EncodedPrompt:
    """Encode the prompt of a study with its pictures, as `prompt_of` does.

    images: RGB pictures, one per `study.images`, in that order.
    """
    pixels = None if policy.images is None else policy.images.encode(images)
    return prompt_of(policy, study, pixels, style=style)


def prompt_of(
    policy: Policy, study: Study, pixels: Pixels | None, *, style: str = "editgrpo"
) -> EncodedPrompt:
    """Render the study through the tokenizer's chat template and encode it.

    Args:
        policy: gives tokenizer and template.
        study: its `images` name the views; none of them makes a prompt of text alone.
        pixels: those of `study.images`, in that order; None where there are none.
        style: see `prompt_text`.

    Raises:
        UserError: another number of images than the study has, a chat template that does not
            place them, or a policy that cannot see any.
    """
    if not policy.sees_images:
        refuse_images([study], type(policy.backbone).__name__)
    count = 0 if pixels is None else len(pixels.tokens)
    if count != len(study.images):
        raise UserError(
            f"study {study.id}: {count} pictures for {len(study.images)} images; "
            "read one picture per image"
        )
    text = _said(policy, study, style)
    kwargs = kwargs_of(policy, style)
    rendered = _rendered(policy, text, count, kwargs)
    inputs = _tokens(policy, study, rendered, () if pixels is None else pixels.tokens)
    if pixels is not None:
        inputs |= pixels.inputs
    prompt = placed(policy, inputs, key=study.id, text=text)
    pictures = () if pixels is None else pixels.pictures
    return replace(prompt, pictures=pictures, chat_template_kwargs=kwargs)


def kwargs_of(policy: Policy, style: str) -> dict[str, Any]:
    """Collect the values of the chat template for prompts of a style, see `template_kwargs`."""
    own = policy.chat_template_kwargs
    return template_kwargs(policy.tokenizer, own, reasons=style == REASONS)


def marked_ids(policy: Policy, prompt: EncodedPrompt) -> list[int]:
    """Encode the prompt with one mark for each picture, as the chat template writes it."""
    count, kwargs = len(prompt.pictures), prompt.chat_template_kwargs
    return _ids(policy, _rendered(policy, prompt.text, count, kwargs)).tolist()


def template_told(policy: Policy, style: str) -> str:
    """Say what the chat template is rendered with, in a sentence; empty without any value."""
    kwargs = kwargs_of(policy, style)
    values = f"`{json.dumps(kwargs)}` (`chat_template_kwargs` of vLLM)"
    return f"The chat template is rendered with {values}." if kwargs else ""


def template_held(policy: Policy, style: str) -> str:
    """Hold what training writes against the chat template's own conversation, in a line.

    Raises UserError as `prompt_of` does for a template that fails.
    """
    kwargs = kwargs_of(policy, style)
    answer = _BLOCKS if style == REASONS else _ANSWER
    content = content_of(policy, "Describe the findings.")
    parts = fetch(
        policy.tokenizer.name_or_path,
        lambda: parting(policy.tokenizer, content, answer, kwargs),
        "the chat template of ",
    )
    values = " ".join(f"{name}={json.dumps(value)}" for name, value in kwargs.items())
    by = f", with {values}" if values else ""
    if parts is None:
        return f"prompt, answer and end of turn are as it writes a conversation{by}"
    both, trained, conversation = parts
    return (
        f"IT PARTS{by}: behind {both[-SHOWN:]!r} training writes {trained[:SHOWN]!r}, and the "
        f"template itself {conversation[:SHOWN]!r}; see policy.chat_template_kwargs"
    )


def _rendered(policy: Policy, text: str, count: int, kwargs: Mapping[str, Any]) -> str:
    """The turn of `count` images with `text` behind them, by the tokenizer's chat template."""
    return fetch(
        policy.tokenizer.name_or_path,
        lambda: render_turn(policy.tokenizer, content_of(policy, text, count), kwargs),
        "the chat template of ",
    )


def content_of(policy: Policy, text: str, count: int = 0) -> Any:
    """Make the content of a user's turn, in the form that its template takes.

    Templates of models of text alone take nothing but a string, those of some others a list.
    """
    if policy.images is None:
        return text
    return [*({"type": "image"} for _ in range(count)), {"type": "text", "text": text}]


def _tokens(policy: Policy, study: Study, rendered: str, sizes: Sequence[int]) -> dict[str, Tensor]:
    """Make the arguments of tokens, [1, P], of a turn with images of `sizes` tokens."""
    image_id = policy.image_token_id
    if policy.images is None or image_id is None:
        return {"input_ids": _ids(policy, rendered)[None]}
    mark, shown = policy.images.marks(policy.tokenizer, image_id)
    once = _ids(policy, rendered.replace(mark, shown))
    if (count := int((once == image_id).sum())) != len(sizes):
        raise UserError(
            f"study {study.id}: the chat template placed {count} of {len(sizes)} images; use a "
            f"tokenizer whose template writes {mark} for each"
        )
    times = torch.ones_like(once)
    times[once == image_id] = torch.tensor(sizes, dtype=torch.int64)
    input_ids = once.repeat_interleave(times)[None]
    takes = inspect.signature(policy.backbone.forward).parameters
    types = input_ids.eq(image_id).long()
    return {"input_ids": input_ids} | {name: types for name in TOKEN_TYPES if name in takes}


def _ids(policy: Policy, text: str) -> Tensor:
    ids = policy.tokenizer(text, add_special_tokens=False)["input_ids"]
    return torch.tensor(ids, dtype=torch.int64)


def _said(policy: Policy, study: Study, style: str) -> str:
    """The user's text, with a blank in what the tokenizer would read as a special token.

    A section that says `<start_of_image>` or `</s>` would shift the images or end the turn.
    """
    text = prompt_text(study, style=style)
    tokenizer = policy.tokenizer
    for _ in range(ROUNDS):
        read = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
        spans = [
            span
            for token, span in zip(read["input_ids"], read["offset_mapping"], strict=True)
            # a character that the tokenizer does not know is no forgery
            if token in policy.special_ids
            and text[slice(*span)].strip()
            and (token != tokenizer.unk_token_id or text[slice(*span)] == tokenizer.unk_token)
        ]
        for a, b in reversed(spans):
            token_text = text[a:b].strip()  # some take the blanks around them along
            parted = f"{token_text[0]} {token_text[1:]}" if len(token_text) > 1 else " "
            text = text[:a] + parted + text[b:]
        if not spans:
            return text
    raise UserError(
        f"study {study.id}: its text reads as special tokens of the tokenizer, however they are "
        "parted; take them out of its sections"
    )


def placed(
    backbone: Backbone, inputs: Mapping[str, Tensor], *, key: str = "", text: str = ""
) -> EncodedPrompt:
    """Find the positions of a prompt whose inputs a processor gave, on the CPU."""
    return EncodedPrompt(inputs, backbone.family.positions(backbone.backbone, inputs), key, text)


def refuse_images(studies: Iterable[Study], architecture: str) -> None:
    """Raise UserError for the first study with images, which a text model cannot see."""
    for study in studies:
        if study.images:
            raise UserError(
                f"study {study.id} has {len(study.images)} image(s), but a {architecture} reads "
                "text alone; pass data.images=none, or name a model that sees as policy.path"
            )


def _editgrpo(current: list[str], prior: list[str]) -> str:
    if not current and not prior:
        return (
            "You assist a radiologist. No image of this chest X-ray study is at hand. Write the "
            "findings that the following information supports."
        )
    given = f"You are given the current {_listed(current)}" if current else "You are given"
    if prior:
        given += f"{' and' if current else ''} the prior {_listed(prior)}"
    task = (
        "Describe the findings of the current study in detail. Where a prior study is given, "
        "take it into account."
    )
    return f"You assist a radiologist in reading a chest X-ray study. {given}.\n{task}"


def _short(current: list[str], prior: list[str]) -> str:
    words = " ".join(_plain(view) or "image" for view in current) or "no image"
    return words + ("; prior " + " ".join(_plain(v) or "image" for v in prior) if prior else "")


def _listed(views: list[str]) -> str:
    """Name the views, "frontal and lateral images"; those not known are images and no more."""
    names = [_plain(view) for view in views if view]
    unknown = len(views) - len(names)
    if not names:
        return "" if not views else "image" if unknown == 1 else f"{unknown} images"
    joined = names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
    named = f"{joined} image{'s' if len(names) > 1 else ''}"
    return f"{named} and {unknown} of unnamed view" if unknown else named


def _plain(text: str) -> str:
    """One line that cannot be read as a special token (those begin with `<|`)."""
    return " ".join(text.split()).replace("<|", "< |")
