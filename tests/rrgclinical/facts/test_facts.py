"""FactS by rules and by an endpoint, and its score by hand."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rrgclinical import build_labeller
from rrgclinical.facts import (
    DENIED,
    ENTAILED,
    NOT_MENTIONED,
    FactReading,
    RulesFacts,
    build_facts,
    fact_scores,
)
from rrgclinical.labels import NO_FINDING, OBSERVATIONS, ClassId
from rrgtrain.errors import UserError
from rrgtrain.rewards import RewardService
from rrgtrain.schema import RewardSettings
from tests.rrgclinical.cases import cases
from tests.rrgclinical.chat.server import Reply, Server, serving

LABELS = OBSERVATIONS[:NO_FINDING]
COLUMN = {name: index for index, name in enumerate(OBSERVATIONS)}


def reading(**verdicts: int) -> FactReading:
    row = [verdicts.get(name.replace(" ", "_"), NOT_MENTIONED) for name in LABELS]
    return FactReading.of(["a fact"], row, [None] * len(LABELS), well=True)


def truth(**classes: int) -> np.ndarray:
    return np.array([[classes.get(name.replace(" ", "_"), 0) for name in OBSERVATIONS]], np.int8)


@pytest.mark.parametrize(
    ("verdicts", "labels", "hit", "missed", "spurious"),
    [
        ({"Edema": ENTAILED}, {"Edema": 1}, 1, 0, 0),
        ({"Edema": ENTAILED}, {"Edema": 3}, 1, 0, 0),
        ({"Edema": ENTAILED, "Fracture": ENTAILED}, {"Edema": 1}, 1, 0, 1),
        ({"Edema": ENTAILED}, {"Edema": 1, "Fracture": 1}, 1, 1, 0),
        # denied though true: missed and spurious
        ({"Edema": ENTAILED, "Fracture": DENIED}, {"Edema": 1, "Fracture": 1}, 1, 1, 1),
        # denying what is not true costs nothing
        ({"Edema": ENTAILED, "Fracture": DENIED}, {"Edema": 1, "Fracture": 2}, 1, 0, 0),
        ({"Edema": DENIED}, {"No_Finding": 1}, 1, 0, 0),
        ({"Support_Devices": ENTAILED}, {"No_Finding": 1, "Support_Devices": 1}, 2, 0, 0),
        ({"Edema": ENTAILED}, {"No_Finding": 1}, 0, 1, 1),
        ({}, {}, 0, 0, 1),  # No Finding, which is not true
    ],
)
@pytest.mark.parametrize("beta", [0.5, 1.0, 2.0])
def test_f_beta_by_hand(verdicts, labels, hit, missed, spurious, beta) -> None:
    wanted = 0.0
    if hit:
        precision, recall = hit / (hit + spurious), hit / (hit + missed)
        wanted = (1 + beta**2) * precision * recall / (beta**2 * precision + recall)
    found = fact_scores([reading(**verdicts)], truth(**labels), beta=beta)
    assert found.tolist() == [pytest.approx(wanted, abs=1e-12)]
    assert bool(found[0] == 0.0) is (hit == 0)


def test_no_finding_follows_from_the_rest() -> None:
    assert reading().verdicts[NO_FINDING] == ENTAILED
    assert reading(Support_Devices=ENTAILED, Edema=DENIED).verdicts[NO_FINDING] == ENTAILED
    assert reading(Edema=ENTAILED).verdicts[NO_FINDING] == NOT_MENTIONED
    for facts in ([], ["see above"]):
        silent = FactReading.of(facts, [NOT_MENTIONED] * 13, [None] * 13)
        assert silent.verdicts[NO_FINDING] == NOT_MENTIONED
    assert fact_scores([silent], truth()).tolist() == [0.0]


def test_verdicts_of_the_rules_are_the_rules_labels() -> None:
    reports = [*(sentence for sentence, _ in cases()), "", " . "]
    labels = build_labeller("rules").label(reports)
    wanted = np.where(labels == ClassId.UNCERTAIN, ENTAILED, labels)
    found = np.array([reading.verdicts for reading in RulesFacts().read(reports)])
    np.testing.assert_array_equal(found, wanted)
    assert len(set(map(tuple, wanted.tolist()))) > 10


def test_a_fact_of_the_rules_is_the_clause_that_decides() -> None:
    text = "There is cardiomegaly, but no pleural effusion; possible edema. Edema is unchanged."
    (found,) = RulesFacts().read([text])
    assert found.facts == (
        "There is cardiomegaly",
        "no pleural effusion",
        "possible edema",
        "Edema is unchanged",
    )
    decided = {name: found.evidence[COLUMN[name]] for name in OBSERVATIONS}
    assert {k: v for k, v in decided.items() if v is not None} == {
        "Cardiomegaly": 0,
        "Pleural Effusion": 1,
        "Edema": 2,
    }
    note = found.as_note()
    assert note["labels"]["Pleural Effusion"] == {
        "verdict": "denied",
        "fact": "no pleural effusion",
    }
    assert json.loads(json.dumps(note)) == note


def model(number: int, body: dict[str, Any]) -> Reply:
    """A language model that knows two words."""
    if len(body["messages"]) == 1:
        return Reply("ok")  # the check before anything is read
    asked, text = (message["content"] for message in body["messages"][:2])
    if '"facts"' in asked:
        return Reply(json.dumps({"facts": [part for part in text.split(". ") if part.strip()]}))
    lines = text.lower().splitlines()
    verdicts = {}
    for label in LABELS:
        number_of = next((i for i, line in enumerate(lines) if label.lower() in line), None)
        said = "not mentioned"
        if number_of is not None:
            said = "denied" if "no " in lines[number_of] else "entailed"
        verdicts[label] = {"verdict": said, "fact": number_of}
    return Reply(json.dumps({"verdicts": verdicts}))


def options(server: Server) -> dict[str, Any]:
    return {"endpoint": server.url, "model": "tiny", "tries": 2, "timeout": 5.0}


REPORTS = ["Edema. No fracture", "", "Edema. No fracture", "Pneumonia"]


def test_facts_of_an_endpoint(tmp_path: Path) -> None:
    with serving(model) as server:
        reader = build_facts(options(server), cache=tmp_path)
        readings = reader.read(REPORTS)
        # a check, and two requests for each distinct report; nothing about an empty one
        assert len(server.asked) == 1 + 4
        assert readings[0] == readings[2]
        assert readings[0].facts == ("Edema", "No fracture")
        assert readings[0].verdicts[COLUMN["Edema"]] == ENTAILED
        assert readings[0].verdicts[COLUMN["Fracture"]] == DENIED
        assert readings[0].evidence[COLUMN["Fracture"]] == 1
        assert readings[1].facts == () and not any(readings[1].verdicts)
        again = build_facts(options(server), cache=tmp_path)
        assert again.read(REPORTS) == readings
        # a check alone: the answers are on disk, and nothing else is
        assert len(server.asked) == 6 and again.usage.cached == 4
        assert [folder.name[:5] for folder in tmp_path.iterdir()] == ["chat-"]


def test_the_facts_of_a_long_report_fit_in_the_answer() -> None:
    """192 of them in a report of 430 tokens; this server cuts where it is told to."""
    absent = "pneumothorax, effusion, consolidation, edema, nodule, mass, fracture, granuloma"

    def cutting(number: int, body: dict[str, Any]) -> Reply:
        if len(body["messages"]) > 1 and '"facts"' in body["messages"][0]["content"]:
            said = body["messages"][1]["content"].replace("No ", "").replace(".", ",").split(",")
            text = json.dumps({"facts": [f"There is no {a.strip()}." for a in said if a.strip()]})
        else:
            text = model(number, body).text
        tokens = list(re.finditer(r"\w+|[^\w\s]", text))[: body["max_tokens"]]
        return Reply(text[: tokens[-1].end()])

    report = f"No {absent}. " * 24
    with serving(cutting) as server:
        (found,) = build_facts(options(server)).read([report])
    assert len(found.facts) == 8 * 24


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda v: v.pop("Edema"), "wanted each of the 13 labels and no other, see Edema"),
        (lambda v: v.update(Gout=v["Edema"]), "see Gout"),
        (lambda v: v["Edema"].update(verdict="maybe"), "the verdict on Edema is 'maybe'"),
        (lambda v: v["Edema"].update(fact=2), "the fact of Edema is 2; wanted 0 to 1, or null"),
        (lambda v: v["Edema"].update(fact=True), "the fact of Edema is True"),
        (lambda v: v.update(Edema="entailed"), "the verdict on Edema is None"),
    ],
)
def test_a_wrong_verdict_is_repaired_once_and_then_refused(spoil, message: str) -> None:
    def answer(number: int, body: dict[str, Any]) -> Reply:
        reply = model(number, body)
        if not number or "verdicts" not in (value := json.loads(reply.text)):
            return reply
        spoil(value["verdicts"])
        return Reply(json.dumps(value))

    with serving(answer) as server, pytest.raises(UserError, match=message):
        build_facts(options(server)).read(REPORTS[:1])
    assert len(server.asked) == 1 + 3


@pytest.mark.parametrize("answer", ['{"facts": "Edema"}', '{"facts": [""]}', "[]", '{"fact": []}'])
def test_facts_in_a_wrong_form_are_refused(answer: str) -> None:
    with serving(lambda *_: Reply(answer)) as server, pytest.raises(UserError, match="facts"):
        build_facts(options(server)).read(["Edema."])


def test_the_term_keeps_facts_and_verdicts_and_never_scores_a_failure() -> None:
    studies = ["Edema. No fracture.", "Lungs are clear."]
    settings = RewardSettings(terms={"facts": 1.0})
    found = RewardService(settings)(["Edema.", "Edema."], studies)
    assert found["facts"].tolist() == [1.0, 0.0]
    note = found.notes["facts"][0]
    assert note["labels"] == {"Edema": {"verdict": "entailed", "fact": "Edema"}}
    assert [note["truth"][COLUMN[name]] for name in ("Edema", "Fracture")] == [1, 2]
    assert json.loads(json.dumps(note)) == note

    with serving(model) as server:
        settings = RewardSettings(terms={"facts": 1.0}, options={"facts": options(server)})
        service = RewardService(settings)
        assert service(["Edema. Fracture", ""], studies)["facts"][0] == pytest.approx(5 / 6)
        before = service.statistics()
        assert before["endpoint/facts_requests"] == 3.0
        service(["Edema. Fracture", "Fracture."], studies)
        step = service.since(before)
        assert step["endpoint/facts_requests"] == 2.0 and step["endpoint/facts_seconds"] > 0
        assert step["texts/facts_asked"] == 2.0 and step["texts/facts_computed"] == 1.0

    down = RewardSettings(terms={"facts": 1.0}, options={"facts": options(server)})
    with pytest.raises(
        UserError, match=r"reward term facts failed: .*connection attempts failed.*is it up"
    ):
        RewardService(down)([""], ["Edema."])  # also where nothing is there to be read
