"""METEOR with a short table of paraphrases, for tests that ask for it."""

from __future__ import annotations

import gzip
import shutil
from itertools import islice
from pathlib import Path

import pycocoevalcap
import pytest

__all__ = ["few_paraphrases", "short_package"]


# METEOR with a few of its paraphrases: reading all sixteen million lines takes ten seconds.
#
# Both our call and pycocoevalcap's get the same shortened table. That of a user is read in
# `test_overlap.py`.
PACKAGE = Path(next(iter(pycocoevalcap.__path__)))
LINES = 3000  # a multiple of the three of an entry
TABLE = Path("meteor", "data", "paraphrase-en.gz")


@pytest.fixture(scope="session")
def short_package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write pycocoevalcap's Java programs with a short table of paraphrases."""
    folder = tmp_path_factory.mktemp("pycocoevalcap")
    (folder / "tokenizer").symlink_to(PACKAGE / "tokenizer")
    (folder / TABLE).parent.mkdir(parents=True)
    # a copy: the program looks for its table beside the file that a link points to
    shutil.copy(PACKAGE / "meteor" / "meteor-1.5.jar", folder / "meteor")
    with gzip.open(PACKAGE / TABLE, "rt") as every, gzip.open(folder / TABLE, "wt") as few:
        few.writelines(islice(every, LINES))
    return folder


@pytest.fixture
def few_paraphrases(short_package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rrgclinical.text.java._package", lambda: short_package)
    jar = short_package / "meteor" / "meteor-1.5.jar"
    monkeypatch.setattr("pycocoevalcap.meteor.meteor.METEOR_JAR", str(jar))
