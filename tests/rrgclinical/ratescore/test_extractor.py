"""The batched extractor against one sentence and phrase at a time, and RaTEScore as a reward."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    AutoModel,
    AutoModelForTokenClassification,
    AutoTokenizer,
    DebertaV2ForTokenClassification,
)

from rrgclinical import KINDS, Entities, build_extractor
from rrgclinical.cached import CachedExtractor
from rrgclinical.entities import join_entities, split_entities
from rrgclinical.ratescore import RaTEExtractor, affinity, decode_labels
from rrgkern import ReportEntities, entity_match
from rrgtrain.algorithms import edit_reports
from rrgtrain.errors import UserError
from rrgtrain.rewards import RewardService
from rrgtrain.schema import EditSettings, RewardSettings
from tests.rrgclinical.cases import cases
from tests.rrgclinical.ratescore.tiny import write_tiny

SENTENCES = [sentence for sentence, _ in cases()]
REPORTS = [
    *(" ".join(SENTENCES[i : i + 5]) for i in range(0, 30, 5)),
    "",
    "  \n ",
    "No",
    "Ok. Heart size is normal. A.",
    "Small\tleft\n\npleural  effusion. Édema [SEP] of the [CLS] lungs 😀.",
    " ".join(SENTENCES[:5]),
]


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return write_tiny(tmp_path_factory.mktemp("rate"), SENTENCES)


@pytest.fixture(scope="session")
def extractor(folders: tuple[Path, Path]) -> RaTEExtractor:
    return RaTEExtractor(*folders)


def one_at_a_time(folders: tuple[Path, Path], split) -> list[list[tuple[str, str, np.ndarray]]]:
    """(text, type, unit embedding) of every report's entities, nothing batched."""
    tokenizer = AutoTokenizer.from_pretrained(folders[0])
    ner = AutoModelForTokenClassification.from_pretrained(folders[0]).eval()
    words = AutoTokenizer.from_pretrained(folders[1])
    embedder = AutoModel.from_pretrained(folders[1]).eval()
    found = []
    for report in REPORTS:
        entities = []
        for start, end in split(report):
            sentence = report[start:end]
            if len(sentence) < 3:
                continue
            encoded = tokenizer([sentence], return_tensors="pt", truncation=True, max_length=512)
            ids = encoded["input_ids"]
            with torch.no_grad():
                logits = ner(input_ids=ids, attention_mask=torch.ones_like(ids)).logits[0]
            tokens = tokenizer.convert_ids_to_tokens(ids[0])
            labels = [ner.config.id2label[i] for i in logits.argmax(-1).tolist()]
            special = [token in ("[CLS]", "[SEP]") for token in tokens]
            for first, last, kind in decode_labels(labels, special):
                text = tokenizer.convert_tokens_to_string(tokens[first : last + 1])
                ids = words(text, truncation=True, max_length=30, return_tensors="pt")["input_ids"]
                with torch.no_grad():
                    state = embedder(input_ids=ids).last_hidden_state[0, 0]
                entities.append((text, kind, (state / state.norm()).numpy()))
        found.append(entities)
    return found


def test_entities_are_those_of_one_sentence_at_a_time(folders, extractor: RaTEExtractor) -> None:
    wanted = one_at_a_time(folders, extractor.split)
    for budget in (1, 300):
        made = RaTEExtractor(*folders, token_budget=budget)
        found = made.extract(REPORTS)
        for report, entities in enumerate(wanted):
            rows = found.of_report(report)
            pairs = [(text, kind) for text, kind, _ in entities]
            assert (
                list(zip(found.text[rows], [KINDS[k] for k in found.kind[rows]], strict=True))
                == pairs
            )
            for row, (_, _, embedding) in zip(range(rows.start, rows.stop), entities, strict=True):
                np.testing.assert_allclose(found.embedding[row], embedding, atol=2e-6)
    assert set(found.kind.tolist()) == set(range(5))
    assert found.presence.tolist() == [[1, 0, 1, 0, -1][kind] for kind in found.kind]
    # every report that can hold one does, the others hold none
    counts = np.diff(found.offsets)
    assert [bool(n) for n in counts[6:9]] == [False] * 3 and counts[:6].all()


def test_order_and_repetition_change_nothing(extractor: RaTEExtractor) -> None:
    forward, back = extractor.extract(REPORTS), extractor.extract(REPORTS[::-1] + REPORTS[:1])
    for report in range(len(REPORTS)):
        a, b = forward.of_report(report), back.of_report(len(REPORTS) - 1 - report)
        for name in ("key", "span", "kind", "sentence", "embedding"):
            np.testing.assert_array_equal(getattr(forward, name)[a], getattr(back, name)[b])


def test_spans_show_the_text_and_keys_ignore_case(extractor: RaTEExtractor) -> None:
    found = extractor.extract(REPORTS)
    index = found.report_index()
    for row, text in enumerate(found.text):
        start, end = found.span[row]
        shown = REPORTS[index[row]][start:end]
        if "[UNK]" not in text and text.strip():
            assert "".join(shown.split()) == "".join(text.split())
    pairs: dict[tuple[str, int], set[int]] = {}
    for text, kind, key in zip(found.text, found.kind.tolist(), found.key.tolist(), strict=True):
        pairs.setdefault((" ".join(text.casefold().split()), kind), set()).add(key)
    assert all(len(keys) == 1 for keys in pairs.values())
    assert len(set.union(*pairs.values())) == len(pairs)
    assert extractor.extract([]).embedding.shape == (0, 24)


def test_an_embedding_that_is_held_holds_no_batch(folders) -> None:
    extractor = RaTEExtractor(*folders)
    extractor.extract(REPORTS)
    held = extractor._embedded._recent.values()
    assert len(held) > 1 and all(row.base is None for row in held)


@pytest.mark.parametrize("changed", ["rules/sentences", "ratescore/extractor", "entities"])
def test_readings_of_other_code_are_not_used(changed: str, folders, tmp_path, monkeypatch) -> None:
    """The splitter may have changed, or what is made of the networks' outputs."""
    read, report = Path.read_bytes, REPORTS[:1]
    CachedExtractor(RaTEExtractor(*folders), cache=tmp_path).extract(report, keep=True)
    same = CachedExtractor(RaTEExtractor(*folders), cache=tmp_path)
    same.extract(report)

    def edited(file: Path) -> bytes:
        return read(file) + b"\n" * file.match(f"rrgclinical/{changed}.py")

    monkeypatch.setattr(Path, "read_bytes", edited)
    other = CachedExtractor(RaTEExtractor(*folders), cache=tmp_path)
    other.extract(report)
    assert (same.results.from_disk, other.results.from_disk) == (1, 0)


def test_a_sentence_past_512_pieces_is_cut_and_told_once(extractor, caplog) -> None:
    long = " ".join(SENTENCES[:150]).lower().replace(".", "").replace("?", "") + "."
    with caplog.at_level(logging.WARNING):
        found = extractor.extract([long])
        extractor.extract([long + "."])
    assert found.span[:, 1].max() < len(long) - 10
    assert caplog.text.count("512 pieces") == 1


def spoilt(folder: Path, target: Path, change) -> Path:
    """A copy of a checkpoint with its tensors changed."""
    shutil.copytree(folder, target)
    tensors = load_file(target / "model.safetensors")
    change(tensors)
    save_file(tensors, target / "model.safetensors", metadata={"format": "pt"})
    return target


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.pop("classifier.bias"), "lacks classifier.bias"),
        (lambda t: t.update(other=torch.zeros(2)), "holds besides other"),
        (lambda t: t.update({"classifier.weight": torch.zeros(3, 32)}), "classifier.weight"),
    ],
)
def test_a_checkpoint_that_does_not_fit_is_named(folders, tmp_path, change, message) -> None:
    with pytest.raises(UserError, match=rf"(?s)extractor ratescore: .*{message}"):
        RaTEExtractor(spoilt(folders[0], tmp_path / "bad", change), folders[1])


def test_bad_input(folders, extractor: RaTEExtractor, tmp_path: Path) -> None:
    ner, embedder = folders
    with pytest.raises(UserError, match=r"no ner given; .*RaTE-NER-Deberta.*`rules` needs no file"):
        build_extractor("ratescore")
    with pytest.raises(UserError, match=r"no embedder given; .*BioLORD-2023-C"):
        build_extractor("ratescore", ner=ner)
    with pytest.raises(UserError, match="ner .*nothing cannot be loaded"):
        RaTEExtractor(tmp_path / "nothing", embedder)
    with pytest.raises(UserError, match="unknown option 'nerr' .did you mean ner"):
        build_extractor("ratescore", nerr=ner)
    model = DebertaV2ForTokenClassification.from_pretrained(ner)
    model.config.id2label = {i: f"L{i}" for i in range(11)}
    shutil.copytree(ner, tmp_path / "other")
    model.config.save_pretrained(tmp_path / "other")
    with pytest.raises(UserError, match="labels of .* differ from RaTE-NER's in B-ABNORMALITY"):
        RaTEExtractor(tmp_path / "other", embedder)
    for option, message in (
        ({"dtype": "fp16"}, "dtype 'fp16'; choose fp32 or bf16"),
        ({"token_budget": 0}, "token_budget is 0"),
        ({"device": "cuda:99"}, "device 'cuda:99' is not there"),
    ):
        with pytest.raises(UserError, match=message):
            RaTEExtractor(ner, embedder, **option)
    with pytest.raises(TypeError, match=r"reports\[1\] is int"):
        extractor.extract(["a", 1])  # type: ignore[list-item]


def test_weights_that_are_not_finite_are_not_read_as_labels(folders, tmp_path: Path) -> None:
    bad = spoilt(folders[0], tmp_path / "nan", lambda t: t["classifier.bias"].fill_(float("nan")))
    with pytest.raises(FloatingPointError, match="RaTE-NER's logits are not finite"):
        RaTEExtractor(bad, folders[1]).extract(["Heart size is normal."])


@pytest.mark.parametrize(
    # labels between [CLS], an O, and [SEP]; that of [SEP]; (first, last, type) with [CLS] at 0
    ("inner", "closing", "wanted"),
    [
        ("", "O", []),
        ("O O", "O", []),
        ("B-X O", "O", [(1, 1, "X")]),
        ("B-X I-X O", "O", [(1, 2, "X")]),
        ("B-X I-X I-X O B-Y O", "O", [(1, 3, "X"), (5, 5, "Y")]),
        ("B-X B-Y O", "O", [(1, 1, "X"), (2, 2, "Y")]),
        ("B-X I-X B-Y O", "O", [(1, 2, "X"), (3, 3, "Y")]),
        # the closing token's O ends what is open
        ("B-X I-X", "O", [(1, 2, "X")]),
        ("O B-X", "O", [(2, 2, "X")]),
        # I- of another type goes on, and the type is that of B-
        ("B-X I-Y O", "O", [(1, 2, "X")]),
        # I- alone is dropped
        ("I-X O", "O", []),
        ("O I-X I-X O", "O", []),
        # but B- after it takes its place as a start at once
        ("I-X B-Y O", "O", [(2, 2, "Y")]),
        # the label of [SEP] is looked at: an entity that it continues runs to the last token
        ("B-X I-X", "I-X", [(1, 2, "X")]),
        ("O B-X", "I-Y", [(2, 2, "X")]),
        ("B-X O B-Y I-Y", "I-Y", [(1, 1, "X"), (3, 4, "Y")]),
        # an end remembered from a B- that followed at once hides the open entity
        ("B-X B-Y I-Y", "I-Y", [(1, 1, "X")]),
        ("B-X I-X B-Y", "I-Y", [(1, 2, "X")]),
        # and O forgets it
        ("B-X B-Y O B-X I-X", "I-X", [(1, 1, "X"), (2, 2, "Y"), (4, 5, "X")]),
        # a B- on [SEP] closes what is open there, and nothing begins
        ("B-X I-X", "B-Y", [(1, 2, "X")]),
    ],
)
def test_decode(inner: str, closing: str, wanted: list[tuple[int, int, str]]) -> None:
    labels = ["O", *inner.split(), closing]
    special = [index in (0, len(labels) - 1) for index in range(len(labels))]
    assert decode_labels(labels, special) == wanted


REFERENCES = [" ".join(SENTENCES[i : i + 4]) for i in range(0, 40, 4)]
WRITTEN = [" ".join(SENTENCES[i + 2 : i + 5]) for i in range(0, 40, 4)]


class Recorded:
    """The extractor, keeping what it read in each text: other batches have other last bits."""

    def __init__(self, extractor) -> None:
        self.extractor, self.of = extractor, {}

    def __getattr__(self, name: str):
        return getattr(self.extractor, name)

    def extract(self, texts: Sequence[str]) -> Entities:
        found = self.extractor.extract(texts)
        self.of.update(zip(texts, split_entities(found), strict=True))
        return found

    def ragged(self, texts: Sequence[str]) -> ReportEntities:
        found = join_entities([self.of[text] for text in texts])
        fields = (found.offsets, found.presence, found.embedding, found.kind)
        return ReportEntities(*map(torch.as_tensor, fields))


def named(name: str) -> dict[str, float]:
    table = affinity(name)
    return {
        f"{KINDS[i]}_{KINDS[j]}".lower(): float(table[i, j]) for i in range(5) for j in range(5)
    }


def test_the_tables_are_the_published_ones() -> None:
    long, short = named("long"), named("short")
    assert long["abnormality_disease"] == 0.0034478181112993847
    assert long["disease_abnormality"] == 0.8396510075734789
    assert long["non-disease_anatomy"] == 0.1839139293714062
    assert long["anatomy_non-disease"] == 0.00013736314126696204
    assert short["non-abnormality_disease"] == 0.00045065329822896076
    assert short["disease_non-abnormality"] == 0.6962283914800402
    assert sum(long.values()) == pytest.approx(9.861789881026995, abs=1e-12)
    assert sum(short.values()) == pytest.approx(12.228034881999832, abs=1e-12)
    with pytest.raises(UserError, match="affinity 'medium'; choose long or short"):
        affinity("medium")


@pytest.mark.parametrize(("table", "neg_weight"), [("long", 0.3612), ("short", 0.8717)])
def test_the_term_is_the_match_by_its_table(extractor, table: str, neg_weight: float) -> None:
    """The match itself is held to the definition in plain loops in its own room."""
    reports, references = [*WRITTEN, ""], [*REFERENCES, REFERENCES[0]]
    settings = RewardSettings(
        terms={"ratescore": 1.0}, extractor="ratescore", rate_affinity=table, neg_weight=neg_weight
    )
    read = Recorded(extractor)
    found = RewardService(settings, extractor=read)(reports, references)["ratescore"]
    x, y = read.ragged(reports), read.ragged(references)
    wanted = entity_match(x, y, affinity=affinity(table), neg_weight=neg_weight).score
    np.testing.assert_allclose(found, wanted, atol=1e-6)
    # an empty side gives 0.5 in its place, and shifts nobody
    assert found[-1] == 0.5
    assert np.unique(found[:-1].round(6)).size == len(WRITTEN)


def test_edits_towards_the_reference_find_their_entities_here(extractor) -> None:
    edited = edit_reports(WRITTEN, REFERENCES, list(range(len(WRITTEN))), extractor, EditSettings())
    assert any(edit.text != report for edit, report in zip(edited, WRITTEN, strict=True))
    same = edit_reports(
        REFERENCES, REFERENCES, list(range(len(REFERENCES))), extractor, EditSettings()
    )
    assert [edit.text for edit in same] == REFERENCES
