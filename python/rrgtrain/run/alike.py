"""Refuse ranks that were started with other settings, code or data than rank 0.

Such a run would go on for hours before it shows: every rank follows its own settings, and the sums
over ranks are those of no recipe.
"""

from __future__ import annotations

import functools
import hashlib
import json
import platform
import socket
from collections.abc import Mapping
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path

import rrgclinical
import rrgdata
import rrgkern
import rrgpolicy
import rrgtrain
from rrgdata.settings import DataSettings
from rrgdata.study import Study
from rrgdata.subset import Subset
from rrgpolicy.ranks import ranks
from rrgtrain.config import load_config
from rrgtrain.errors import Stopped, UserError
from rrgtrain.schema import Recipe
from rrgtrain.state.experiment import MOVABLE, digest_of, leaves
from rrgtrain.state.files import start_files
from rrgtrain.state.rundir import RunDir

_PACKAGES = ("torch", "transformers", "peft", "numpy")


def require_equal_start(recipe: Recipe) -> None:
    """Raise UserError where ranks have other settings, code or checkpoints to begin from.

    All ranks call it at once.

    Where the same things lie may differ (`data.root`, `policy.path`). Values are compared by their
    digests: a setting may hold a key.
    """
    if ranks.size() == 1:
        return
    settings = {k: digest_of(v) for k, v in leaves(asdict(recipe)) if k not in MOVABLE}
    begun = start_files(recipe.policy, recipe.rl, recipe.reward)
    everyone = ranks.gather((socket.gethostname(), settings, code(), begun))
    _, first, versions, files = everyone[0]
    for rank, (host, own, installed, read) in enumerate(everyone):
        other = [key for key in first | own if first.get(key) != own.get(key)]
        if other:
            raise UserError(
                f"rank {rank} on {host} was started with another {', '.join(other[:3])} than rank "
                "0; give the same command and the same recipe on every node"
            )
        differing = [
            f"{name} {text} (rank 0: {versions[name]})"
            for name, text in installed.items()
            if text != versions[name]
        ]
        if differing:
            raise UserError(
                f"rank {rank} on {host} runs {', '.join(differing)}; install the same on every node"
            )
        # a hub name has none, and may be on another node what is a directory here
        changed = [n for n in sorted(files | read) if files.get(n) != read.get(n)]
        if files and read and changed:
            raise UserError(
                f"rank {rank} on {host} reads other files than rank 0 ({changed[0]}); give every "
                "node the same checkpoint, or one that all nodes mount"
            )


def require_same_data(studies: Mapping[str, list[Study]]) -> None:
    """Raise UserError where ranks read other studies than rank 0; all call it at once."""
    if ranks.size() == 1:
        return
    own = {split: (len(rows), _studies_digest(rows)) for split, rows in studies.items()}
    everyone = ranks.gather((socket.gethostname(), own))
    first = everyone[0][1]
    for rank, (host, there) in enumerate(everyone):
        for split in first | there:
            here, seen = first.get(split, (0, "")), there.get(split, (0, ""))
            if here != seen:
                how = f"{seen[0]}, and rank 0 {here[0]}"
                if here[0] == seen[0]:
                    how = f"as many as rank 0, {seen[0]}, of other content"
                raise UserError(
                    f"rank {rank} on {host} reads other {split} studies ({how}); give every node "
                    "the same data set (data.root), or one that all nodes mount"
                )


def require_same_subset(data: DataSettings) -> None:
    """Raise UserError where `data.subset` is another than rank 0's; all call it at once."""
    if data.subset is None or ranks.size() == 1:
        return
    if len(set(ranks.gather(Subset.load(data.subset).digest))) > 1:
        raise UserError(
            f"data.subset={data.subset} names other studies on one node than on another; give "
            "every node the same file, or one that all nodes mount"
        )


@functools.lru_cache(maxsize=1)
def code() -> dict[str, str]:
    """Name the versions that results depend on, and a digest of the packages' own files."""
    digest = hashlib.sha256()
    for package in (rrgkern, rrgclinical, rrgdata, rrgpolicy, rrgtrain):
        root = Path(str(package.__file__)).parent
        for path in sorted(root.rglob("*.py")):
            digest.update(str(path.relative_to(root)).encode() + path.read_bytes())
    installed = {name: version(name) for name in _PACKAGES}
    own = f"{rrgkern.__version__} of files {digest.hexdigest()[:8]}"
    return {"rrgtrain": own, "Python": platform.python_version(), **installed}


def _studies_digest(studies: list[Study]) -> str:
    digest = hashlib.sha256()
    for study in studies:
        images = [(image.path.name, image.view, image.prior) for image in study.images]
        context = [study.indication, study.technique, study.comparison]
        row = [study.id, study.report, study.labels, study.expert, images, *context]
        digest.update(json.dumps(row, default=str).encode())
    return digest.hexdigest()


def begun_in(run: RunDir) -> Recipe | None:
    """Load the recipe whose beginning a directory holds; None where it holds none."""
    if run.report.is_file() or not run.config.is_file():
        return None
    try:
        return load_config(Recipe, run.config, [])
    except Stopped:
        raise
    except UserError:  # a file that is no run's, or of another version
        return None
