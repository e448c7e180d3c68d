"""Keeps generated reports in a JSONL file that survives a killed process.

One line a study: id, images (path below the folder, size in bytes, SHA-256), report,
whether it came to its end (`finished`), the whole text where the report is a block of it, the
checkpoint, a digest of its files, and the settings.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rrgclinical.common import json_reader
from rrgclinical.common.errors import not_written
from rrgclinical.common.files import make_parents, remove_empty, require_end
from rrgdata.study import Study
from rrgtrain.errors import UserError

BEGIN = b'{"id": '


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


class GeneratedFile:
    """An open file of reports of one checkpoint and its settings.

    `origin` is what every line holds beside its study: checkpoint, digest, settings. `done` maps
    the ids that have a report to their images, as `describe_images` gives them. Lines are only ever
    appended, each by one write.

    Raises:
        UserError: a file of another origin or of something else, which is left as it is, or one
            that another process is writing.
    """

    def __init__(self, path: Path, origin: Mapping[str, Any]) -> None:
        self.path, self.origin = path, json.loads(json.dumps(origin))
        self.done: dict[str, list[dict[str, Any]]] = {}
        try:
            if path.exists() and not path.is_file():
                raise UserError(f"--out {path} is no file; name one")
            self._made = make_parents(path)
            self._file = path.open("ab+", buffering=0)
        except OSError as error:
            raise UserError(not_written(path, error)) from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._read()
        except BlockingIOError as error:
            self._file.close()
            raise UserError(f"another process is writing {path}; wait for it") from error
        except BaseException:
            self._file.close()
            raise

    def _read(self) -> None:
        self._file.seek(0)
        whole, cut, tail = self._file.read().rpartition(b"\n")
        for number, line in enumerate(whole.split(b"\n") if cut else [], start=1):
            self._check(number, line)
        if tail:
            # of a process that was killed in the middle of a line, and of nothing else
            if not (tail.startswith(BEGIN) or BEGIN.startswith(tail)):
                raise self._foreign(len(self.done) + 1)
            os.ftruncate(self._file.fileno(), len(whole) + len(cut))

    def _check(self, number: int, line: bytes) -> None:
        try:
            row = json_reader.parse(line, dict)
            found = {key: row[key] for key in self.origin}
            images = [{key: i[key] for key in ("path", "size", "sha256")} for i in row["images"]]
            self.done[row["id"]] = images
        except (ValueError, KeyError, TypeError) as error:
            raise self._foreign(number) from error
        if found == self.origin:
            return
        then, now = _flat(found), _flat(self.origin)
        key = next(k for k in [*now, *then] if then.get(k) != now.get(k))
        raise UserError(
            f"{self.path}:{number} was written with {key}={then.get(key)}, now it is "
            f"{now.get(key)}; name another file by --out, or set it as it was"
        )

    def _foreign(self, number: int) -> UserError:
        return UserError(
            f"{self.path}:{number} is no line of generated reports; name another file by --out"
        )

    def changed(self, study: Study, root: Path) -> str:
        """Say how images of a done study differ from its line's, or ""."""
        before = {image["path"]: image for image in self.done[study.id]}
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

    def add(self, study: Study, images: list[dict[str, Any]], fields: Mapping[str, Any]) -> None:
        """Append the line of a study, its images as `describe_images` gives them."""
        row = {"id": study.id, "images": images, **fields, **self.origin}
        # a path that is not UTF-8 has lone surrogates, which are escaped as JSON escapes them
        line = json.dumps(row, ensure_ascii=False).encode("utf-8", "backslashreplace")
        self._file.write(line + b"\n")
        self.done[study.id] = images

    def __enter__(self) -> GeneratedFile:
        return self

    def __exit__(self, *error: object) -> None:
        if not os.fstat(self._file.fileno()).st_size:
            self.path.unlink(missing_ok=True)
            remove_empty(self._made)
        self._file.close()


def _flat(origin: Mapping[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in origin.items() if k != "settings"} | dict(origin["settings"])
