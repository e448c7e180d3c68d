"""Reward terms by the packages and by ours, side by side in one recipe."""

from __future__ import annotations

import re
import sys

import numpy as np
import pytest

from examples.real_weights import ALIKE, both
from rrgclinical import build_labeller
from rrgclinical.official import OracleError, Worker, oracle_python
from rrgclinical.rules import split_sentences
from rrgtrain.errors import UserError
from rrgtrain.run.stress import stress
from rrgtrain.schema import Recipe, RewardSettings
from tests.rrgclinical.chexbert import tiny as chexbert
from tests.rrgclinical.oracle.base import name_tokenizers
from tests.rrgclinical.radgraph import archives
from tests.rrgclinical.ratescore import tiny as ratescore

REPORTS = [f"{text.strip()}." for text in archives.random_reports(60, seed=21, longest=14)]


def test_terms_of_the_packages_are_ours(oracle, tmp_path):
    place = archives.write_archive(tmp_path / "radgraph", "radgraph-xl", encoder=archives.TINY)
    folders = ratescore.write_tiny(tmp_path / "ratescore", REPORTS)
    name_tokenizers(*folders)
    ner, embedder = map(str, folders)
    (tmp_path / "chexbert").mkdir()
    chexbert.write_folder(tmp_path / "chexbert")
    options = {
        "chexbert": {
            "weights": str(tmp_path / "chexbert" / "weights.pth"),
            "tokenizer": str(tmp_path / "chexbert"),
            "config": chexbert.CONFIG,
        },
        "radgraph": {"weights": str(place)},
        "ratescore": {"ner": ner, "embedder": embedder},
    }
    # Where both splitters see the same sentences: the scores are equal for those.
    longer = [f"{text[:-1]} clear." for text in REPORTS]
    chosen = [
        pair
        for pair, *theirs in zip(
            zip(REPORTS, longer, strict=True),
            *(oracle.call("ratescore_sentences", reports=r) for r in (REPORTS, longer)),
            strict=True,
        )
        if all(theirs) and [[one[a:b] for a, b in split_sentences(one)] for one in pair] == theirs
    ]
    assert len(chosen) >= 20
    reports = [*(one for one, _ in chosen), "", " \n"]
    references = [*(other for _, other in chosen), REPORTS[0], REPORTS[1]]
    scores = both(options, reports, references, worker=oracle)
    assert scores["label_f1"][0].tolist() == scores["label_f1"][1].tolist()
    assert scores["radgraph"][0] == pytest.approx(scores["radgraph"][1], abs=1e-12)
    # Ties between cosines go either way in the package (test_ratescore_parity); most have none.
    apart = np.abs(np.subtract(*scores["ratescore"]))
    assert np.median(apart) <= 1e-6 and (apart <= 1e-6).mean() >= ALIKE["ratescore"]
    for ours, _ in scores.values():
        assert len(np.unique(ours.round(6))) > 3


def test_stress_has_the_same_table_of_a_package_and_of_ours(oracle, tmp_path, capsys):
    """On random weights a term is shown to be the package's, not to order errors rightly."""
    place = archives.write_archive(tmp_path / "radgraph", "radgraph-xl", encoder=archives.TINY)
    own = {"weights": str(place)}
    options = {"radgraph": own, "radgraph-official": {**own, "worker": oracle}}
    terms = {"severity": 1.0, "radgraph": 1.0, "radgraph-official": 1.0}
    recipe = Recipe(reward=RewardSettings(terms=terms, options=options))
    assert stress(recipe, studies=2) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    pairs = [line[-2:] for line in lines if len(line) > 3 and re.fullmatch(r"[\d./]+", line[-1])]
    assert len(pairs) > 50 and [pair for pair in pairs if pair[0] != pair[1]] == []
    assert len({pair[0] for pair in pairs}) > 10


# A package that fails is an error of the caller, never a score.
def test_no_environment_is_told(monkeypatch, tmp_path):
    monkeypatch.setenv("RRGKERN_ORACLE_PYTHON", str(tmp_path / "python"))
    with pytest.raises(UserError, match="no python at .*: .* run `make oracle`, or name") as caught:
        oracle_python()
    assert "\n" not in str(caught.value)
    with pytest.raises(UserError, match="no python at"):
        Worker()
    with pytest.raises(UserError, match="set reward.options.chexbert.weights=PATH"):
        build_labeller("chexbert-official")


def test_what_the_worker_raises_is_raised_here():
    worker = Worker(sys.executable)
    with pytest.raises(OracleError, match="nonsense: KeyError: 'nonsense'"):
        worker.call("nonsense")
    # It goes on answering.
    with pytest.raises(OracleError, match="chexbert_labels: IndexError: list index out of range"):
        worker.call("chexbert_labels", model=0, reports=["a"])
    with pytest.raises(OracleError, match="TypeError: .*unexpected keyword argument 'text'"):
        worker.call("chexbert_labels", text="a")
    worker.close()
    with pytest.raises(OracleError, match="the oracle process is closed"):
        worker.call("chexbert_labels", reports=["a"])


def test_a_worker_that_says_why_it_ended_is_quoted(tmp_path):
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\necho one >&2\necho the last word >&2\nexit 3\n")
    broken.chmod(0o755)
    with pytest.raises(OracleError, match=r"ended with 3 \(the last word\)"):
        Worker(broken).call("chexbert_labels", reports=["a"])


def test_a_worker_that_hangs_is_ended(tmp_path):
    silent = tmp_path / "python"
    silent.write_text("#!/bin/sh\nexec sleep 60\n")
    silent.chmod(0o755)
    worker = Worker(silent, timeout=0.2)
    with pytest.raises(OracleError, match="no answer from the oracle process in 0.2 s"):
        worker.call("chexbert_labels", reports=["a"])
    assert worker._process.poll() is not None
