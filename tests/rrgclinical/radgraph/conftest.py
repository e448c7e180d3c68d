"""One tiny archive of each generation for all tests of this folder."""

from __future__ import annotations

import pytest

from tests.rrgclinical.radgraph import archives


@pytest.fixture(scope="session", params=["radgraph", "radgraph-xl", "modern-radgraph-xl"])
def archive(request, tmp_path_factory):
    """(unpacked archive, dataset) of the three model types."""
    folder = tmp_path_factory.mktemp(request.param)
    config = archives.tiny_modern() if request.param.startswith("modern") else archives.TINY
    return archives.write_archive(folder, request.param, encoder=config), request.param


@pytest.fixture(scope="session")
def xl(tmp_path_factory):
    return archives.write_archive(tmp_path_factory.mktemp("xl"))
