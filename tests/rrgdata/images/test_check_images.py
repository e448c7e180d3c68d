"""A sample of images is decoded before a run, the first bad one told, verdicts remembered."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import numpy as np
import pydicom
import pytest
from PIL import Image
from pydicom.uid import JPEGLSLossless

from rrgdata.images import check as images_module
from rrgdata.images.check import SAMPLE, ImageMemory, check_images, image_paths, look_at
from rrgdata.images.read import ImageFacts
from rrgdata.study import ImageRef, Study
from rrgtrain.errors import UserError
from tests.rrgdata import dicom_files


@pytest.fixture
def root(tmp_path) -> Path:
    (tmp_path / "data").mkdir()
    return tmp_path / "data"


def written(root: Path, count: int) -> list[Study]:
    rng = np.random.default_rng(0)
    made = []
    for i in range(count):
        path = root / f"{i}.png"
        Image.fromarray(rng.integers(0, 255, (20, 20), dtype=np.uint8)).save(path)
        made.append(Study(f"s{i}", "train", "r", None, (ImageRef(path, "frontal"),)))
    return made


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-30])


def test_the_first_bad_image_is_told_and_the_others_counted(root, opened) -> None:
    studies = written(root, 100)
    whole = {root / f"{i}.png": (root / f"{i}.png").read_bytes() for i in (80, 90, 95)}
    cut(root / "80.png")
    cut(root / "90.png")
    (root / "95.png").unlink()
    with pytest.raises(
        UserError, match=r"80.png: .*truncated.*\(and 2 more\); .*data check"
    ) as caught:
        check_images(studies, root)
    assert "\n" not in str(caught.value)
    # what was good need not be looked at when the bad ones are replaced
    for path, content in whole.items():
        path.write_bytes(content)
    del opened[:]
    check_images(studies, root)
    assert sorted(p.name for p in opened) == ["80.png", "90.png", "95.png"]


def test_of_many_images_a_run_looks_at_the_same_few(root, opened) -> None:
    path = written(root, 1)[0].images[0].path
    studies = []
    for i in range(2 * SAMPLE):
        os.link(path, root / f"x{i}.png")
        studies.append(Study(f"s{i}", "train", "r", None, (ImageRef(root / f"x{i}.png", ""),)))
    check_images(studies)
    first = list(opened)
    assert len(set(first)) == SAMPLE
    check_images(studies)
    assert sorted(opened[SAMPLE:]) == sorted(first)
    assert max(int(p.name[1:-4]) for p in first) > SAMPLE, "of all, not the first ones"
    for study in studies:
        if study.images[0].path not in first:
            study.images[0].path.unlink()
    check_images(studies)


def test_broken_files_are_remembered_until_they_change(root) -> None:
    studies = written(root, 3)
    cut(root / "1.png")
    (root / "2.png").unlink()
    memory = ImageMemory(root)
    found = dict(look_at(image_paths(studies), memory))
    assert found == memory.recall(image_paths(studies))
    assert isinstance(found[root / "0.png"], ImageFacts)
    assert memory.broken() == {str(root / f"{i}.png"): found[root / f"{i}.png"] for i in (1, 2)}
    assert ImageMemory(root.parent / "other").broken() == {}
    written(root, 3)
    assert memory.broken() == {}


def test_a_file_changed_while_it_is_read_is_not_remembered_as_it_became(root, monkeypatch) -> None:
    studies = written(root, 1)
    path = studies[0].images[0].path
    real = images_module.read_with_facts

    def changing(file: Path) -> tuple[Image.Image, ImageFacts]:
        image = real(file)
        os.utime(file, ns=(0, file.stat().st_mtime_ns + 10**9))
        return image

    monkeypatch.setattr(images_module, "read_with_facts", changing)
    list(look_at([path], ImageMemory(root)))
    assert ImageMemory(root).recall([path]) == {}


@pytest.mark.parametrize("kind", ["png", "dcm"])
@pytest.mark.parametrize("number", [errno.EIO, errno.EACCES])
def test_a_passing_error_is_not_remembered(root, monkeypatch, number, kind) -> None:
    path = root / f"0.{kind}"
    written(root, 1) if kind == "png" else dicom_files.write(path)

    def failing(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number), str(path))

    memory = ImageMemory(root)
    with monkeypatch.context() as disk:
        disk.setattr(Image, "open", failing)
        disk.setattr(pydicom, "dcmread", failing)
        ((_, verdict),) = look_at([path], memory)
    assert isinstance(verdict, str) and os.strerror(number) in verdict
    assert memory.broken() == memory.recall([path]) == {}


def test_a_missing_decoder_is_not_remembered(root) -> None:
    path = dicom_files.write(root / "a.dcm")
    dicom_files.encapsulated(path, JPEGLSLossless, b"\xff\xd8\xff\xd9")
    memory = ImageMemory(root)
    with dicom_files.without_pylibjpeg(JPEGLSLossless):
        ((_, verdict),) = look_at([path], memory)
    assert isinstance(verdict, str) and "pip install" in verdict
    assert memory.broken() == {}


def test_accepted_body_parts_are_accepted_and_remembered_apart(root) -> None:
    path = dicom_files.write(root / "a.dcm", Modality="DX", BodyPartExamined="RIBS")
    studies = [Study("s", "train", "r", None, (ImageRef(path, ""),))]
    for _ in range(2):
        with pytest.raises(UserError, match=r"body part is RIBS.*data.body_parts=\[RIBS\]"):
            check_images(studies, root)
        check_images(studies, root, ["ribs"])
    list(look_at([path], ImageMemory(root)))
    assert list(ImageMemory(root).broken()) == [str(path)]
    assert ImageMemory(root, ["ribs"]).broken() == {}
