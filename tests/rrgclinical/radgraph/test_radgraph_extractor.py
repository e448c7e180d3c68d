"""RadGraph's entities for EditGRPO: exact match, presence by label, spans by character."""

from __future__ import annotations

import numpy as np
import pytest

from rrgclinical.entities import KINDS
from rrgclinical.radgraph import RadGraphExtractor
from rrgclinical.radgraph.extractor import entities_of, kinds_of
from rrgclinical.radgraph.graph import build_graph
from rrgclinical.radgraph.words import split_words
from rrgdata.study import Study
from rrgtrain.algorithms import Group, build_algorithm
from rrgtrain.errors import UserError
from tests.rrgclinical.radgraph import archives
from tests.rrgpolicy.model.common import prompt, tiny_policy
from tests.rrgtrain.common import member, recipe

FIRST = kinds_of(archives.FIRST_NER)
XL = kinds_of(archives.XL_NER)
DP, AN, DA, UN = archives.XL_NER[1:5]


def entities(report: str, *found, kinds=XL):
    split = split_words(report, "radgraph-xl")
    words = [word for word, _, _ in split]
    graph = build_graph(words, [(a, b) for _, a, b in split], 1, found, [])
    return entities_of([report], [graph], kinds)


def test_presence_and_kind():
    assert {label: KINDS[kind] for label, kind in XL.items()} == {
        "Observation::definitely present": "OBS-DP",
        "Anatomy::definitely present": "ANAT-DP",
        "Observation::definitely absent": "OBS-DA",
        "Observation::uncertain": "OBS-U",
        "Observation::measurement::definitely present": "OBS-DP",
        "Anatomy::uncertain": "ANAT-DP",
    }
    assert [KINDS[kind] for kind in FIRST.values()] == archives.FIRST_NER[1:]
    found = entities("edema lung effusion mass", (0, 0, DP), (1, 1, AN), (2, 2, DA), (3, 3, UN))
    assert found.presence.tolist() == [1, -1, 0, 1]
    with pytest.raises(UserError, match="'Event::start' is no RadGraph label"):
        kinds_of(["", "Event::start"])


def test_equal_where_text_and_class_are():
    found = entities("Edema edema EDEMA lung Lung", (0, 0, DP), (1, 1, DA), (2, 2, UN), (3, 3, AN),
                     (4, 4, DP))  # fmt: skip
    cosines = found.embedding.astype(np.float64) @ found.embedding.astype(np.float64).T
    assert (cosines[:3, :3] == 1).all()
    # "lung" as anatomy and as observation are two things.
    assert np.abs(cosines[:3, 3:]).max() < 0.6 > abs(cosines[3, 4])
    assert len(set(found.key.tolist())) == 5
    again = entities("small edema", (1, 1, DA))
    assert again.key[0] == found.key[1]
    assert again.embedding[0].tobytes() == found.embedding[1].tobytes()


def test_different_texts_are_far_apart():
    words = [f"w{number}" for number in range(400)]
    found = entities(" ".join(words), *((n, n, DP) for n in range(400)))
    cosines = found.embedding @ found.embedding.T - np.eye(400)
    assert np.abs(cosines).max() < 0.4


def test_spans_and_sentences():
    report = "No effusion.\n\nSmall  left\nedema. 2."
    found = entities(report, (1, 1, DA), (3, 5, DP), (5, 6, DP), (6, 6, DP))
    assert [report[a:b] for a, b in found.span] == ["effusion", "Small  left\nedema", "edema.", "."]
    assert found.sentence.tolist() == [0, 1, 1, 1]
    assert found.text[1] == "small left edema"


def test_an_entity_over_two_sentences_is_cut_at_the_first():
    report = "No effusion. Edema"
    found = entities(report, (1, 3, DP))
    assert [report[a:b] for a, b in found.span] == ["effusion."]


def test_an_entity_outside_every_sentence_is_left_out():
    report = "...\n\nEdema"
    found = entities(report, (0, 0, DP), (1, 1, DP))
    assert found.text == ["edema"]


def test_a_recipe_edits_by_radgraph(xl):
    """EditGRPO's exact match (table 4): a sentence goes for an entity that RadGraph finds in it
    and not in the reference, and one comes for an entity that was missing."""
    cfg = recipe(
        "rl.algorithm=editgrpo",
        "edit.match=exact",
        "edit.extractor=radgraph",
        f"reward.options.radgraph.weights={xl}",
    )
    reader = RadGraphExtractor(xl)

    def said(report: str) -> dict[str, set[tuple[str, int]]]:
        """List what takes part in each sentence."""
        found = reader.extract([report])
        sentences = [report[a:b] for a, b in found.sentences[0]]
        pairs: dict[str, set[tuple[str, int]]] = {sentence: set() for sentence in sentences}
        for sentence, text, presence in zip(
            found.sentence, found.text, found.presence, strict=True
        ):
            if presence >= 0:
                pairs[sentences[sentence]].add((text, int(presence)))
        return pairs

    drawn = [f"{text.strip()}." for text in archives.random_reports(40, seed=11, longest=9)]
    known = [text for text in drawn if any(said(text).values())]
    reference = " ".join(known[:3])
    study = Study("s", "train", reference, None, ())
    policy = tiny_policy()
    sampled = [known[0], known[5], " ".join(known[4:7]), f"{known[7]} {known[1]}"]
    members = tuple(member(policy, text) for text in sampled)
    algorithm = build_algorithm(cfg)
    algorithm.check([study])
    group = Group(0, study, prompt(policy, "x", 0), members)
    (done,), _ = algorithm.complete([group], 0, policy.codec.reencode_from)
    edits = [(sampled[m.parent], *m.steps[0]) for m in done.members if m.origin == "edited"]
    theirs = said(reference)
    wanted = set().union(*theirs.values())
    for report, letter, removed, added in edits:
        ours = said(report)
        have = set().union(*ours.values())
        assert not removed or ours[removed.strip()] - wanted, letter
        assert not added or theirs[added.strip()], letter
        assert removed or theirs[added.strip()] - have, letter
    assert len({letter for _, letter, _, _ in edits}) >= 2


@pytest.mark.parametrize("reports", [[], [""], [" "], list(archives.ADVERSARIAL)])
def test_any_report_gives_valid_entities(xl, reports):
    found = RadGraphExtractor(xl).extract(reports)
    assert found.reports == reports
    if not any(report.strip() for report in reports):
        assert len(found) == 0
