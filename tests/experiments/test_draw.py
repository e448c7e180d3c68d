"""The first page's pictures: both are drawn from a run, and those committed are of that kind."""

from __future__ import annotations

import shutil
from pathlib import Path
from xml.etree import ElementTree

import pytest

from experiments import draw
from rrgclinical.common.errors import UserError
from rrgreport import EditSample, Sample, read_samples, write_samples
from tests.rrgtrain.runs import finished_demo

IMAGES = Path(__file__).parents[2] / "docs" / "img"
SVG = "{http://www.w3.org/2000/svg}"


def parts(path: Path) -> tuple[str, set[str], set[str]]:
    """All text of a picture, its tags, and the colours in it; it must not be cut or grow."""
    text = path.read_text(encoding="utf-8")
    assert len(text.encode()) < 60_000 and "http" not in text.replace("http://www.w3.org", "")
    root = ElementTree.fromstring(text)
    wide, high = map(float, root.attrib["viewBox"].split()[2:])
    for node in root.iter(f"{SVG}text"):
        assert 0 <= float(node.attrib["x"]) < wide and 0 < float(node.attrib["y"]) < high
    nodes = list(root.iter())
    fills = {node.attrib["fill"] for node in nodes if "fill" in node.attrib}
    words = " ".join(" ".join("".join(node.itertext()).split()) for node in nodes)
    return words, {node.tag.removeprefix(SVG) for node in nodes}, fills


def look(folder: Path) -> None:
    words, tags, fills = parts(folder / "case.svg")
    for word in ("a phantom, no clinical result", "reference", "SFT", "EditGRPO", "An edit while"):
        assert word in words, word
    assert "image" in tags and {draw.COLOURS["added"], draw.COLOURS["removed"]} & fills
    words, _, fills = parts(folder / "step.svg")
    rooms = {name for station in draw.STATIONS for name in " ".join(station).split()}
    assert all(name in words for name in rooms) and set(draw.OWNERS.values()) <= fills
    assert "sampling" in words and "update" in words


def test_the_committed_pictures_are_what_the_script_draws() -> None:
    look(IMAGES)


@pytest.mark.slow
def test_both_are_drawn_from_a_run(tmp_path: Path) -> None:
    run = shutil.copytree(finished_demo()[0], tmp_path / "run")
    samples = read_samples(run / "samples.jsonl")
    study = next(s for s in samples if isinstance(s, Sample) and s.images)
    hostile = "The heart is enlarged & <b>wide</b>.\x00 " + "long " * 80
    edit = EditSample("e", hostile, "No edema.", [("b", hostile, "No edema.")], "No edema.")
    write_samples(run / "samples.jsonl", [*samples, edit])
    draw.main([str(run), "--out", str(tmp_path / "img")])
    look(tmp_path / "img")
    # a run without a radiograph is refused in one line
    write_samples(run / "samples.jsonl", [Sample(study.id, [], "", study.outputs)])
    with pytest.raises(UserError, match="kept no study with an image"):
        draw.main([str(run), "--out", str(tmp_path / "img")])


def test_rooms_of_the_picture_are_on_the_disk() -> None:
    root = IMAGES.parents[1]
    for _, _, own, kernels in draw.STATIONS:
        assert (root / "python" / own).is_dir() or (root / "python/rrgtrain" / own).is_dir(), own
        assert all((root / "rrgkern" / name).is_dir() for name in kernels.split()), kernels
