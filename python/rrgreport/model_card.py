"""Write the card of an exported checkpoint.

It says where the checkpoint comes from and what it must not be used for, and holds no path of the
machine that trained it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from rrgclinical.common.shown import one_line, redacted
from rrgclinical.common.table import aligned
from rrgdata.sources import Source, every_source
from rrgreport.names import phase_name
from rrgreport.run_files import RunFiles
from rrgreport.summary import RunSummary
from rrgreport.table import summary_cells

PHANTOM_TERMS = "procedural drawings of this software: no terms, and no patient"
NOT_KNOWN = "Not known: the checkpoint did not lie in the directory of a finished run."
_SHARED = ("policy.lora.rank", "policy.lora.alpha", "policy.dtype", "policy.freeze_vision", "seed")
_SFT = ("sft.steps", "sft.batch", "sft.lr", "sft.train", *_SHARED)
_RL = (
    *("rl.algorithm", "rl.steps", "rl.prompts", "rl.group", "rl.lr", "rl.beta", "rl.temperature"),
    *("rl.top_p", "rl.max_new_tokens", "reward.terms", *_SHARED),
)


@dataclass(frozen=True)
class Exported:
    """Describe a checkpoint that is exported.

    source: what was exported, in the directory of its run or elsewhere. model: name of its class.
    dtype: of the weights. adapter: they are those of an adapter alone. images: to which size it
    scales images, None where it sees none. turn: the user's turn of a study without indication,
    None where a file words it. trained_for: settings of its training by dotted key. base: what that
    began from, None where it is not known. random: with random weights. template: what
    its chat template is rendered with, in a sentence.
    """

    source: str
    model: str
    dtype: str
    adapter: bool
    images: str | None
    turn: str | None
    trained_for: Mapping[str, Any]
    base: str | None
    random: bool
    template: str = ""


def model_card(exported: Exported) -> str:
    """Write README.md for the hub: YAML front matter, then Markdown."""
    place = Path(exported.source).resolve()
    run = RunFiles(place.parent.parent)
    if run.checkpoints != place.parent:
        run = RunFiles(place / "no run")
    base, data = exported.base, exported.trained_for
    named = base if base is not None and not Path(base).is_absolute() else None
    front = {
        "license": "other",
        "license_name": "terms-of-base-model-and-data",
        "library_name": "peft" if exported.adapter else "transformers",
        "pipeline_tag": "text-generation" if exported.images is None else "image-text-to-text",
        **({"base_model": named} if named and named != exported.source else {}),
        "language": ["en"],
        "tags": ["radiology", "chest-x-ray", "report-generation", "rrgkern", "research-only"],
    }
    parts = {
        "Warnings": _bullets(_warnings(exported)),
        "Use": _use(exported),
        "Data": _data(data),
        "Recipe": _recipe(run, place.name),
        "Metrics": _metrics(run),
        "Licences": _licences(data, named),
    }
    head = yaml.safe_dump(front, sort_keys=False, allow_unicode=True)
    body = "\n\n".join(f"## {part}\n\n{text}" for part, text in parts.items())
    return f"---\n{head}---\n\n# Chest X-ray reports by {exported.model}\n\n{body}\n"


def _warnings(exported: Exported) -> Iterator[str]:
    yield (
        "**Not a medical device.** For research only: nobody may be diagnosed or treated by the "
        "reports of this model. They may leave out what is there and say what is not."
    )
    if exported.random:
        yield (
            "**Random weights**: training began from random weights of a tiny model, which has "
            "learned nothing but what the data below show. Of real reports its tokenizer learned "
            "no word that fewer than five studies hold, or fewer than all where they are fewer."
        )
    if exported.trained_for.get("data.source") == "phantom":
        yield "**Trained on drawings**, not on radiographs: no figure here is a clinical result."
    yield "No result was checked by a radiologist. A high score is no evidence of safety."


def _use(exported: Exported) -> str:
    kind = "weights"
    if exported.adapter:
        kind = "an adapter (PEFT) for the base that adapter_config.json names"
    size = f" {exported.images}" if exported.images else ""
    template = f" {exported.template}" if exported.template else ""
    prompt = "The prompt of the user's turn is in rrgtrain.json (`policy.prompt`)."
    if exported.turn is not None:
        prompt = (
            "The user's turn of a study without indication, after its image:\n\n"
            f"```text\n{exported.turn}\n```"
        )
    return (
        f"This directory holds {kind} in {exported.dtype}. Decoding is greedy with no penalty, as "
        f"in the evaluation (temperature 0 for a server).{size}{template} {prompt}"
    )


def _data(data: Mapping[str, Any]) -> str:
    if "data.source" not in data:
        return "Not known: the checkpoint was not written by rrgtrain."
    shown = ("data.source", "data.sections", "data.images", "data.prior", "data.max_images")
    return _bullets(f"{key}: {data[key]}" for key in shown if data.get(key) is not None)


def _recipe(run: RunFiles, stage: str) -> str:
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


def _metrics(run: RunFiles) -> str:
    if not run.summary.is_file():
        return NOT_KNOWN
    summary = RunSummary.load(run.summary)
    table = "\n".join(aligned(summary_cells(summary)))
    return f"```text\n{table}\n```\n\n{_bullets(summary.notes)}".rstrip()


def _licences(data: Mapping[str, Any], base: str | None) -> str:
    source = str(data.get("data.source", "not known"))
    terms = PHANTOM_TERMS if source == "phantom" else Source.terms
    if source in every_source():
        terms = every_source()[source].terms
    return _bullets(
        [
            f"base model: {base or 'not named here'}; the licence file beside its weights binds",
            f"data ({source}): {terms}",
            "rrgkern, which trained it: Apache-2.0",
        ]
    )


def _bullets(lines: Iterator[str] | list[str]) -> str:
    return "\n".join(f"- {one_line(redacted(line))}" for line in lines)
