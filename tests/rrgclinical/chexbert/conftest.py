"""One tiny CheXbert for all tests of this folder."""

from __future__ import annotations

import pytest

from tests.rrgclinical.chexbert import tiny


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    return tiny.write_folder(tmp_path_factory.mktemp("chexbert"))


@pytest.fixture(scope="session")
def labeller(folder):
    return tiny.labeller(folder)
