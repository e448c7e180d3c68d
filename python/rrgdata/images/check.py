"""Decodes a sample of the images before a run, and all in a data check.

A pass over all images of MIMIC-CXR takes hours. So a run stops, or with `data.skip` leaves studies
out, by what `rrgtrain data check` has remembered, and decodes only a sample itself, which finds a
data set that is broken as a whole, as after a copy that was cut short. Any other broken image
stops the run when it is read, in one line, before the step, and the run can be resumed.
"""

from __future__ import annotations

import json
import os
import random
import shlex
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple, replace
from functools import partial
from hashlib import blake2b
from pathlib import Path

from PIL.Image import Image

from rrgclinical.common.errors import PassingError, Stopped, UserError
from rrgclinical.common.progress import Bar, progress
from rrgdata.file_memory import FileMemory, Stamp, stamp_of
from rrgdata.images.in_flight import InFlight
from rrgdata.images.read import ImageFacts, area_of, read_with_facts
from rrgdata.problems import first_of
from rrgdata.study import Study

SAMPLE = 256
"""Images that a run decodes before its first step: the same ones every time."""
# Decoding lets go of the interpreter's lock, so threads share the work. A chunk is what an
# interrupt has to wait for.
CHUNK = 64
# To be raised whenever `read_image` refuses or notes more, or less, than before.
VERSION = "10"

Verdict = ImageFacts | str
"""Facts of a file that decodes, or the line that says why it does not."""


class ImageMemory:
    """Remember verdicts on the image files of the data set at `root`, see `FileMemory`.

    body_parts: `data.body_parts`, by which files may pass that are refused without.
    """

    def __init__(self, root: Path, body_parts: Collection[str] = ()) -> None:
        rules = f"{VERSION} {sorted(body_parts)}" if body_parts else VERSION
        self._files = FileMemory("images", root, rules, "the next run checks the images again")

    def recall(self, paths: Iterable[Path]) -> dict[Path, Verdict]:
        """Return the verdicts on those of `paths` that have one and are unchanged."""
        verdicts = self._files.known(paths).items()
        return {p: _verdict_of(text) for p, (stamp, text) in verdicts if stamp == stamp_of(p)}

    def broken(self) -> dict[str, str]:
        """Return the unchanged files that do not decode: why, by absolute path."""
        verdicts = self._files.matching('"%')
        return {str(p): json.loads(text) for p, stamp, text in verdicts if stamp == stamp_of(p)}

    def keep(self, verdicts: Mapping[Path, tuple[Stamp, Verdict]]) -> None:
        """Remember verdicts on files, with the stamps they had before they were read."""
        rows = ((p, s, v if isinstance(v, str) else astuple(v)) for p, (s, v) in verdicts.items())
        self._files.keep((path, stamp, json.dumps(value)) for path, stamp, value in rows)


def _verdict_of(text: str) -> Verdict:
    v = json.loads(text)
    return v if isinstance(v, str) else ImageFacts(v[0], v[1], v[2], tuple(v[3]), tuple(v[4]), v[5])


def check_images(
    studies: Sequence[Study], root: Path | None = None, body_parts: Collection[str] = ()
) -> None:
    """Decode a sample of the images of `studies`, all where they are at most 256.

    root: directory of the data set, under whose name verdicts are remembered (`ImageMemory`);
        None: nothing is remembered.
    body_parts: see `read_image`.

    Raises UserError with the first image that fails and how many more do. Warns once of DICOM
    headers that do not tell modality or body part, or ask for what cannot be shown.
    """
    paths = image_paths(studies)
    if len(paths) > SAMPLE:
        paths = random.Random(0).sample(paths, SAMPLE)
    memory = None if root is None else ImageMemory(root, body_parts)
    verdicts = decoded(paths, memory, body_parts, "checking images")
    problems = [verdict for verdict in verdicts.values() if isinstance(verdict, str)]
    if problems:
        command = f"rrgtrain data check {shlex.quote(str(root))}"
        mend = f"; `{command}` looks at all images, data.skip=true leaves broken"
        raise UserError(first_of(problems) + (f"{mend} ones out" if root else ""))
    for line in header_notes(verdicts):
        warnings.warn(line, stacklevel=2)


def decoded(
    paths: Sequence[Path], memory: ImageMemory | None, body_parts: Collection[str], title: str
) -> dict[Path, Verdict]:
    """Decode the images that are not remembered as good; return the verdicts on all."""
    remembered = {} if memory is None else memory.recall(paths)
    verdicts: dict[Path, Verdict] = {
        path: v for path, v in remembered.items() if isinstance(v, ImageFacts)
    }
    unseen = [path for path in paths if path not in verdicts]
    if unseen:
        bar: Bar[int] = progress(len(paths), title, done=len(verdicts))
        with bar:
            for path, verdict in look_at(unseen, memory, body_parts):
                verdicts[path] = verdict
                bar.advance()
    return verdicts


def image_paths(studies: Sequence[Study]) -> list[Path]:
    """List the image files of studies, each once."""
    return list(dict.fromkeys(image.path for study in studies for image in study.images))


def look_at(
    paths: Sequence[Path], memory: ImageMemory | None, body_parts: Collection[str] = ()
) -> Iterator[tuple[Path, Verdict]]:
    """Decode files, whatever is remembered of them; remember and yield the verdicts in order.

    A verdict for which the file is not at fault (`PassingError`) is not remembered.
    """
    read = partial(read_with_facts, body_parts=body_parts) if body_parts else read_with_facts
    verdict_of = partial(_verdict, read, InFlight())
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for begin in range(0, len(paths), CHUNK):
            chunk = paths[begin : begin + CHUNK]
            verdicts = dict(zip(chunk, pool.map(verdict_of, chunk), strict=True))
            if memory is not None:
                memory.keep({p: (s, v) for p, (s, v) in verdicts.items() if s is not None})
            yield from ((path, verdict) for path, (_, verdict) in verdicts.items())


def header_notes(verdicts: Mapping[Path, Verdict]) -> list[str]:
    """Count DICOM files by tag that they lack and by note, a line each."""
    facts = [v for v in verdicts.values() if isinstance(v, ImageFacts)]
    headers = [f for f in facts if f.kind.startswith("DICOM")]
    lacks = [f"lack {tag}; they pass as chest radiographs" for f in headers for tag in f.absent]
    counts = Counter([*lacks, *(note for f in headers for note in f.notes)])
    looked = f"of the {len(headers)} DICOM files looked at"
    return [f"{count} {looked} {note}" for note, count in counts.items()]


def _verdict(
    read: Callable[[Path], tuple[Image, ImageFacts]], in_flight: InFlight, path: Path
) -> tuple[Stamp | None, Verdict]:
    """Return the stamp, None where nothing is to be remembered, and the verdict."""
    stamp = stamp_of(path)
    try:
        with in_flight.hold(area_of(path)):
            image, facts = read(path)
            grey = image.getchannel(0).tobytes()
            return stamp, replace(facts, pixels=blake2b(grey, digest_size=8).hexdigest())
    except Stopped:
        raise
    except PassingError as error:
        return None, str(error)
    except UserError as error:
        return stamp, str(error)
