"""Studies and edits kept from a run to be read by a person."""

from __future__ import annotations

import base64
import io
import json
import os.path
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from PIL import Image

from rrgclinical.common import json_reader
from rrgclinical.common.errors import UserError
from rrgclinical.common.files import atomic_write, read_whole
from rrgclinical.labels import OBSERVATIONS
from rrgdata.images.in_flight import check_area

LONGEST_SIDE = 640
"""Pixels; a page with a dozen radiographs stays a few megabytes."""


@dataclass(frozen=True)
class Sample:
    """One study: what stands in its reference and what each system wrote.

    `images` are PNG bytes or PIL images, `views` their names in the same order; `outputs` maps
    systems, in the order of the summary, to reports; `labels` are the reference's 14 class ids;
    `facts` maps systems to what FactS read in their report (facts, and verdict and deciding fact
    of the labels that it mentions), None where FactS was not asked; `severity` maps them to what
    that term's value was made of, None likewise.
    """

    id: str
    images: Sequence[bytes | Image.Image]
    reference: str
    outputs: dict[str, str]
    indication: str = ""
    views: Sequence[str] = ()
    labels: Sequence[int] | None = None
    facts: Mapping[str, Mapping[str, Any]] | None = None
    severity: Mapping[str, Mapping[str, Any]] | None = None


@dataclass(frozen=True)
class WeightSample:
    """One sampled report with the weight of each of its pieces (DiTPO), in reading order."""

    id: str
    pieces: Sequence[tuple[str, float]]
    reference: str
    step: int
    reward: float
    advantage: float


@dataclass(frozen=True)
class EditSample:
    """One edit of EditGRPO: `steps` holds (rule letter, removed text, added text) in order."""

    id: str
    before: str
    after: str
    steps: Sequence[tuple[str, str, str]]
    reference: str
    reward_before: float | None = None
    reward_after: float | None = None
    step: int | None = field(default=None, kw_only=True)


AnySample = Sample | EditSample | WeightSample


def png(image: bytes | Image.Image) -> bytes:
    """A PNG no larger than `LONGEST_SIDE`, grey where the picture is grey.

    Raises ValueError for bytes that are not an image.
    """
    picture = _opened(image) if isinstance(image, bytes) else image
    if picture.mode not in ("L", "RGB"):
        picture = picture.convert("RGB")
    if picture.mode == "RGB":
        red, green, blue = picture.split()
        if red.tobytes() == green.tobytes() == blue.tobytes():
            picture = red
    picture = picture.copy()
    picture.thumbnail((LONGEST_SIDE, LONGEST_SIDE), Image.Resampling.LANCZOS)
    buffer = io.BytesIO()
    picture.save(buffer, format="PNG", optimize=True)
    return buffer.getvalue()


def _opened(image: bytes) -> Image.Image:
    try:
        # No other format is tried: Pillow gives PostScript to Ghostscript.
        picture: Image.Image = Image.open(io.BytesIO(image), formats=("PNG",))
        check_area(*picture.size)
        picture.load()
    except (OSError, SyntaxError, ValueError, UserError, Image.DecompressionBombError) as error:
        raise ValueError(f"{len(image)} bytes are not an image; wanted PNG bytes") from error
    return picture


def weighed_pieces(
    text: str, spans: Sequence[tuple[int, int]], weights: Sequence[float]
) -> list[tuple[str, float]]:
    """Cut a text where its tokens begin; pair each piece with its weight.

    Tokens that share a character are one piece with the heavier weight; one without characters,
    an end of turn, is none.
    """
    pieces: list[tuple[int, int, float]] = []
    for (begin, end), weight in zip(spans, weights, strict=True):
        if begin == end:
            continue
        if pieces and begin < pieces[-1][1]:
            first, last, before = pieces.pop()
            begin, end, weight = first, max(last, end), max(before, weight)
        pieces.append((begin, end, weight))
    return [(text[begin:end], weight) for begin, end, weight in pieces]


def write_samples(path: str | Path, samples: Iterable[AnySample]) -> None:
    """One JSON line a sample, images inside as base64 PNG."""
    lines = []
    for sample in samples:
        if isinstance(sample, EditSample):
            row: dict[str, Any] = {"kind": "edit", **asdict(sample)}
        elif isinstance(sample, WeightSample):
            row = {"kind": "weights", **asdict(sample)}
        else:
            row = {"kind": "study", **vars(sample), "views": list(sample.views)}
            row["labels"] = None if sample.labels is None else [int(x) for x in sample.labels]
            row["images"] = [base64.b64encode(png(i)).decode("ascii") for i in sample.images]
        lines.append(json.dumps(row, ensure_ascii=False) + "\n")
    atomic_write(path, "".join(lines))


def read_samples(path: str | Path) -> list[AnySample]:
    """Read samples written by `write_samples`; none where there is no file.

    Raises `UserError` with the line that is not a sample.
    """
    path = Path(path)
    if not os.path.lexists(path):
        return []
    samples: list[AnySample] = []
    # Not splitlines(): reports may hold line separators that JSON leaves as they are.
    for number, line in enumerate(read_whole(path).split(b"\n"), start=1):
        if not line:
            continue
        try:
            samples.append(_sample(json_reader.parse(line, dict)))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise UserError(f"{path}:{number}: not a sample ({error}); delete that line") from error
    return samples


def _sample(row: dict[str, Any]) -> AnySample:
    kind = row.pop("kind")
    if kind == "edit":
        row["steps"] = [(rule, removed, added) for rule, removed, added in row["steps"]]
        return EditSample(**row)
    if kind == "weights":
        row["pieces"] = [(text, float(weight)) for text, weight in row["pieces"]]
        return WeightSample(**row)
    if kind != "study":
        raise ValueError(f"kind is {kind!r}; wanted study, edit or weights")
    row["images"] = [base64.b64decode(text, validate=True) for text in row["images"]]
    for image in row["images"]:
        _opened(image)
    if row.get("labels") is not None:
        class_ids(row["labels"])
    return Sample(**row)


def class_ids(labels: Sequence[int]) -> list[int]:
    """Return the class ids [14] that a file holds; ValueError for anything else."""
    if len(labels) != len(OBSERVATIONS) or any(
        type(x) is not int or not 0 <= x <= 3 for x in labels
    ):
        raise ValueError(f"labels are {labels}; wanted {len(OBSERVATIONS)} class ids, 0 to 3")
    return list(labels)
