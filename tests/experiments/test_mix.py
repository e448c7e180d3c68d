"""Several data sets in one run: shares by hand, one id space, a resume, and a column a source."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from experiments import mix
from rrgclinical.common.plain_yaml import read_values
from rrgdata.catalogue import ReadSettings
from rrgdata.load import load_studies
from rrgtrain.errors import UserError
from tests.rrgtrain.common import phantoms
from tests.rrgtrain.runs import TINY_RUN, At, command, differences

CASES = read_values(Path(__file__).with_name("cases.yaml").read_text())
MIX = """
studies: 20
sources:
  a: {{source: iu_xray, root: {root}, weight: 3, limit: {{val: 1}}}}
  b: {{source: iu_xray, root: {root}, weight: 1, images: none, limit: {{train: 6, test: 2}}}}
  far: {{source: iu_xray, root: {root}, weight: 0}}
"""


@pytest.fixture(scope="module")
def file(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("mix") / "mix.yaml"
    path.write_text(MIX.format(root=phantoms()))
    return path


def test_shares_and_draws_by_hand() -> None:
    assert mix.shares([3, 1], 20) == [15, 5] and mix.shares([1, 1, 1], 20) == [7, 7, 6]
    pairs = mix.drawn(4, 10, [0, 1])
    assert len(set(pairs)) == 10 and {again for _, again in pairs} == {0, 1, 2}
    assert set(Counter(i for i, _ in pairs).values()) == {2, 3}, "all before any comes again"
    assert mix.drawn(4, 10, [0, 1]) == pairs != mix.drawn(4, 10, [1, 1])


def test_one_list_of_several_sources(file) -> None:
    catalogue = load_studies("experiments.mix:load", file)
    train = catalogue.studies["train"]
    assert Counter(s.id.partition("/")[0] for s in train) == {"a": 15, "b": 5}
    assert len({s.id for s in train}) == 20
    assert {s.id.partition("~")[2] for s in train if s.id[0] == "a"} == {"", "2"}
    assert all(bool(s.images) == (s.id[0] == "a") for s in train), "a source's own setting"
    assert Counter(s.id.split("/")[0] for s in catalogue.studies["val"]) == {"a": 1, "b": 3}
    assert Counter(s.id.split("/")[0] for s in catalogue.studies["test"]) == dict(a=4, b=2, far=4)
    assert "11 studies of far, out of domain, left out: train 8, val 3" in catalogue.lines()
    assert load_studies("experiments.mix:load", file).studies == catalogue.studies
    none = load_studies("experiments.mix:load", file, ReadSettings(images="none"))
    assert not any(s.images for s in none.studies["train"]), "what a source leaves to the run"


@pytest.mark.parametrize(("old", "new", "line"), CASES["mix"])
def test_a_mix_that_is_none_is_one_line(file, tmp_path, old, new, line) -> None:
    (path := tmp_path / "mix.yaml").write_text(file.read_text().replace(old, new, 1))
    with pytest.raises(UserError, match=rf"\A[^\n]*{re.escape(line)}[^\n]*\Z"):
        load_studies("experiments.mix:load", path)


def test_a_mix_resumes_to_the_bit_and_each_source_has_its_column(file, tmp_path, capsys) -> None:
    path = tmp_path / "mix.yaml"
    path.write_text(file.read_text().replace("images: none, ", ""))
    words = [*TINY_RUN, "data.source=experiments.mix:load", f"data.root={path}"]
    command("sft", "--out", "whole", *words, cwd=tmp_path, status=0)
    at = At("rrgtrain.train.sft:sft_loss", 3)
    command("sft", "--out", "run", *words, cwd=tmp_path, at=at, status=75)
    command("sft", "--resume", "run", cwd=tmp_path, status=0)
    assert differences(tmp_path / "whole", tmp_path / "run") == []
    assert (
        mix.main([str(path), str(tmp_path / "run"), "eval.bootstrap=20", "eval.meteor=false"]) == 0
    )
    head, *body = capsys.readouterr().out.splitlines()
    columns = ["in domain", "a", "b", "far (out of domain)"]
    assert np.all(np.diff([head.index(f" {name}") for name in columns]) > 0)
    assert any("constant template" in line and "match" in line.lower() for line in body)
