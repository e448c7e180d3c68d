"""Settings that hold for every data set: broken studies, views not known, a loader of one's own."""

from __future__ import annotations

import json
import typing
import warnings
from pathlib import Path

import numpy as np
import pytest

from rrgdata import Catalogue, ImageRef, ReadSettings, Study
from rrgdata.images.read import read_image
from rrgdata.load import IMAGES, SECTIONS, open_studies
from rrgdata.sources import every_source
from rrgtrain.errors import UserError
from rrgtrain.schema import DataSettings, Recipe
from rrgtrain.schema.keys import settings
from tests.real_data import REAL
from tests.rrgdata.common import studies_under
from tests.rrgtrain.common import recipe

OWN = "tests.rrgdata.test_load:load_own"


def load_own(root: Path, settings: ReadSettings, catalogue: Catalogue) -> None:
    """A loader of one's own: a line a study, "-" for a broken one."""
    for number, line in enumerate((root / "own.txt").read_text().splitlines(), 1):
        where = f"own.txt: line {number}"
        if line == "-":
            catalogue.add_broken(where, "has no report; write one")
            continue
        if line == "short":
            catalogue.leave_out("without a findings section", split="train")
            continue
        view = "" if line == "unknown" else "frontal"
        images = () if settings.images == "none" else (ImageRef(root / "1.png", view),)
        catalogue.add(Study(f"s{number}", "train", line, None, images), where)
    catalogue.notes.append("own.txt has no labels")


def own(root: Path, *lines: str) -> list[str]:
    (root / "own.txt").write_text("\n".join(lines))
    return [f"data.source={OWN}", f"data.root={root}"]


def refused(*overrides: str) -> str:
    with pytest.raises(UserError) as caught:
        open_studies(recipe(*overrides).data, Path("nowhere"))
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_the_schema_offers_every_source() -> None:
    (source,) = [s for s in settings(Recipe) if s.key == "data.source"]
    assert source.choices is not None and source.choices == ("phantom", "mix", *every_source())
    hints = typing.get_type_hints(DataSettings)
    for name in typing.get_type_hints(ReadSettings):
        assert name in hints, f"data.{name} is a setting of loaders that no recipe can give"
    for key, words in (("data.images", IMAGES), ("data.sections", SECTIONS)):
        (setting,) = [s for s in settings(Recipe) if s.key == key]
        assert setting.choices is not None and sorted(setting.choices) == sorted(words)


def test_a_loader_of_ones_own(tmp_path) -> None:
    with pytest.warns(UserWarning, match=r"^own.txt has no labels$"):
        studies = open_studies(recipe(*own(tmp_path, "No edema.", "Edema.")).data, tmp_path)
    assert [s.report for s in studies["train"]] == ["No edema.", "Edema."]


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("mimc_cxr", "wanted one of phantom, .*did you mean mimic_cxr"),
        ("absent.module:load", "data.source=absent.module:load: absent.module cannot be imported"),
        (
            f"{__name__}:gone",
            "has no gone; define it as a function of root, settings and catalogue",
        ),
    ],
)
def test_sources_that_are_none(tmp_path, source, told) -> None:
    with pytest.raises(UserError, match=told):
        open_studies(recipe(f"data.source={source}", f"data.root={tmp_path}").data, tmp_path)


def test_broken_studies_stop_it_and_three_are_told(tmp_path) -> None:
    line = refused(*own(tmp_path, "a", "-", "-", "-", "-", "-"))
    assert line.count("has no report; write one") == 3 and "line 2 has no report" in line
    assert "; and 2 more. `rrgtrain data check" in line and "data.skip=true leaves them" in line


def test_broken_studies_are_left_out_and_listed(tmp_path) -> None:
    out = tmp_path / "run"
    given = own(tmp_path, "a", "-", "a report of more letters", "-", "b")
    cfg = recipe(*given, "data.skip=true", "data.longest_text=10")
    with pytest.warns(UserWarning, match="leaves out 3 broken studies, listed in .*left_out") as w:
        studies = open_studies(cfg.data, out)
    assert [s.report for s in studies["train"]] == ["a", "b"]
    assert len([one for one in w if "broken" in str(one.message)]) == 1
    rows = [json.loads(line) for line in (out / "left_out.jsonl").read_text().splitlines()]
    assert [row["where"] for row in rows] == ["own.txt: line 2", "own.txt: line 4", "study s3"]
    assert "has report of 24 characters, more than data.longest_text=10" in rows[2]["why"]


def test_rules_say_how_many_they_leave_out_by_split(tmp_path) -> None:
    with pytest.warns(
        UserWarning, match=r"^2 studies without a findings section left out: train 2"
    ):
        open_studies(recipe(*own(tmp_path, "a", "short", "short")).data, tmp_path)


def test_frontal_images_of_unknown_view_cannot_be_chosen(tmp_path) -> None:
    line = refused(*own(tmp_path, "a", "unknown"), "data.images=frontal")
    assert "study s2" in line and "use data.images=all" in line
    with warnings.catch_warnings(record=True):
        open_studies(recipe(*own(tmp_path, "a", "unknown")).data, tmp_path)


def test_ids_are_unique_whatever_the_loader(tmp_path) -> None:
    catalogue = Catalogue()
    catalogue.add(Study("a", "train", "x", None, ()), "file: row 1")
    catalogue.add(Study("a", "test", "x", None, ()), "file: row 2")
    told = r"row 2 repeats the id 'a' of file: row 1.*`rrgtrain data check '.*/my data'`"
    with pytest.raises(UserError, match=told):
        catalogue.check(tmp_path / "my data")


def test_no_more_than_so_many_images_are_looked_for(tmp_path) -> None:
    catalogue, gone = Catalogue(), tmp_path / "gone.png"
    assert catalogue.image_defect(tmp_path / "a\0b") == "not found"
    assert all(catalogue.image_defect(gone) == "not found" for _ in range(20_000 - 1))
    assert catalogue.image_defect(gone) is None


# The loaders on real files: Open-i reports and NIH radiographs, where they are at hand.
needs_real = pytest.mark.skipif(not REAL.is_dir(), reason=f"no real data at {REAL}; set RRG_DATA")


@pytest.mark.realdata
@needs_real
@pytest.mark.filterwarnings("ignore:.*left out")
def test_nih_radiographs():
    studies = studies_under("nih", REAL / "nih_starter")
    everything = [s for split in studies.values() for s in split]
    assert len(everything) == len(list((REAL / "nih_starter").glob("*.png")))
    for study in everything:
        image = read_image(study.images[0].path)
        pixels = np.asarray(image)
        assert image.mode == "RGB" and min(image.size) >= 512
        assert pixels.std() > 20
        height, width = pixels.shape[:2]
        middle = pixels[height // 2 :, width * 45 // 100 : width * 55 // 100].mean()
        assert middle > pixels[: height // 10, : width // 10].mean(), "bone white, air black"
