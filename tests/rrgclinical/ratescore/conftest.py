"""RaTEScore in miniature, written once for the tests here."""

from __future__ import annotations

from pathlib import Path

import pytest

from rrgclinical.ratescore import RaTEExtractor
from tests.rrgclinical.cases import cases
from tests.rrgclinical.ratescore.tiny import write_tiny


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return write_tiny(tmp_path_factory.mktemp("rate"), [sentence for sentence, _ in cases()])


@pytest.fixture(scope="session")
def extractor(folders: tuple[Path, Path]) -> RaTEExtractor:
    return RaTEExtractor(*folders)
