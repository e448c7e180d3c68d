"""The loaders on real files: Open-i reports and NIH radiographs, where they are at hand."""

from __future__ import annotations

import numpy as np
import pytest

from rrgdata.images.read import read_image
from rrgtrain.errors import UserError
from tests.real_data import REAL
from tests.rrgdata.common import studies_under

pytestmark = [
    pytest.mark.realdata,
    pytest.mark.skipif(not REAL.is_dir(), reason=f"no real data at {REAL}; set RRG_DATA"),
]


def test_iu_xray_reports():
    studies = studies_under("iu_xray", REAL / "iu_xray", images="none")
    assert {k: len(v) for k, v in studies.items()} == {"train": 1800, "val": 296, "test": 269}
    everything = [s for split in studies.values() for s in split]
    assert len({s.id for s in everything}) == 2365
    assert np.mean([bool(s.indication) for s in everything]) > 0.9
    assert all(s.report and s.labels is None and not s.images for s in everything)


def test_iu_xray_images_that_are_not_there_are_counted():
    with pytest.raises(UserError, match=r"0\.png.*images=none.*and 2362 more"):
        studies_under("iu_xray", REAL / "iu_xray")


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
