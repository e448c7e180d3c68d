"""Images of `generate` are decoded within a bound, and what is told of them has a longest text."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from rrgdata.images.in_flight import InFlight
from rrgtrain.cli import main
from rrgtrain.errors import UserError
from rrgtrain.run import generate as generate_module
from rrgtrain.run.generate import GenerateRequest, generate_reports
from tests.rrgpolicy.model.common import tiny_policy
from tests.rrgtrain.common import recipe
from tests.rrgtrain.run.test_generate import SMALL, refused


def test_images_are_decoded_while_there_is_room_for_their_pixels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint, root, decoding, most = tmp_path / "policy", tmp_path / "films", [0], [0]
    root.mkdir()
    tiny_policy().save(checkpoint)
    for number in range(6):
        grey = np.random.default_rng(number).integers(0, 255, (40, 40), dtype=np.uint8)
        Image.fromarray(grey).save(root / f"{number}.png")
    read = generate_module.read_with_facts

    def spied(*words: Any, **named: Any) -> Any:
        decoding[0] += 1
        most[0] = max(most[0], decoding[0])
        time.sleep(0.02)
        done = read(*words, **named)
        decoding[0] -= 1
        return done

    monkeypatch.setattr(generate_module, "read_with_facts", spied)
    monkeypatch.setattr(generate_module, "InFlight", lambda: InFlight(limit=2 * 40 * 40))
    words = ["generate", str(checkpoint), str(root), "--out", str(tmp_path / "a.jsonl"), *SMALL]
    assert main(words) == 0 and most[0] == 2
    # what a CSV tells of a study is bounded as a data set's texts are
    table = tmp_path / "context.csv"
    table.write_text("path,indication\n1.png," + "fever " * 4000 + "\n")
    with pytest.raises(UserError, match="its indication has 23,999 characters, more than"):
        generate_reports(
            recipe(f"policy.path={checkpoint}"),
            GenerateRequest(root, tmp_path / "b.jsonl", context=table),
        )


def test_what_stands_in_the_way_is_told_and_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoint, root, table = tmp_path / "policy", tmp_path / "films", tmp_path / "context.csv"
    root.mkdir()
    tiny_policy().save(checkpoint)
    grey = np.random.default_rng(0).integers(0, 255, (40, 40), dtype=np.uint8)
    Image.fromarray(grey).save(root / "a.png")
    words = [str(checkpoint), str(root), *SMALL, "--out"]
    deep = tmp_path / "new" / "deep" / "a.jsonl"

    table.write_text("id,indication\na.png,Co\0ugh\n")
    line = refused(capsys, *words, str(deep), "--context", str(table))
    assert "context.csv: row 2: indication has a NUL or no Unicode" in line
    with monkeypatch.context() as patch:
        patch.setattr(generate_module, "load_for", unloadable)
        assert "no weights" in refused(capsys, *words, str(deep))
    assert not (tmp_path / "new").exists()  # it holds reports, or is not made

    notes = tmp_path / "a.jsonl.errors.jsonl"
    notes.write_text("notes of one's own\n")
    line = refused(capsys, *words, str(tmp_path / "a.jsonl"))
    assert "a.jsonl.errors.jsonl is there, and not of an earlier call" in line
    assert notes.read_text() == "notes of one's own\n" and not (tmp_path / "a.jsonl").exists()

    # each was waited for: nobody writes into the pipe
    for name in ("pipe.png", "pipe.dcm"):
        os.mkfifo(root / name)
    for images in ("all", "none"):
        line = refused(capsys, *words, str(tmp_path / f"{images}.jsonl"), f"data.images={images}")
        assert "2 of 3 studies have no report" in line
    assert (tmp_path / "none.jsonl.errors.jsonl").read_text().count("is a pipe or a device") == 2


def unloadable(*_: object, **__: object) -> None:
    raise UserError("no weights")
