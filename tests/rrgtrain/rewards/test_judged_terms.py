"""BERTScore, RadCliQ-v1 and sets of sentences as terms, by tiny models of random weights."""

from __future__ import annotations

from functools import partialmethod
from pathlib import Path

import numpy as np
import pytest
import torch

from rrgclinical.chexbert import CheXbertLabeller
from rrgclinical.radcliq import BertScore
from rrgclinical.radgraph import RadGraph
from rrgclinical.ratescore import SentenceEmbedder, splitter
from rrgtrain.cli import main
from rrgtrain.config import load_config
from rrgtrain.errors import UserError
from rrgtrain.rewards import RewardService
from rrgtrain.schema import Recipe, RewardSettings
from tests.rrgclinical.chexbert import tiny as chexbert
from tests.rrgclinical.radcliq.test_radcliq import write_folder
from tests.rrgclinical.radgraph import archives
from tests.rrgclinical.ratescore.tiny import write_embedder, write_tiny
from tests.rrgtrain.runs import rows, started

REPORTS = ["No effusion. Large heart.", "Edema.", "", "No effusion. No effusion.", " \n"]
REFERENCES = ["Large heart. No effusion.", "No edema. Clear.", "Edema.", "No effusion.", "Edema."]


@pytest.fixture(scope="module")
def options(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, str]]:
    folders = {n: tmp_path_factory.mktemp(n) for n in ("radgraph", "chexbert", "bertscore", "sdr")}
    chexbert.write_folder(folders["chexbert"])
    write_folder(folders["bertscore"])
    write_embedder(folders["sdr"], [*REPORTS, *REFERENCES])
    weights = str(folders["chexbert"] / "weights.pth")
    return {
        "radgraph": {"weights": str(archives.write_archive(folders["radgraph"]))},
        "chexbert": {
            **{"weights": weights, "tokenizer": str(folders["chexbert"])},
            "config": chexbert.CONFIG,
        },
        "bertscore": {"weights": str(folders["bertscore"])},
        "sdr": {"embedder": str(folders["sdr"])},
    }


def test_terms_are_the_metrics_that_are_reported(options) -> None:
    settings = RewardSettings(terms={"bertscore": 1.0, "radcliq": 0.5}, options=options)
    found = RewardService(settings)(REPORTS, REFERENCES)
    judge = RewardService(settings).model("radcliq")
    parts = judge.parts(REPORTS, REFERENCES)
    np.testing.assert_allclose(found["bertscore"], parts.bertscore, atol=1e-6)
    # fewer errors are a higher reward
    np.testing.assert_allclose(found["radcliq"], -judge.score(REPORTS, REFERENCES), atol=1e-6)
    same = RewardService(settings)(REFERENCES[:2], REFERENCES[:2])
    assert (same["radcliq"] > found["radcliq"][:2]).all()


def test_each_reference_is_read_once(options, monkeypatch: pytest.MonkeyPatch) -> None:
    reads: dict[str, list[str]] = {}

    def count(target: type, name: str) -> None:
        real = getattr(target, name)

        def counted(self: object, texts: list[str], *more: object) -> object:
            reads.setdefault(target.__name__, []).extend(texts)
            return real(self, texts, *more)

        monkeypatch.setattr(target, name, counted)

    count(BertScore, "_states")
    count(RadGraph, "annotate")
    count(CheXbertLabeller, "embed")
    terms = {"bertscore": 1.0, "radcliq": 1.0, "radgraph": 1.0}
    service = RewardService(RewardSettings(terms=terms, options=options))
    references = [*REFERENCES, REFERENCES[0]]
    service.prefetch(references).result()
    ahead = {name: len(texts) for name, texts in reads.items()}
    rounds = [[f"{report} Seen {k}." for report in [*REPORTS, "Edema."]] for k in range(3)]
    for reports in rounds:
        service(reports, references)
    again = {n: [t for t in texts[ahead[n] :] if t in references] for n, texts in reads.items()}
    assert set(reads) == {"BertScore", "RadGraph", "CheXbertLabeller"}
    assert not any(again.values()), again
    for name, texts in reads.items():
        assert sorted(set(texts)) == sorted(texts), f"{name} read a text twice"
        assert set(references) | {text for reports in rounds for text in reports} <= set(texts)


def test_sets_of_sentences_are_compared_both_ways(options) -> None:
    settings = RewardSettings(terms={"sdr": 1.0}, options=options)
    service = RewardService(settings)
    found = service(REPORTS, REFERENCES)["sdr"]
    one = SentenceEmbedder(options["sdr"]["embedder"])
    split = splitter("rules")

    def vectors(text: str) -> torch.Tensor:
        rows = [one.read([text[a:b]]).vectors for a, b in split(text)]
        return torch.tensor(np.concatenate(rows)).double()

    for k in (0, 1, 3):
        cosines = vectors(REPORTS[k]) @ vectors(REFERENCES[k]).T
        p, r = float(cosines.max(1).values.mean()), float(cosines.max(0).values.mean())
        assert found[k] == pytest.approx(max(0.0, 2 * p * r / (p + r)), abs=1e-5)
    # order and repetition of sentences change nothing; to say nothing earns nothing
    assert found[[0, 3]] == pytest.approx([1.0, 1.0], abs=1e-5)
    assert found[[2, 4]].tolist() == [0.0, 0.0] and found[1] < 1 - 1e-3
    # each distinct sentence is read once, over batches too
    reader = service.model("sdr")
    computed = reader._embedded.computed
    service([REFERENCES[0]], [REFERENCES[0]])
    assert reader._embedded.computed == computed


def test_files_that_they_lack_are_told_at_once(tmp_path: Path) -> None:
    terms = {"radcliq": 1.0, "sdr": 1.0}
    with pytest.raises(UserError, match=r"^4 model files are missing: ") as told:
        RewardService(RewardSettings(terms=terms))
    for name in ("radgraph.weights", "chexbert.weights", "bertscore.weights", "sdr.embedder"):
        assert f"reward.options.{name} (" in str(told.value)
    bad = {"sdr": {"embedder": str(tmp_path), "embeder": 1}}
    with pytest.raises(UserError, match="embeder"):
        RewardService(RewardSettings(terms={"sdr": 1.0}, options=bad))(["a"], ["b"])


@pytest.mark.usefixtures("at_home")
def test_the_papers_three_judges_and_its_extractor_train_together(
    options, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Random weights in the official layout: it is the path that is shown, not the rewards."""
    ner, embedder = write_tiny(tmp_path, [*REPORTS, *REFERENCES])
    rate = {"ner": ner, "embedder": embedder}
    judges = {name: options[name] for name in ("chexbert", "radgraph")} | {"ratescore": rate}
    files = [
        f"reward.options.{judge}.{key}={value}"
        for judge, values in judges.items()
        for key, value in values.items()
        if key != "config"
    ]
    small = partialmethod(CheXbertLabeller.__init__, config=chexbert.CONFIG)
    monkeypatch.setattr(CheXbertLabeller, "__init__", small)
    paper = load_config(Recipe, "paper/editgrpo", []).reward
    terms = ",".join(f"{term}: {weight}" for term, weight in paper.terms.items())
    by = [f"reward.terms={{{terms}}}", f"reward.labeller={paper.labeller}"]
    more = [f"reward.extractor={paper.extractor}", "rl.steps=2", "deterministic=false"]
    assert main(started(*files, *by, *more)) == 0
    steps = [row for row in rows(tmp_path / "run") if row["phase"] == "editgrpo"]
    assert len(steps) == 2
    assert any(v for row in steps for k, v in row.items() if k.startswith("edits/"))
    for row in steps:
        assert row["reward/total"] == pytest.approx(sum(row[f"reward/{t}"] for t in paper.terms))
        assert all(0 <= row[f"reward/{term}"] <= 1 for term in paper.terms)
