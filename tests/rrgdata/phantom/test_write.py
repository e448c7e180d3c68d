"""The dataset on disk: whole or not at all, and read back by the IU X-Ray loader."""

from __future__ import annotations

import json

import numpy as np
import pytest

from rrgclinical import OBSERVATIONS, build_labeller
from rrgdata.images.read import read_image
from rrgdata.phantom import PhantomConfig, phantom_reports, sample_case, write_phantom
from rrgdata.phantom.text import write_report
from rrgtrain.errors import UserError
from tests.rrgdata.common import studies_under

SMALL = PhantomConfig(train=12, val=3, test=5, size=40, lateral=0.6, prior=0.6, omit=0.5)


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    directory = tmp_path_factory.mktemp("phantom") / "data"
    write_phantom(SMALL, directory)
    return directory


def test_only_train_is_spoilt(written):
    annotation = json.loads((written / "annotation.json").read_text())
    assert any("damage" in entry for entry in annotation["train"])
    assert not any("damage" in entry for split in ("val", "test") for entry in annotation[split])


@pytest.mark.parametrize("garble", [0.0, 0.6])
def test_reports_alone_are_those_of_the_files(garble, tmp_path):
    config = PhantomConfig(train=12, val=1, test=1, size=28, omit=0.5, garble=garble, prior=0.5)
    annotation = json.loads(write_phantom(config, tmp_path / "data").read_text())
    assert phantom_reports(config) == [entry["report"] for entry in annotation["train"]]


def test_the_loader_reads_it(written):
    studies = studies_under("iu_xray", written)
    assert {k: len(v) for k, v in studies.items()} == {"train": 12, "val": 3, "test": 5}
    everything = [s for split in studies.values() for s in split]
    assert all(
        s.labels is not None and s.indication and s.technique and s.comparison for s in everything
    )
    views = {(i.view, i.prior) for s in everything for i in s.images}
    assert views == {("frontal", False), ("lateral", False), ("frontal", True)}
    assert read_image(everything[0].images[0].path).mode == "RGB"
    frontal = studies_under("iu_xray", written, images="frontal")
    assert all(
        [(i.view, i.prior) for i in s.images] == [("frontal", False)]
        for split in frontal.values()
        for s in split
    )
    none = studies_under("iu_xray", written, images="none")
    assert all(not s.images for split in none.values() for s in split)


def test_equal_seeds_write_equal_bytes(written, tmp_path):
    write_phantom(SMALL, tmp_path / "again")
    for path in sorted(p for p in written.rglob("*") if p.is_file()):
        assert (tmp_path / "again" / path.relative_to(written)).read_bytes() == path.read_bytes()


def test_growing_train_keeps_the_test_set(written, tmp_path):
    write_phantom(PhantomConfig(**{**vars(SMALL), "train": 3, "omit": 0.0}), tmp_path / "other")
    tests = [
        json.loads((d / "annotation.json").read_text())["test"]
        for d in (written, tmp_path / "other")
    ]
    assert tests[0] == tests[1]


def test_the_same_phantom_is_reused(written):
    before = {p: p.stat().st_mtime_ns for p in written.rglob("*")}
    done = []
    assert write_phantom(SMALL, written, progress=done.append) == written / "annotation.json"
    assert sum(done) == 20
    assert {p: p.stat().st_mtime_ns for p in written.rglob("*")} == before


def test_another_phantom_is_refused_by_name(written):
    with pytest.raises(UserError, match="another seed, omit") as caught:
        write_phantom(PhantomConfig(**{**vars(SMALL), "seed": 9, "omit": 0.1}), written)
    assert "\n" not in str(caught.value)


def test_foreign_content_is_refused(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(UserError, match="data set of your own set data.source=iu_xray or nih"):
        write_phantom(SMALL, tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["notes.txt"]
    with pytest.raises(UserError, match="is a file"):
        write_phantom(SMALL, tmp_path / "notes.txt")


def test_an_interrupted_write_leaves_nothing(tmp_path):
    def stop(count):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_phantom(SMALL, tmp_path / "data", progress=stop)
    assert list(tmp_path.iterdir()) == []


# The rules read back the labels of phantom cases from their clean reports.
CASES = 600


def test_labels_of_clean_reports_are_the_labels_of_the_case():
    config = PhantomConfig(prior=0.4, uncertain=0.2)
    cases = [sample_case(config, (11, 0, number)) for number in range(CASES)]
    reports = [write_report(case, case.findings, case.negated, config) for case in cases]
    truth = np.array([case.labels() for case in cases])
    labels = build_labeller("rules").label(reports)
    wrong = [
        f"{OBSERVATIONS[column]} {truth[row, column]} read as {labels[row, column]}: {reports[row]}"
        for row, column in np.argwhere(labels != truth)
    ]
    assert len(wrong) <= 0.001 * truth.size, "\n".join(wrong[:5])
    assert all((truth == value).any() for value in range(4))
