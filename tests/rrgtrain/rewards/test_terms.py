"""Each reward term by examples that can be counted by hand."""

from __future__ import annotations

import math
import shutil
from pathlib import Path

import numpy as np
import pytest

from rrgclinical import severity
from rrgclinical.labels import OBSERVATIONS
from rrgdata.study import Study
from rrgtrain.errors import RewardError, UserError
from rrgtrain.rewards import RewardService
from rrgtrain.schema import Recipe, RewardSettings
from rrgtrain.state.identity import require_same_start, start_files

SIGNIFICANCE = Path(severity.__file__).with_name("significance.yaml")


def labels(**classes: int) -> tuple[int, ...]:
    return tuple(classes.get(name.replace(" ", "_"), 0) for name in OBSERVATIONS)


def values(
    term: str, pairs: list[tuple[str, str]] | list[tuple[str, tuple[int, ...]]], **settings: object
) -> np.ndarray:
    """The term on (report, reference) pairs; a reference is a text or 14 class ids."""
    service = RewardService(RewardSettings(terms={term: 1.0}, **settings))  # type: ignore[arg-type]
    studies = [
        Study(f"s{i}", "test", *((wanted, None) if isinstance(wanted, str) else (None, wanted)), ())
        for i, (_, wanted) in enumerate(pairs)
    ]
    return service([report for report, _ in pairs], studies)[term]


def test_label_f1() -> None:
    pairs = [
        ("Cardiomegaly. Pulmonary edema.", "Cardiomegaly. Pulmonary edema."),
        # one shared positive, one spurious, one missed
        ("Cardiomegaly. Small left pleural effusion.", "Cardiomegaly. Pulmonary edema."),
        # what is denied is no positive label: 1 hit, 0 spurious, 1 missed
        ("Cardiomegaly. No pleural effusion.", "Cardiomegaly. Pulmonary edema."),
        # uncertain counts as positive
        ("Possible pneumonia.", "Pneumonia."),
        ("Cardiomegaly.", "No pleural effusion."),
        ("", "Portable view."),
        # no finding counts
        ("Lungs are clear.", "No acute disease."),
    ]
    wanted = [1.0, 0.5, 2 / 3, 1.0, 0.0, 0.0, 1.0]
    assert values("label_f1", pairs).tolist() == pytest.approx(wanted)
    assert values("label_f1", [("", labels())], against="labels").tolist() == [0.0]


def test_entity_f1() -> None:
    pairs = [
        ("Cardiomegaly. No pleural effusion.", "No pleural effusion. Cardiomegaly."),
        # {cardiomegaly+, effusion-} and {cardiomegaly+, pneumothorax-}
        ("Cardiomegaly. No pleural effusion.", "Cardiomegaly. No pneumothorax."),
        # an entity said twice is one entity: {cardiomegaly+} and {cardiomegaly+, pneumothorax-}
        ("Cardiomegaly. Cardiomegaly.", "Cardiomegaly. No pneumothorax."),
        # the same finding with the other presence is another pair
        ("There is a pneumothorax.", "No pneumothorax."),
        ("", "Cardiomegaly."),
        ("Cardiomegaly.", "Portable view."),
        ("", "Portable view."),
    ]
    wanted = [1.0, 0.5, 2 / 3, 0.0, 0.0, 0.0, 0.0]
    assert values("entity_f1", pairs).tolist() == pytest.approx(wanted)


def test_match() -> None:
    pairs = [
        ("Cardiomegaly. No pleural effusion.", "No pleural effusion. Cardiomegaly."),
        ("There is a pneumothorax.", "No pneumothorax."),
        ("", "Cardiomegaly."),
        ("Cardiomegaly.", "Portable view."),
        ("", "Portable view."),
        ("asdf qwer", "Cardiomegaly."),
        # "lung" is anatomy in both; without it there is nothing on the left
        ("The lungs.", "Cardiomegaly."),
    ]
    wanted = [1.0, 0.3612, 0.5, 0.5, 0.5, 0.5, 0.5]
    assert values("match", pairs).tolist() == pytest.approx(wanted, abs=1e-6)
    negated = values("match", pairs[1:2], neg_weight=0.8717)
    assert negated.tolist() == pytest.approx([0.8717], abs=1e-6)


def test_match_is_the_harmonic_mean_of_both_directions() -> None:
    # x = {effusion}, y = {effusion, pneumothorax-}: the effusion is matched both ways, the
    # pneumothorax finds the effusion only
    both = values(
        "match",
        [
            ("Pleural effusion.", "Pleural effusion. No pneumothorax."),
            ("Pleural effusion.", "No pneumothorax."),
        ],
    )
    crossed = both[1]
    assert 0.0 <= crossed < 0.5
    recall = (1.0 + crossed) / 2
    assert both[0] == pytest.approx(2 * recall / (1 + recall), abs=1e-6)


def test_mccs() -> None:
    truth = labels(Cardiomegaly=1, Edema=1)
    pairs = [
        ("Cardiomegaly. Pulmonary edema.", truth),
        # z = (+1, -1), z* = (+1, +1): dot 1, norms √2 and √2
        ("Cardiomegaly. No pleural effusion.", truth),
        ("No cardiomegaly. No edema.", truth),
        ("", truth),
        ("Cardiomegaly.", labels()),
    ]
    found = values("mccs", pairs, against="labels").tolist()
    assert found == pytest.approx([1.0, 0.5, 0.0, 0.0, 0.0], abs=1e-6)
    found = values("mccs", pairs, against="labels", margin=0.2).tolist()
    assert found == pytest.approx([1.0, 0.3 / 0.8, 0.0, 0.0, 0.0], abs=1e-6)
    pairs = [("", labels()), ("Edema.", labels())]
    assert values("mccs", pairs, against="labels").tolist() == [0.0, 0.0]
    assert values("mccs", pairs, against="labels", both_blank=1.0).tolist() == [1.0, 0.0]


def test_mccs_counts_uncertain_as_positive_and_leaves_no_finding_out() -> None:
    sure, unsure = labels(Pneumonia=1), labels(Pneumonia=3, No_Finding=1)
    pairs = [("Pneumonia. Cardiomegaly.", sure), ("Pneumonia. Cardiomegaly.", unsure)]
    found = values("mccs", pairs, against="labels").tolist()
    # pneumonia suggests an opacity as well, so the norm is that of the labels the rules read
    assert found[0] == found[1] and 0 < found[0] < 1
    read = RewardService(RewardSettings()).labeller.label([pairs[0][0]])[0][:13]
    assert set(read.tolist()) <= {0, 1, 3}
    assert found[0] == pytest.approx(1 / math.sqrt((read > 0).sum()))


def test_against_report_and_against_labels_read_different_truths() -> None:
    study = Study("s", "test", "Cardiomegaly.", labels(Edema=1), ())
    for against, wanted in (("report", 1.0), ("labels", 0.0)):
        service = RewardService(RewardSettings(terms={"label_f1": 1.0}, against=against))
        assert service(["Cardiomegaly."], [study])["label_f1"].tolist() == [wanted]


@pytest.mark.parametrize("term", ["entity_f1", "match", "label_f1", "mccs"])
def test_a_missing_reference_is_refused(term: str) -> None:
    studies = [
        Study("with", "test", "Edema.", None, ()),
        Study("bare", "test", None, labels(Edema=1), ()),
    ]
    service = RewardService(RewardSettings(terms={term: 1.0}))
    with pytest.raises(UserError, match="study bare has no reference report") as caught:
        service(["Edema.", "Edema."], studies)
    assert "reward.against=labels" in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("term", ["label_f1", "mccs"])
def test_missing_labels_are_refused(term: str) -> None:
    service = RewardService(RewardSettings(terms={term: 1.0}, against="labels"))
    with pytest.raises(UserError, match=r"study bare has no labels.*use reward.against=report"):
        service(["Edema."], [Study("bare", "test", "Edema.", None, ())])


TRAINING = [
    Study(f"t{i}", "train", text, None, ())
    for i, text in enumerate(
        ["Cardiomegaly.", "Cardiomegaly.", "Cardiomegaly. Edema.", "Lungs are clear."]
    )
]


def test_the_papers_names_of_label_f1() -> None:
    service = RewardService(
        RewardSettings(terms=dict.fromkeys(("label_f1", "ce_f1", "sample_f1"), 1.0))
    )
    found = service(["Cardiomegaly. Small left pleural effusion."], ["Cardiomegaly. Edema."])
    assert found["label_f1"].tolist() == found["ce_f1"].tolist() == found["sample_f1"].tolist()
    assert found["total"].tolist() == pytest.approx([3 * found["label_f1"][0]])


def test_accuracy_is_the_share_of_labels_right() -> None:
    truth = labels(Cardiomegaly=1, Edema=3, Fracture=2)
    # Cardiomegaly right, Edema missed, Pneumothorax spurious; a denial is as good as a blank
    pairs = [("Cardiomegaly. There is a pneumothorax.", truth), ("", truth)]
    assert values("accuracy", pairs, against="labels").tolist() == [12 / 14, 12 / 14]


def test_inverse_frequency_weighs_rare_labels_more() -> None:
    service = RewardService(RewardSettings(terms={"inverse_frequency": 1.0}))
    service.fit(TRAINING)
    # 3 of 4 studies have cardiomegaly, 1 edema, none pneumothorax (counted as one of four)
    references = ["Cardiomegaly. Edema."] * 4 + ["Edema. Pneumothorax.", "No pleural effusion."]
    reports = ["Cardiomegaly.", "Edema.", "Edema. Cardiomegaly. Pneumothorax.", "", "Edema.", ""]
    common, rare = 4 / 3, 4.0
    wanted = [common / (common + rare), rare / (common + rare), 1.0, 0.0, 0.5, 0.0]
    assert service(reports, references)["total"].tolist() == pytest.approx(wanted)


def test_terms_of_words() -> None:
    terms = dict.fromkeys(("bleu1", "bleu2", "bleu4", "rouge_l", "cider", "nlg"), 1.0)
    service = RewardService(RewardSettings(terms=terms))
    service.fit(TRAINING)
    same = "There is cardiomegaly and mild edema."
    found = service([same, "There is cardiomegaly.", ""], [same] * 3)
    for name in terms:
        full, part, none = found[name]
        assert 1.0 >= full > part > none == 0.0, name
    np.testing.assert_allclose(
        found["nlg"], (found["bleu4"] + found["rouge_l"] + found["cider"]) / 3.0
    )
    assert found["cider"][0] == pytest.approx(1.0)
    # 3 of 6 words: brevity exp(1 - 6/3)
    assert found["bleu2"][1] == pytest.approx(math.exp(-1.0), rel=1e-6)


@pytest.mark.skipif(shutil.which("java") is None, reason="METEOR 1.5 is a Java program")
@pytest.mark.usefixtures("few_paraphrases")
def test_meteor_counts_words_of_one_stem() -> None:
    reports = ("Small effusions.", "Small effusion.", "Heart is normal.")
    full, stem, none = values("meteor", [(report, "Small effusions.") for report in reports])
    assert 1.0 == full > stem > none == 0.0


def test_terms_that_need_the_training_studies_say_so() -> None:
    for term, what in (("cider", "count n-grams in"), ("inverse_frequency", "label frequencies")):
        with pytest.raises(UserError, match=f"{term} failed: .*{what}.*RewardService.fit"):
            RewardService(RewardSettings(terms={term: 1.0}))(["Edema."], ["Edema."])


def test_severity_takes_a_table_and_keeps_its_reasons(tmp_path):
    packaged = SIGNIFICANCE.read_text()
    own = tmp_path / "own.yaml"
    own.write_text(packaged.replace("wrong side: 0.4", "wrong side: 0.1"))
    pair = (["Small right effusion."], ["Small left effusion."])
    plain = RewardService(RewardSettings(terms={"severity": 1.0}))(*pair)
    recipe = Recipe()
    recipe.reward.terms = {"severity": 1.0}
    recipe.reward.options = {"severity": {"table": str(own)}}
    assert 0 < RewardService(recipe.reward)(*pair)["severity"][0] < plain["severity"][0] < 1
    (note,) = plain.notes["severity"]
    assert note["differs"][0]["differs"] == ["side right, not left"]
    # the run keeps the digest of the file that it began with
    begun = recipe.policy, recipe.rl, recipe.reward
    before = start_files(*begun)
    assert list(before) == ["reward.options.severity.table: own.yaml"]
    own.write_text(packaged.replace("wrong side: 0.4", "wrong side: 0.2"))
    with pytest.raises(UserError, match="is not the file that the run began from"):
        require_same_start(before, start_files(*begun))
    own.write_text(packaged.replace("urgent: 1.0", "urgent: 1.2"))
    with pytest.raises(RewardError, match=r"urgent is 1.2; wanted a number from 0 to 1"):
        RewardService(recipe.reward)(*pair)
