"""Images are decoded before a run, the first bad one is told, and good ones are remembered."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from rrgtrain.data import check_images as images_module
from rrgtrain.data.check_images import check_images
from rrgtrain.data.study import ImageRef, Study
from rrgtrain.errors import UserError


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The files that were decoded."""
    seen: list[Path] = []
    real = images_module.read_image

    def spied(path: Path) -> Image.Image:
        seen.append(path)
        return real(path)

    monkeypatch.setattr(images_module, "read_image", spied)
    return seen


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "rrgtrain"


@pytest.fixture
def root(tmp_path: Path) -> Path:
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


def test_each_image_is_decoded_once_and_not_again(
    root: Path, cache: Path, opened: list[Path]
) -> None:
    studies = written(root, 70)
    check_images([*studies, studies[0]], root)
    assert sorted(opened) == sorted(s.images[0].path for s in studies)
    check_images(studies, root)
    assert len(opened) == 70
    assert [f.name for f in cache.iterdir()] and len(list(cache.iterdir())) == 1


def test_a_changed_file_is_looked_at_again(root: Path, cache: Path, opened: list[Path]) -> None:
    studies = written(root, 3)
    check_images(studies, root)
    path = studies[1].images[0].path
    os.utime(path, ns=(0, path.stat().st_mtime_ns + 1))
    check_images(studies, root)
    assert opened[3:] == [path]


def test_the_first_bad_image_is_told_and_the_others_counted(
    root: Path, cache: Path, opened: list[Path]
) -> None:
    studies = written(root, 100)
    cut(root / "80.png")
    cut(root / "90.png")
    (root / "95.png").unlink()
    with pytest.raises(UserError, match=r"80.png: .*truncated.*\(and 2 more\)$") as caught:
        check_images(studies, root)
    assert "\n" not in str(caught.value)
    # what was good need not be looked at when the bad ones are replaced
    written(root, 100)
    for i in set(range(100)) - {80, 90, 95}:
        stamp = images_module._read(images_module._store(root))[str(root / f"{i}.png")]
        os.utime(root / f"{i}.png", ns=(stamp[1], stamp[1]))
    del opened[:]
    check_images(studies, root)
    assert sorted(p.name for p in opened) == ["80.png", "90.png", "95.png"]


def test_one_bad_image_is_not_counted(root: Path, cache: Path) -> None:
    studies = written(root, 2)
    cut(root / "1.png")
    with pytest.raises(UserError, match="1.png: the PNG is truncated, .*copy it again$"):
        check_images(studies, root)


def test_without_a_root_nothing_is_remembered(root: Path, cache: Path, opened: list[Path]) -> None:
    studies = written(root, 2)
    check_images(studies)
    check_images(studies)
    assert len(opened) == 4 and not cache.exists()


def test_studies_without_images_need_nothing(cache: Path) -> None:
    check_images([Study("s", "train", "r", None, ())], Path())
    assert not cache.exists()


@pytest.mark.parametrize("spoil", [lambda f: f.write_text("{"), lambda f: f.write_text("[]")])
def test_a_broken_memory_is_no_memory(
    spoil: Callable[[Path], object], root: Path, cache: Path, opened: list[Path]
) -> None:
    studies = written(root, 2)
    check_images(studies, root)
    spoil(next(cache.iterdir()))
    check_images(studies, root)
    assert len(opened) == 4


def test_where_nothing_can_be_remembered_that_is_said(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.warns(UserWarning, match="cannot be written .*checks the images again"):
        check_images(written(root, 1), root)
