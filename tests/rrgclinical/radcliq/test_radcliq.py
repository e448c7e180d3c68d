"""RadCliQ-v1 by hand and from models with random weights, BERTScore against a plain loop."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

from rrgclinical.radcliq import BertScore, RadCliQ, RadCliQParts, entity_relation_f1, radcliq_v1
from rrgclinical.radgraph import Entity, Graph, RadGraph
from rrgtrain.errors import UserError
from tests.rrgclinical.chexbert import tiny as chexbert
from tests.rrgclinical.radgraph import archives

TEXTS = [
    "The heart is enlarged.",
    "No pleural effusion or pneumothorax is seen; the lungs are clear.",
    "Épanchement à gauche,   heart  normal",
    "clear",
    "effusion " * 80,
]
CANDIDATES = [*TEXTS, "", " ", "heart", "The heart is"]
REFERENCES = [*TEXTS[1:], "heart", "clear", TEXTS[0], "", "The heart is"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_folder(tmp_path_factory.mktemp("distilroberta"))


def plain_f1(folder, report: str, reference: str) -> float:
    """Word by word, a text at a time, from the fifth of the states that the whole network gives."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, add_prefix_space=True)
    network = transformers.RobertaModel.from_pretrained(folder, add_pooling_layer=False).eval()
    sides = []
    for text in (report, reference):
        ids = tokenizer(re.sub(" +", " ", text).strip(), truncation=True, max_length=62)
        with torch.no_grad():
            out = network(torch.tensor([ids["input_ids"]]), output_hidden_states=True)
        sides.append([row / row.norm() for row in out.hidden_states[5][0]])
    if min(map(len, sides)) <= 2:
        raw = 0.0
    else:
        best = [
            [max(float(one @ two) for two in other) for one in words[1:-1]]
            for words, other in (sides, sides[::-1])
        ]
        precision, recall = (sum(words) / len(words) for words in best)
        raw = 2 * precision * recall / (precision + recall)
    return (raw - 0.8473319) / (1 - 0.8473319)


def test_bertscore_is_a_plain_loops(folder) -> None:
    found = BertScore(folder, token_budget=70).f1(CANDIDATES, REFERENCES)
    wanted = [plain_f1(folder, *pair) for pair in zip(CANDIDATES, REFERENCES, strict=True)]
    np.testing.assert_allclose(found, wanted, atol=2e-5)
    assert found[-1] == pytest.approx(1.0, abs=1e-5)
    assert found[5:7] == pytest.approx(-0.8473319 / (1 - 0.8473319))


def test_a_text_reads_its_first_word_as_any_other(folder) -> None:
    """bert-score puts a space before RoBERTa's texts; without it "The" is another piece."""
    reader = BertScore(folder)
    words = reader._tokenizer.convert_ids_to_tokens(reader._tokenizer("The heart")["input_ids"])
    assert words == ["<s>", "ĠThe", "Ġheart", "</s>"]


def test_folders_that_are_no_distilroberta(tmp_path) -> None:
    with pytest.raises(UserError, match=r"no config.json in .*; pass the folder of distilbert/"):
        BertScore(tmp_path)
    write_folder(tmp_path, layers=4)
    with pytest.raises(UserError, match="has 4 layers; wanted 5 or more"):
        BertScore(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "num_hidden_layers": 5}))
    with pytest.raises(UserError, match=r"lacks 16 tensors, encoder.layer.4.attention"):
        BertScore(tmp_path)


def test_the_composite_by_hand() -> None:
    """The mean of the fit scores 0, a scale above it the sum of the weights."""
    mean = np.array([0.5379231241, 0.6175725628, 0.7647942121])
    scale = np.array([0.3028258411, 0.2243093846, 0.2539439110])
    parts = RadCliQParts(*np.stack([mean, mean + scale, np.ones(3)], axis=1))
    perfect = -0.3770836826 * 1.5258832 - 0.3703000997 * 1.7049105 - 0.2526162179 * 0.9262116
    assert radcliq_v1(parts) == pytest.approx([0.0, -1.0000000003, perfect], abs=1e-6)


def graph(*entities: tuple[str, str, tuple[tuple[str, int], ...]]) -> Graph:
    listed = tuple(Entity(text, label, i, i, r) for i, (text, label, r) in enumerate(entities))
    return Graph((), (), listed, 1)


def test_entities_and_relations_count_half_each() -> None:
    """Two of three entities shared, and of two relations one: (4/5 + 2/3) / 2; none shared: 0."""
    effusion, left = ("effusion", "OBS-DP"), ("left", "ANAT-DP")
    one = graph((*effusion, (("located_at", 1),)), (*left, ()))
    other = graph(
        (*effusion, (("located_at", 1),)), (*left, (("modify", 2),)), ("lung", "ANAT-DP", ())
    )
    assert entity_relation_f1(one, other) == pytest.approx((4 / 5 + 2 / 3) / 2)
    assert entity_relation_f1(one, graph()) == entity_relation_f1(graph(), graph()) == 0.0
    assert entity_relation_f1(graph((*left, ())), graph((*left, ()))) == 0.5


def test_radcliq_of_three_models(folder, tmp_path) -> None:
    labeller = chexbert.labeller(chexbert.write_folder(tmp_path))
    radgraph = RadGraph(archives.write_archive(tmp_path, "radgraph"))
    judge = RadCliQ(radgraph, labeller, BertScore(folder))
    reports = [*archives.random_reports(5, seed=3), ""]
    others = [*(f"{text} {text[:20]} effusion" for text in reports[:-1]), "no effusion"]
    parts = judge.parts(reports, others)
    assert parts.radgraph[-1] == 0.0 and len(set(parts.radgraph)) > 2
    network = labeller.network.bert
    assert isinstance(network, transformers.BertModel)
    for report, other, cosine in zip(reports, others, parts.embedding, strict=True):
        states = []
        for text in (report, other):
            ids = torch.tensor([labeller.tokenize([text])[0].ids])
            with torch.no_grad():
                states.append(network(ids).last_hidden_state[0, 0])
        wanted = torch.nn.functional.cosine_similarity(*states, dim=0)
        assert cosine == pytest.approx(float(wanted), abs=1e-5)
    same = judge.score(reports[:-1], reports[:-1])
    assert (same < judge.score(reports[:-1], others[:-1])).all()
    np.testing.assert_allclose(radcliq_v1(parts), judge.score(reports, others))
    with pytest.raises(ValueError, match="1 reports and 2 references"):
        judge.score(["a"], ["a", "b"])


# A tiny distilroberta with random weights and its tokenizer, in the official layout.
SPECIAL = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]


def write_folder(folder: Path, layers: int = 6) -> Path:
    """Config, tokenizer and weights with the head that the hub's checkpoint has."""
    archives.byte_level(TEXTS, SPECIAL, "<unk>", space=True).model.save(str(folder))
    names = (str(folder / "vocab.json"), str(folder / "merges.txt"))
    tokenizer = transformers.RobertaTokenizerFast(*names, model_max_length=62)
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    config = transformers.RobertaConfig(
        vocab_size=len(tokenizer),
        hidden_size=16,
        num_hidden_layers=layers,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=64,
        type_vocab_size=1,
        initializer_range=0.3,
    )
    transformers.RobertaForMaskedLM(config).save_pretrained(folder)
    return folder
