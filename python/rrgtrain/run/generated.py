"""Reads and checks the lines of generated reports.

One line a study: id, images (path below the folder, size in bytes, SHA-256), report,
whether it came to its end (`finished`), the whole text where the report is a block of it, the
checkpoint, a digest of its files, and the settings.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rrgclinical.common import json_reader
from rrgclinical.common.files import require_end
from rrgdata.study import Study
from rrgtrain.errors import UserError
from rrgtrain.train.written import RowFile

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
