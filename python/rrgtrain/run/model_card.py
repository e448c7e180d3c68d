"""Write the card of an exported checkpoint.

It says where the checkpoint comes from and what it must not be used for, and holds no path of the
machine that trained it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from rrgclinical.common.shown import one_line, redacted
from rrgclinical.common.table import aligned
from rrgdata.study import ImageRef, Study
from rrgpolicy.model.policy import Policy
from rrgpolicy.model.prompt import prompt_text
from rrgreport.names import phase_name
from rrgreport.summary import RunSummary
from rrgreport.table import summary_cells
from rrgtrain.schema import PROMPT_STYLES
from rrgtrain.state.remembered import INIT, known_base, remembered
from rrgtrain.state.rundir import RunDir

TERMS = {
    "phantom": "procedural drawings of this software: no terms, and no patient",
    "iu_xray": "public (Open-i); cite the source",
    "open_i": "public (Open-i); cite the source",
    "nih": "public; cite the source",
    "mimic_cxr": "PhysioNet's credentialed access; what is made of the data falls under it too",
    "r2gen_mimic": "PhysioNet's credentialed access; what is made of the data falls under it too",
    "chexpert_plus": "the agreement of Stanford AIMI",
    "rexgradient": "the data use agreement on its page at the Hugging Face hub",
    "padchest_gr": "BIMCV's agreement",
}
NOT_KNOWN = "Not known: the checkpoint did not lie in the directory of a finished run."
_SHARED = ("policy.lora.rank", "policy.lora.alpha", "policy.dtype", "policy.freeze_vision", "seed")
_SFT = ("sft.steps", "sft.batch", "sft.lr", "sft.train", *_SHARED)
_RL = (
    *("rl.algorithm", "rl.steps", "rl.prompts", "rl.group", "rl.lr", "rl.beta", "rl.temperature"),
    *("rl.top_p", "rl.max_new_tokens", "reward.terms", *_SHARED),
)


def model_card(checkpoint: str, policy: Policy, dtype: str, *, adapter: bool) -> str:
    """Write README.md for the hub: YAML front matter, then Markdown.

    checkpoint: what was exported, in the directory of its run or elsewhere; dtype: of the weights;
    adapter: they are those of an adapter alone.
    """
    place = Path(checkpoint).resolve()
    run = RunDir(place.parent.parent)
    if run.checkpoints != place.parent:
        run = RunDir(place / "no run")
    known, base = remembered(checkpoint), known_base(checkpoint)
    named = base if base is not None and not Path(base).is_absolute() else None
    front = {
        "license": "other",
        "license_name": "terms-of-base-model-and-data",
        "library_name": "peft" if adapter else "transformers",
        "pipeline_tag": "image-text-to-text" if policy.sees_images else "text-generation",
        **({"base_model": named} if named and named != checkpoint else {}),
        "language": ["en"],
        "tags": ["radiology", "chest-x-ray", "report-generation", "rrgkern", "research-only"],
    }
    parts = {
        "Warnings": _bullets(_warnings(known, base)),
        "Use": _use(policy, known, dtype, adapter=adapter),
        "Data": _data(known),
        "Recipe": _recipe(run, place.name),
        "Metrics": _metrics(run),
        "Licences": _licences(known, named),
    }
    head = yaml.safe_dump(front, sort_keys=False, allow_unicode=True)
    body = "\n\n".join(f"## {part}\n\n{text}" for part, text in parts.items())
    title = f"# Chest X-ray reports by {type(policy.backbone).__name__}"
    return f"---\n{head}---\n\n{title}\n\n{body}\n"


def _warnings(known: Mapping[str, Any], base: str | None) -> Iterator[str]:
    yield (
        "**Not a medical device.** For research only: nobody may be diagnosed or treated by the "
        "reports of this model. They may leave out what is there and say what is not."
    )
    if base is not None and Path(base).name == INIT:
        yield (
            "**Random weights**: training began from random weights of a tiny model, which has "
            "learned nothing but what the data below show."
        )
    if known.get("data.source") == "phantom":
        yield "**Trained on drawings**, not on radiographs: no figure here is a clinical result."
    yield "No result was checked by a radiologist. A high score is no evidence of safety."


def _use(policy: Policy, known: Mapping[str, Any], dtype: str, *, adapter: bool) -> str:
    kind = "an adapter (PEFT) for the base that adapter_config.json names" if adapter else "weights"
    size = "" if policy.images is None else f" {policy.images.sizes}"
    style = known.get("policy.prompt", "editgrpo")
    told = "The prompt of the user's turn is in rrgtrain.json (`policy.prompt`)."
    if style in PROMPT_STYLES:
        views = (ImageRef(Path("image"), "frontal"),) if policy.sees_images else ()
        text = prompt_text(Study("", "", None, None, views), style=style)
        told = f"The user's turn of a study without indication, after its image:\n\n```text\n{text}"
        told += "\n```"
    return (
        f"This directory holds {kind} in {dtype}. Decoding is greedy with no penalty, as in the "
        f"evaluation (temperature 0 for a server).{size} {told}"
    )


def _data(known: Mapping[str, Any]) -> str:
    if "data.source" not in known:
        return "Not known: the checkpoint was not written by rrgtrain."
    kept = ("data.source", "data.sections", "data.images", "data.prior", "data.max_images")
    return _bullets(f"{key}: {known[key]}" for key in kept if known.get(key) is not None)


def _recipe(run: RunDir, stage: str) -> str:
    if not run.config.is_file():
        return NOT_KNOWN
    settings: dict[str, Any] = yaml.safe_load(run.config.read_text(encoding="utf-8"))
    keys = _SFT if stage == "sft" else _RL
    lines = [f"{key}: {value}" for key in keys if (value := _at(settings, key)) is not None]
    return f"{phase_name(stage)}, by rrgtrain.\n\n{_bullets(lines)}"


def _at(settings: Any, key: str) -> Any:
    """The setting at a dotted key, None where there is none."""
    for part in key.split("."):
        settings = settings.get(part) if isinstance(settings, dict) else None
    return settings


def _metrics(run: RunDir) -> str:
    if not run.summary.is_file():
        return NOT_KNOWN
    summary = RunSummary.load(run.summary)
    table = "\n".join(aligned(summary_cells(summary)))
    return f"```text\n{table}\n```\n\n{_bullets(summary.notes)}".rstrip()


def _licences(known: Mapping[str, Any], base: str | None) -> str:
    source = str(known.get("data.source", "not known"))
    terms = TERMS.get(source, "its owner's terms")
    return _bullets(
        [
            f"base model: {base or 'not named here'}; the licence file beside its weights binds",
            f"data ({source}): {terms}",
            "rrgkern, which trained it: Apache-2.0",
        ]
    )


def _bullets(lines: Iterator[str] | list[str]) -> str:
    return "\n".join(f"- {one_line(redacted(line))}" for line in lines)
