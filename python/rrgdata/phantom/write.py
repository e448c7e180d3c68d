"""Write a phantom data set in R2Gen's layout of IU X-Ray."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rrgclinical.common import json_reader
from rrgclinical.common.errors import UserError
from rrgclinical.common.files import held, remove_left
from rrgdata.phantom.case import Case, damage, sample_case
from rrgdata.phantom.config import PhantomConfig
from rrgdata.phantom.draw import draw_frontal, draw_lateral
from rrgdata.phantom.text import write_context, write_report

SPLITS = ("train", "val", "test")
STAMP = "phantom.json"
VERSION = 6


def write_phantom(
    config: PhantomConfig, directory: str | Path, progress: Callable[[int], object] | None = None
) -> Path:
    """Writes images and `annotation.json` under `directory`; returns the annotation's path.

    Everything is written beside the directory first and renamed into place, so an interrupted
    call leaves nothing that looks finished. A directory that already holds this configuration's
    phantom is reused; any other that is not empty is refused with a UserError. `progress` is
    called with the number of studies just finished.

    Each entry has R2Gen's keys (id, report, image_path, split) and `views` ("frontal", "lateral",
    "prior frontal", aligned with image_path), `indication`, `technique`, `comparison`, `labels`
    (14 class ids of the case). `findings` and, on train entries with a spoilt report, `damage`
    are for analysis only.
    """
    target = Path(directory)
    stamp = {"version": VERSION, "digest": config.digest(), **dataclasses.asdict(config)}
    if target.is_file():
        raise UserError(
            f"{target} is a file; wanted a directory for the phantom (a CSV or "
            "JSONL file of your own is data.source=table)"
        )
    if target.is_dir() and any(target.iterdir()):
        _check_same(target, stamp)
        if progress:
            progress(config.train + config.val + config.test)
        return target / "annotation.json"
    target.parent.mkdir(parents=True, exist_ok=True)
    remove_left(target)
    # Named as those of `atomic_directory`, which would wait for the disk at each of the pictures:
    # after a power cut phantoms are drawn anew.
    work = target.with_name(f".{target.name}.{uuid.uuid4().hex}.tmp")
    try:
        work.mkdir()
        with held(work):
            annotation = {
                split: [
                    _write_study(config, work, split, number, progress)
                    for number in range(getattr(config, split))
                ]
                for split in SPLITS
            }
            (work / "annotation.json").write_text(json.dumps(annotation), encoding="utf-8")
            (work / STAMP).write_text(json.dumps(stamp, indent=1), encoding="utf-8")
            if target.is_dir():
                target.rmdir()
            os.replace(work, target)
    except BaseException:
        shutil.rmtree(work, ignore_errors=True)
        raise
    return target / "annotation.json"


def _check_same(target: Path, stamp: dict[str, Any]) -> None:
    path = target / STAMP
    if not path.is_file():
        raise UserError(
            f"{target} is not empty and holds no phantom; for a data set of your own set "
            "data.source=iu_xray or nih, for phantoms choose an empty directory"
        )
    try:
        there = json_reader.read(path, dict)
    except (OSError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise UserError(f"{path} cannot be read ({reason}); delete {target}") from None
    if there.get("digest") == stamp["digest"] and there.get("version") == VERSION:
        return
    changed = [k for k in stamp if k != "digest" and there.get(k) != stamp[k]]
    raise UserError(
        f"{target} holds a phantom with another {', '.join(changed) or 'content'}; "
        "choose another directory or delete it"
    )


def _write_study(
    config: PhantomConfig,
    root: Path,
    split: str,
    number: int,
    progress: Callable[[int], object] | None,
) -> dict[str, Any]:
    case = sample_case(config, (config.seed, SPLITS.index(split), number))
    name = f"phantom_{split}_{number:06d}"
    images = {"frontal": draw_frontal(case, config)}
    if case.lateral:
        images["lateral"] = draw_lateral(case, config)
    if case.earlier is not None:
        images["prior frontal"] = draw_frontal(case, config, prior=True)
    folder = root / "images" / name
    folder.mkdir(parents=True)
    paths = []
    for index, image in enumerate(images.values()):
        image.save(folder / f"{index}.png")
        paths.append(f"{name}/{index}.png")
    report, log = _report(case, config, split)
    indication, technique, comparison = write_context(case)
    entry: dict[str, Any] = {
        "id": name,
        "report": report,
        "image_path": paths,
        "split": split,
        "views": list(images),
        "indication": indication,
        "technique": technique,
        "comparison": comparison,
        "labels": list(case.labels()),
        "findings": [dataclasses.asdict(f) for f in case.findings],
    }
    if log:
        entry["damage"] = log
    if progress:
        progress(1)
    return entry


def _report(case: Case, config: PhantomConfig, split: str) -> tuple[str, list[dict[str, str]]]:
    """The report of a study as its author wrote it, and what was spoilt in it: in train alone."""
    findings, negated, log = list(case.findings), list(case.negated), list[dict[str, str]]()
    if split == "train":
        findings, negated, log = damage(case, config)
    return write_report(case, findings, negated, config), log


def phantom_reports(config: PhantomConfig) -> list[str]:
    """Write the reports of the training phantoms, spoilt as those are; needs no image."""
    cases = [sample_case(config, (config.seed, 0, number)) for number in range(config.train)]
    return [_report(case, config, "train")[0] for case in cases]
