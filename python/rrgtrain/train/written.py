"""Write reports of studies in rounds over ranks, kept by id in JSONL."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Generic, TypeVar

import torch

from rrgclinical.common import json_reader
from rrgclinical.common.errors import not_written
from rrgclinical.common.files import make_parents, remove_empty, require_end
from rrgclinical.common.stop import stopping
from rrgdata.study import Study
from rrgpolicy.model.policy import Policy
from rrgpolicy.ranks import ranks
from rrgpolicy.rollout import RolloutEngine, SamplingRequest
from rrgpolicy.rollout.policy_sampler import PolicySampler, Sample
from rrgtrain.errors import NotFinite, UserError

Item = TypeVar("Item")
Encoded = TypeVar("Encoded")
Row = TypeVar("Row")


class RowFile(Generic[Row]):
    """An open JSONL file of rows by id, which survives a killed process.

    Lines are only ever appended, each by one write. `done` maps the ids that have a line to rows.

    Raises:
        UserError: a file of something else, which is left as it is, or one that another process is
            writing.
    """

    def __init__(
        self, path: Path, begin: bytes, parse: Callable[[int, bytes], tuple[str, Row]]
    ) -> None:
        """begin: of each line. parse: gives id and row of a line, by its number, or UserError."""
        self.path = path
        self.done: dict[str, Row] = {}
        try:
            if path.exists() and not path.is_file():
                raise UserError(f"{path} is no file; name another by --out")
            self._made = make_parents(path)
            self._file = path.open("ab+", buffering=0)
        except OSError as error:
            raise UserError(not_written(path, error)) from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._read(begin, parse)
        except BlockingIOError as error:
            self._file.close()
            raise UserError(f"another process is writing {path}; wait for it") from error
        except BaseException:
            self._file.close()
            raise

    def _read(self, begin: bytes, parse: Callable[[int, bytes], tuple[str, Row]]) -> None:
        self._file.seek(0)
        *lines, tail = self._file.read().split(b"\n")
        for number, line in enumerate(lines, start=1):
            name, row = parse(number, line)
            self.done[name] = row
        if tail:
            # of a process that was killed in the middle of a line, and of nothing else
            if not (tail.startswith(begin) or begin.startswith(tail)):
                parse(len(lines) + 1, tail)
            os.ftruncate(self._file.fileno(), self._file.tell() - len(tail))

    def add(self, name: str, row: Row, line: Mapping[str, Any]) -> None:
        # a path that is not UTF-8 has lone surrogates, which are escaped as JSON escapes them
        text = json.dumps(line, ensure_ascii=False).encode("utf-8", "backslashreplace")
        self._file.write(text + b"\n")
        self.done[name] = row

    def sync(self) -> None:
        os.fsync(self._file.fileno())

    def __enter__(self) -> RowFile[Row]:
        return self

    def __exit__(self, *error: object) -> None:
        if not os.fstat(self._file.fileno()).st_size:
            self.path.unlink(missing_ok=True)
            remove_empty(self._made)
        self._file.close()


def lacking(studies: Sequence[Study], file: RowFile[Any] | None) -> list[int]:
    """List the studies, by place, without a row in rank 0's file."""
    done = ranks.from_main(lambda: set(file.done) if file is not None else set())
    return [place for place, study in enumerate(studies) if study.id not in done]


@contextmanager
def own_sampler(
    start: Callable[[Policy, Path], RolloutEngine], served: Path
) -> Iterator[PolicySampler]:
    """Open a sampler whose engine reads a policy in `served`, for a while."""
    sampler = PolicySampler(lambda policy: start(policy, served))
    try:
        with closing(sampler):
            yield sampler
    finally:
        if ranks.is_main():
            shutil.rmtree(served, ignore_errors=True)


def in_batches(items: Sequence[Item], size: int) -> list[Sequence[Item]]:
    """Cut items into batches of `size`, the last of which may have fewer."""
    return [items[begin : begin + size] for begin in range(0, len(items), size)]


def write_rows(
    batches: Sequence[Sequence[Item]],
    ahead: Generator[Encoded],
    work: Callable[[Sequence[Item], Encoded], list[Row]],
    keep: Callable[[list[Row]], None],
) -> None:
    """Do `work` on each encoded batch, one a rank at a time.

    Every rank gets all rows to `keep`, a round at once, in the order of the batches. A batch is the
    same whatever the number of ranks, so its rows are, to the bit. A rank without a batch in the
    last round waits for the others.

    ahead: yields what is encoded for this rank's batches (`ranks.shard`); it is closed.
    """
    with closing(ahead):
        for begin in range(0, len(batches), ranks.size()):
            own = batches[begin : begin + ranks.size()][ranks.rank() : ranks.rank() + 1]
            parts = ranks.gather([row for batch in own for row in work(batch, next(ahead))])
            # a signal that came while the ranks spoke to each other
            stopping.check()
            keep([row for part in parts for row in part])


def write_batch(
    policy: Policy, studies: Sequence[Study], request: SamplingRequest, sample: Sample
) -> list[tuple[str, bool]]:
    """Write the reports that `request` asks for, one or a group a study.

    They are in the order of the studies, each beside whether it came to its end; one that did not
    was cut at `max_new_tokens`. Raises NotFinite, naming the study.
    """
    written, groups = [], zip(studies, sample(request), strict=True)
    for study, rollout in ((study, rollout) for study, group in groups for rollout in group):
        if not torch.isfinite(rollout.logps).all():
            raise NotFinite(
                f"the policy gives no finite log-probability for study {study.id}: its "
                "weights are broken, or have blown up in training"
            )
        written.append((policy.codec.decode(rollout.ids), rollout.finished))
    return written


BEGIN = b'{"id": '

Images = Sequence[Mapping[str, Any]]
"""The images of a line, see `describe_images`."""


def describe_images(study: Study, root: Path) -> list[dict[str, Any]]:
    """Give the path below `root`, size in bytes and SHA-256 of each image."""
    described = []
    for image in study.images:
        require_end(image.path)
        with image.path.open("rb") as file:
            sha256 = hashlib.file_digest(file, "sha256").hexdigest()
        path = image.path.relative_to(root).as_posix()
        described.append({"path": path, "size": image.path.stat().st_size, "sha256": sha256})
    return described


def open_generated(path: Path, origin: Mapping[str, Any]) -> RowFile[Images]:
    """Open reports of one checkpoint and its settings; rows are their images.

    One line a study: id, images (path below the folder, size in bytes, SHA-256), report, whether it
    came to its end (`finished`), the whole text where the report is a block of it, and the origin.

    origin: what every line holds beside its study: checkpoint, digest, settings. Raises UserError
    for a file of another origin, and as RowFile does.
    """
    own = json.loads(json.dumps(origin))

    def parse(number: int, line: bytes) -> tuple[str, Images]:
        try:
            row = json_reader.parse(line, dict)
            there = {key: row[key] for key in own}
            images = [{key: i[key] for key in ("path", "size", "sha256")} for i in row["images"]]
            name = row["id"]
            if not isinstance(name, str):
                raise TypeError(name)
        except (ValueError, KeyError, TypeError) as error:
            raise UserError(
                f"{path}:{number} is no line of generated reports; name another file by --out"
            ) from error
        if there == own:
            return name, images
        then, now = _flat(there), _flat(own)
        key = next(k for k in [*now, *then] if then.get(k) != now.get(k))
        raise UserError(
            f"{path}:{number} was written with {key}={then.get(key)}, now it is "
            f"{now.get(key)}; name another file by --out, or set it as it was"
        )

    return RowFile(path, BEGIN, parse)


def changed(images: Images, study: Study, root: Path) -> str:
    """Say how images of a done study differ from its line's, or ""."""
    before = {image["path"]: image for image in images}
    try:
        now = {image["path"]: image for image in describe_images(study, root)}
    except OSError as error:
        return f"{error.filename} cannot be read: {error.strerror}"
    for path in sorted(before.keys() | now.keys()):
        if path not in before:
            return f"{path} is new"
        if path not in now:
            return f"{path} is gone"
        if before[path] != now[path]:
            return f"{path} is another image"
    return ""


def _flat(origin: Mapping[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in origin.items() if k != "settings"} | dict(origin["settings"])
