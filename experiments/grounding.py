"""Boxes beside sentences: data that have them, reward terms, and their values with intervals.

    python -m experiments.grounding --phantoms 400 DIR            draw phantoms
    rrgtrain demo demo data.source=experiments.grounding:load data.root=DIR \\
        policy.prompt=experiments/grounded_prompt.txt \\
        'reward.terms={experiments.grounding:grounding_f1: 1, label_f1: 1}' --out RUN
    python -m experiments.grounding RUN                           the card of a run

A grounded report has a sentence's boxes before its full stop, `Small left effusion [55 40 98 80].`:
left, top, right, bottom in whole percent of the image's width and height. `load` reads PadChest-GR
(boxes by sentence, shares of the image) and phantoms. A phantom's box is around the pixels that its
finding changes on the film, those on both sides halved; its report is the case's, without damage.
Data without boxes are refused, by the loader and by the terms.

A finding is an entity that `rules` reads as present in a sentence with boxes, and has all boxes of
that sentence. Findings of a report and its reference are matched where each is the other's best by
cosine among those present (one call of `entity_match` a batch), at a cosine of `ALIKE` or more.

    IoU            of a pair: shared area of both unions of boxes / area of either
    grounding_iou  = mean over the reference's findings of their pair's IoU, 0 of an unmatched one
    grounding_f1   = 2 t / (findings of both reports together), t the pairs of IoU >= 0.5

Where neither has a finding both are 1, where one of them has none both are 0. A box that is none
(`[90 0 10 5]`, beyond 100) has no area, so that it costs and never pays.
"""

from __future__ import annotations

import argparse
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rrgclinical import build_extractor
from rrgclinical.common import json_reader
from rrgclinical.common.files import read_whole_text
from rrgclinical.common.table import aligned
from rrgclinical.metrics import intervals, mean_scores, of_patients, values
from rrgclinical.rules import split_sentences
from rrgdata.catalogue import Catalogue, ReadSettings
from rrgdata.load import load_studies
from rrgdata.phantom import Case, Finding, PhantomConfig, sample_case, write_phantom, write_report
from rrgdata.phantom.draw import draw_frontal
from rrgdata.study import Study
from rrgkern import ReportEntities, entity_match
from rrgtrain.errors import UserError
from rrgtrain.rewards.batch import RewardBatch

ALIKE, ENOUGH = 0.7, 0.5
"""Cosine from which two findings are one, and IoU from which a finding is in its place."""
SIDE, FAINT = 96, 0.2
"""Pixels of the film that a phantom's boxes are read on; share of its greatest change."""
_BOX = re.compile(r"\s*\[(\d{1,3}) (\d{1,3}) (\d{1,3}) (\d{1,3})\]")
_SPLITS = ("train", "val", "test")
_GRID = 100

Box = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class GroundedStudy(Study):
    """A study whose report has the boxes of its findings, if it has any."""


def parse(report: str) -> tuple[str, list[tuple[int, Box]]]:
    """Take the boxes out of a report: its text, boxes with their places."""
    text, boxes, last = "", [], 0
    for match in _BOX.finditer(report):
        text += report[last : match.start()]
        last = match.end()
        left, top, right, bottom = map(int, match.groups())
        boxes.append((len(text), (left, top, right, bottom)))
    return text + report[last:], boxes


def area(boxes: Sequence[Box]) -> np.ndarray:
    """Draw the union of boxes, bool [100, 100]; one that is none draws nothing."""
    drawn = np.zeros((_GRID, _GRID), dtype=bool)
    for left, top, right, bottom in boxes:
        if left < right <= _GRID and top < bottom <= _GRID:
            drawn[top:bottom, left:right] = True
    return drawn


def iou(one: np.ndarray, other: np.ndarray) -> float:
    """Divide the shared area by that of either; 0 of nothing."""
    either = int((one | other).sum())
    return int((one & other).sum()) / either if either else 0.0


def grounded(sentence: str, boxes: Sequence[Box]) -> str:
    """Write a sentence with its boxes before its full stop."""
    if not boxes:
        return sentence
    body = sentence.rstrip()
    stop = body[-1] if body[-1:] in ".!?" else "."
    written = " ".join(f"[{' '.join(map(str, box))}]" for box in boxes)
    return f"{body.rstrip('.!?')} {written}{stop}"


@dataclass(frozen=True)
class Findings:
    """Findings with boxes of R reports: `entities` for the match, and areas."""

    entities: ReportEntities
    areas: list[list[np.ndarray]]


def findings_of(reports: Sequence[str]) -> Findings:
    """Read the present findings of the sentences that have boxes."""
    parsed = [parse(report) for report in reports]
    read = build_extractor("rules").extract([text for text, _ in parsed])
    rows, offsets, areas = [], [0], list[list[np.ndarray]]()
    for r, (_, boxes) in enumerate(parsed):
        own = []
        for e in range(int(read.offsets[r]), int(read.offsets[r + 1])):
            begin, end = read.sentences[r][int(read.sentence[e])]
            inside = [box for place, box in boxes if begin < place <= end]
            if inside and read.presence[e] == 1:
                rows.append(e)
                own.append(area(inside))
        areas.append(own)
        offsets.append(len(rows))
    chosen = np.array(rows, dtype=np.int64)
    arrays = np.array(offsets), read.presence[chosen], read.embedding[chosen]
    return Findings(ReportEntities(*map(torch.as_tensor, arrays)), areas)


def measure(reports: Sequence[str], references: Sequence[str]) -> dict[str, np.ndarray]:
    """Compute `grounding_iou` and `grounding_f1`, float64 [R] each; one launch for all."""
    got, want = findings_of(reports), findings_of(references)
    match = entity_match(got.entities, want.entities)
    cosine, other, back = (t.numpy()[:, 1] for t in (match.cosine_x, match.index_x, match.index_y))
    rows = {name: np.ones(len(reports)) for name in ("grounding_iou", "grounding_f1")}
    x, y = (f.entities.offsets.tolist() for f in (got, want))
    for r, (own, true) in enumerate(zip(got.areas, want.areas, strict=True)):
        if not own and not true:
            continue
        shared = []
        for i in range(len(own)):
            j = int(other[x[r] + i])
            if j >= 0 and cosine[x[r] + i] >= ALIKE and int(back[y[r] + j]) == i:
                shared.append(iou(own[i], true[j]))
        rows["grounding_iou"][r] = sum(shared) / len(true) if true else 0.0
        placed = sum(one >= ENOUGH for one in shared)
        rows["grounding_f1"][r] = 2 * placed / (len(own) + len(true))
    return rows


def _term(batch: RewardBatch, name: str) -> np.ndarray:
    for study in batch.studies:
        if not isinstance(study, GroundedStudy):
            raise UserError(
                f"study {study.id} has no boxes; use data.source=experiments.grounding:load"
            )
    rows = batch.once("grounding", lambda: measure(batch.reports, batch.references))
    return rows[name]


def grounding_iou(batch: RewardBatch) -> np.ndarray:
    """Compute the reward term `grounding_iou`; UserError for studies without boxes."""
    return _term(batch, "grounding_iou")


def grounding_f1(batch: RewardBatch) -> np.ndarray:
    """Compute the reward term `grounding_f1`; UserError for studies without boxes."""
    return _term(batch, "grounding_f1")


def load(root: Path, settings: ReadSettings, catalogue: Catalogue) -> None:
    """Fill the catalogue with grounded reports of PadChest-GR, or of phantoms.

    UserError for another data set, and for one in which no sentence has a box.
    """
    phantom = (root / "phantom.json").is_file()
    source = "iu_xray" if phantom else "padchest_gr"
    if not phantom and not any(root.glob("grounded_reports_*.json")):
        raise UserError(f"{root} has no boxes; wanted PadChest-GR, or phantoms (phantom.json)")
    inner = load_studies(source, root, settings)
    catalogue.broken += inner.broken
    catalogue.left_out.update(inner.left_out)
    catalogue.notes += inner.notes
    reports = _phantom_reports(root, inner) if phantom else _padchest_reports(root, inner)
    if not any(_BOX.search(report) for report in reports.values()):
        raise UserError(f"{root}: no sentence has a box; download the reports again")
    for of in inner.studies.values():
        for study in of:
            own = {field.name: getattr(study, field.name) for field in fields(Study)}
            own["report"] = reports[study.id]
            catalogue.add(GroundedStudy(**own), study.id)


def _padchest_reports(root: Path, inner: Catalogue) -> dict[str, str]:
    """Write PadChest-GR's sentences with their boxes, by study."""
    (path,) = root.glob("grounded_reports_*.json")
    known = {study.id for of in inner.studies.values() for study in of}
    reports = {}
    for entry in json_reader.read(path, list):
        if not isinstance(entry, dict) or str(entry.get("StudyID")) not in known:
            continue  # broken, and told by its loader
        name = str(entry["StudyID"])
        sentences = []
        for finding in entry["findings"]:
            written = finding.get("boxes") or []
            boxes = [_percent(box, f"{path.name}: {name}") for box in written]
            text = " ".join((finding["sentence_en"] or "").split())
            sentences += [grounded(text, boxes)] if text else []
        reports[name] = " ".join(s if s[-1] in ".!?" else f"{s}." for s in sentences)
    return reports


def _percent(box: Any, where: str) -> Box:
    numbers = box if isinstance(box, list) else []
    whole = [x for x in numbers if isinstance(x, int | float) and 0 <= x <= 1]
    if len(numbers) != 4 or len(whole) != 4 or not (box[0] < box[2] and box[1] < box[3]):
        raise UserError(f"{where} has box {box!r:.60}; wanted left, top, right, bottom in [0, 1]")
    low, high = ([f(_GRID * x) for x in box] for f in (math.floor, math.ceil))
    return low[0], low[1], high[2], high[3]


def _phantom_reports(root: Path, inner: Catalogue) -> dict[str, str]:
    stamp = json_reader.read(root / "phantom.json", dict)
    names = {field.name for field in fields(PhantomConfig)}
    config = PhantomConfig(**{key: value for key, value in stamp.items() if key in names})
    reports = {}
    for split, studies in inner.studies.items():
        for study in studies:
            number = int(study.id.rpartition("_")[2])
            case = sample_case(config, (config.seed, _SPLITS.index(split), number))
            reports[study.id] = phantom_report(case, config)
    return reports


def phantom_report(case: Case, config: PhantomConfig) -> str:
    """Write what a case shows, a sentence a finding, each with its boxes."""
    terse = replace(config, terse=True)
    sentences: list[str] = []
    for finding in case.findings:
        opening, said, *_ = _sentences(case, finding, terse)
        sentences = sentences or [opening]
        sentences.append(grounded(said, phantom_boxes(case, finding, config)))
    if all(finding.name == "device" for finding in case.findings):
        opening, *closing = _sentences(case, None, terse)
        sentences = [*(sentences or [opening]), *closing]
    return " ".join(sentences)


def _sentences(case: Case, finding: Finding | None, terse: PhantomConfig) -> list[str]:
    report = write_report(case, [finding] if finding else [], (), terse)
    return [report[a:b].strip() for a, b in split_sentences(report)]


def phantom_boxes(case: Case, finding: Finding, config: PhantomConfig) -> list[Box]:
    """Find the boxes around what a finding changes on a film."""
    film = replace(config, size=SIDE, noise=0.0)
    # fluid lifts what lies above it, so it is there on both films
    others = tuple(f for f in case.findings if f.name == "effusion" and f != finding)
    with_it, without = (
        np.asarray(draw_frontal(replace(case, findings=f), film), dtype=np.int64)
        for f in ((*others, finding), others)
    )
    change = np.abs(with_it - without)
    mask = change > max(1.0, FAINT * change.max())
    halves = [mask]
    if finding.side == "bilateral":
        left = np.arange(SIDE) < SIDE // 2
        halves = [mask & left, mask & ~left]
    boxes = []
    for half in halves:
        ys, xs = np.nonzero(half)
        if len(xs):
            low = [math.floor(_GRID * int(v.min()) / SIDE) for v in (xs, ys)]
            high = [math.ceil(_GRID * (int(v.max()) + 1) / SIDE) for v in (xs, ys)]
            boxes.append((low[0], low[1], high[0], high[1]))
    return boxes


def card(rows: Sequence[Mapping[str, Any]], resamples: int = 1000) -> str:
    """Tabulate both metrics of each system of `predictions.jsonl`, with 95 % intervals.

    UserError for references none of which has a box.
    """
    if not any(_BOX.search(row["reference"] or "") for row in rows):
        raise UserError("no reference has a box; evaluate with experiments.grounding:load")
    head, body = ["system", "reports", "grounding_iou", "grounding_f1"], []
    for system in dict.fromkeys(row["system"] for row in rows):
        own = [row for row in rows if row["system"] == system]
        scores = mean_scores(measure([r["report"] for r in own], [r["reference"] for r in own]))
        scores = of_patients(scores, [row.get("patient", row["id"]) for row in own])
        bounds = intervals(scores, resamples=resamples, level=0.95, seed=0)
        cells = [
            f"{value:.3f} [{bounds[name][0]:.3f}, {bounds[name][1]:.3f}]"
            for name, value in values(scores).items()
        ]
        body.append([system, str(len(own)), *cells])
    return "\n".join(aligned([head, *body])) + "\n"


def main(words: Sequence[str] | None = None) -> int:
    """Draw phantoms, or print a run's card; status 2 and one line for bad input."""
    parser = argparse.ArgumentParser(description="Boxes beside sentences.")
    parser.add_argument("place", type=Path, help="a run, or a directory for phantoms")
    parser.add_argument("--phantoms", type=int, default=0, help="training phantoms to draw")
    options = parser.parse_args(words)
    try:
        if options.phantoms:
            fifth = max(1, options.phantoms // 5)
            config = PhantomConfig(train=options.phantoms, val=fifth, test=fifth)
            print(write_phantom(config, options.place))
            return 0
        file = options.place / "predictions.jsonl"
        rows = [json.loads(line) for line in read_whole_text(file).splitlines()]
        print(card(rows), end="")
    except (OSError, ValueError, KeyError, UserError) as error:
        print(f"{options.place}: {error}; wanted an evaluated run of grounded data")
        return 2
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
