"""Images of `generate` are decoded within a bound, and what is told of them has a longest text."""

from __future__ import annotations

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

SMALL = ["policy.prompt=short", "eval.max_new_tokens=6", "eval.batch=2"]


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
