"""A data set is added by one module: every reader then knows it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

MADE_UP = """
from rrgdata.sources.source import Published, Source
from rrgdata.study import Study


def load_made_up(root, settings, catalogue):
    catalogue.studies["train"] = [Study("one", "train", "Clear lungs.", None, ())]


SOURCE = Source(
    name="made_up",
    load=load_made_up,
    marks=("made_up.bin",),
    reports_apart=True,
    terms="the made-up terms",
    published=Published({"train": (12_345, None)}, "made-up studies", "https://example.org"),
)
"""

READERS = """
import sys
from pathlib import Path

import rrgdata.sources

rrgdata.sources.__path__.append(sys.argv[1])
from rrgdata import ReadSettings, load_studies
from rrgdata.check import check_data_set
from rrgdata.sources import guess_source
from rrgreport.model_card import Exported, model_card
from rrgtrain.config import load_config
from rrgtrain.schema import Recipe

root = Path(sys.argv[2])
data = load_config(Recipe, None, ["data.source=made_up", "data.prior=last"]).data
assert guess_source(root) == "made_up"
studies = load_studies("made_up", root, ReadSettings(reports=root)).studies
assert [study.id for study in studies["train"]] == ["one"]
check_data_set(root, data, source=None, out=None, images=False)
trained = {"data.source": "made_up"}
print(model_card(Exported("x", "M", "bf16", False, None, None, trained, None, False)))
"""


def test_every_reader_knows_a_source_of_one_module(tmp_path: Path) -> None:
    folder, root = tmp_path / "folder", tmp_path / "root"
    for path, text in ((folder / "made_up.py", MADE_UP), (root / "made_up.bin", "")):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    # a process of its own, since settings are declared once
    command = [sys.executable, "-c", READERS, str(folder), str(root)]
    done = subprocess.run(command, text=True, capture_output=True)
    assert done.returncode == 0, done.stderr
    for words in ("made_up (guessed", "12,345", "https://example.org", "the made-up terms"):
        assert words in done.stdout
