"""EditGRPO's groups: one edit beside each sampled report, its tokens, its draws, its errors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np
import pytest
import torch

from rrgclinical.rules import split_sentences
from rrgdata.study import Study
from rrgpolicy.model.policy import Policy
from rrgtrain.algorithms import Algorithm, Group, build_algorithm
from rrgtrain.algorithms.group import Member
from rrgtrain.config import load_config
from rrgtrain.errors import UserError
from rrgtrain.schema import Recipe
from tests.rrgpolicy.model.common import prompt, tiny_policy
from tests.rrgtrain.common import member, recipe

# Each report needs exactly the rule it stands under to come closer to its reference.
RULES = {
    "a": ("No pneumothorax. The heart is enlarged.", "There is a pneumothorax."),
    "c": ("The heart is enlarged. There is a rib fracture.", "The heart is enlarged."),
    "d": ("The heart is enlarged.", "The heart is enlarged. Pulmonary edema."),
    "e": ("", "The heart is enlarged."),
}
MANY = (
    "The heart is enlarged. Pulmonary edema. There is a rib fracture. No pneumothorax. "
    "Small left pleural effusion. Support devices are unchanged. Bibasilar atelectasis."
)


@lru_cache(maxsize=1)
def policy() -> Policy:
    return tiny_policy()


def editgrpo(*overrides: str) -> Algorithm:
    return build_algorithm(recipe("rl.algorithm=editgrpo", *overrides))


def group(index: int, reference: str, texts: Sequence[str]) -> Group:
    study = Study(f"s{index}", "train", reference, None, ())
    return Group(
        index, study, prompt(policy(), "x", 0), tuple(member(policy(), text) for text in texts)
    )


def completed(
    groups: list[Group], step: int = 0, algorithm: Algorithm | None = None
) -> tuple[list[Group], dict[str, float]]:
    return (algorithm or editgrpo()).complete(groups, step, policy().codec.reencode_from)


def texts_of(groups: list[Group]) -> list[list[str]]:
    return [[m.text for m in g.members] for g in groups]


@pytest.mark.parametrize("rule", RULES)
def test_each_rule_makes_a_member_and_is_counted_by_its_letter(rule: str) -> None:
    report, reference = RULES[rule]
    (done,), counts = completed([group(0, reference, [report])])
    sampled, edited = done.members
    assert sampled.origin == "sampled" and sampled.text == report
    assert edited.origin == "edited" and edited.parent == 0
    assert [letter for letter, _, _ in edited.steps] == [rule]
    assert counts == {f"edits/{rule}": 1.0}
    removed, added = edited.steps[0][1:]
    assert removed in report and added in reference and edited.text != report


def test_an_edit_that_changes_nothing_is_no_member() -> None:
    reference = "The heart is enlarged. Pulmonary edema."
    texts = [reference, "The heart is enlarged.", "Pulmonary edema. The heart is enlarged."]
    (done,), counts = completed([group(0, reference, texts)])
    assert [m.parent for m in done.members] == [None, None, None, 1]
    assert counts == {"edits/d": 1.0, "edits/unchanged": 2.0}
    # nor does a reference without entities change any
    (done,), counts = completed([group(0, "asdf qwer.", ["The heart is enlarged.", ""])])
    assert len(done.members) == 2 and counts == {"edits/unchanged": 2.0}


def by_characters(text: str) -> torch.Tensor:
    """Ids that no tokenizer would choose for the text, as sampling may."""
    codec = policy().codec
    parts = [codec.encode(c)[:-1] for c in text]
    return torch.cat([*parts, torch.tensor([policy().end_of_turn])])


@pytest.mark.parametrize("finished", [True, False])
@pytest.mark.parametrize("rule", RULES)
def test_edited_ids_keep_the_sampled_beginning(rule: str, finished: bool) -> None:
    report, reference = RULES[rule]
    ids = by_characters(report) if finished else by_characters(report)[:-1]
    plain = group(0, reference, [report])
    sampled = Member(ids, report, finished=finished)
    (done,), _ = completed([replace(plain, members=(sampled,))])
    edited = done.members[1]
    removed = edited.steps[0][1]
    # a deleted last sentence takes the space before it along
    place = len(report[: report.index(removed)].rstrip()) if removed else len(report)
    kept = len(by_characters(report[:place])) - 1
    assert edited.ids[:kept].tolist() == ids[:kept].tolist()
    assert kept == {"a": 0, "c": 22, "d": 22, "e": 0}[rule]
    assert policy().codec.decode(edited.ids) == edited.text
    assert edited.ids.tolist().count(policy().end_of_turn) == 1
    assert int(edited.ids[-1]) == policy().end_of_turn


@pytest.mark.parametrize(
    ("report", "reference", "text", "kept"),
    [
        (
            "1. The heart is enlarged.\n2. There is a rib fracture.\n3. Pulmonary edema",
            "Pulmonary edema. The heart is enlarged.",
            "1. The heart is enlarged.\n2. Pulmonary edema",
            "1. The heart is enlarged.\n",
        ),
        (
            "The heart is enlarged. No pneumonia",
            "No pneumonia. Pulmonary edema. The heart is enlarged.",
            "The heart is enlarged. No pneumonia. Pulmonary edema.",
            "The heart is enlarged. No pneumonia",
        ),
        (
            "1. There is a rib fracture. 2. The heart is enlarged.",
            "1. The heart is enlarged.",
            "1. The heart is enlarged.",
            "",
        ),
    ],
)
def test_ids_are_kept_up_to_the_first_number_or_stop_that_changes(report, reference, text, kept):
    ids = by_characters(report)
    sampled = replace(group(0, reference, [report]), members=(Member(ids, report),))
    (done,), _ = completed([sampled])
    edited = done.members[1]
    assert edited.text == text and policy().codec.decode(edited.ids) == text
    same = len(by_characters(kept)) - 1
    assert edited.ids[:same].tolist() == ids[:same].tolist()


def test_draws_depend_on_seed_step_study_and_place_alone() -> None:
    groups = [group(i, MANY, ["The heart is enlarged.", "asdf.", ""]) for i in range(6)]
    whole = texts_of(completed(groups)[0])
    assert texts_of(completed(groups[::-1])[0]) == whole[::-1]
    assert [texts_of(completed([g])[0])[0] for g in groups] == whole
    assert texts_of(completed(groups)[0]) == whole
    # and on each of them
    assert texts_of(completed(groups, step=1)[0]) != whole
    assert texts_of(completed(groups, 0, editgrpo("seed=1"))[0]) != whole
    assert len({tuple(texts) for texts in whole}) > 1
    same = group(0, MANY, ["The heart is enlarged."] * 6)
    (done,), _ = completed([same])
    assert len({m.text for m in done.members[6:]}) > 1


def test_rule_b_replaces_another_finding_at_the_value_that_rules_have() -> None:
    """By the paper's 0.6 two findings are too far apart for it, and the first is deleted."""
    heart = "The heart is enlarged."
    pair = [group(0, f"Pulmonary edema. {heart}", [f"{heart} There is a rib fracture."])]
    for name in ("learning", "demo", "iu_xray", "table"):
        settings = load_config(Recipe, name, ["rl.group=4"])
        assert completed(pair, 0, build_algorithm(settings))[1] == {"edits/b": 1.0}, name
    assert completed(pair)[1] == {"edits/c": 1.0}
    paper = load_config(Recipe, "paper/editgrpo", []).edit
    assert (paper.tau, paper.tau_replace, paper.keep) == (0.6, None, "all")


def test_an_edit_that_earns_less_than_its_report_can_be_left_out() -> None:
    """`edit.keep=not_worse`."""
    texts = [["Pulmonary edema.", "Large heart."], ["The heart is enlarged.", "Edema."]]
    before = [group(i, "The heart is enlarged. Pulmonary edema.", t) for i, t in enumerate(texts)]
    groups, _ = completed(before)
    assert [[m.parent for m in g.members] for g in groups] == [[None, None, 0, 1]] * 2
    totals = np.array([1.0, 0.5, 0.9, 0.5, 0.0, 0.0, 2.0, -1.0])
    keep, drop = editgrpo(), editgrpo("edit.keep=not_worse")
    assert not keep.leaves_out(groups, totals).any()
    worse = drop.leaves_out(groups, totals)
    assert worse.tolist() == [False, False, True, False, False, False, False, True]
    # of a report that was cut and has no reward nothing is known
    first, *others = groups[0].members
    cut = replace(groups[0], members=(replace(first, scored=False), *others))
    assert not drop.leaves_out([cut], totals[1:4]).any()


def test_a_whole_reference_in_place_of_a_report() -> None:
    algorithm = editgrpo("edit.level=paragraph", "rl.group=5")
    assert algorithm.sampled == 4 and algorithm.needs_reports
    texts = ["Pulmonary edema.", "asdf.", "", "The heart is enlarged."]
    (done,), counts = completed([group(0, MANY, texts)], 0, algorithm)
    assert [m.origin for m in done.members] == ["sampled"] * 4 + ["edited"]
    assert done.members[-1].text == MANY and done.members[-1].scored
    assert policy().codec.decode(done.members[-1].ids) == MANY
    assert counts == {"edits/paragraph": 1.0}


def test_exact_matching_knows_equal_text_only() -> None:
    """A large effusion is near a small one by cosine, and another finding by text."""
    reference, report = "Small left pleural effusion.", "Large left pleural effusion."
    _, by_cosine = completed([group(0, reference, [report])])
    (done,), by_text = completed([group(0, reference, [report])], 0, editgrpo("edit.match=exact"))
    assert by_cosine == {"edits/unchanged": 1.0}
    assert by_text == {"edits/c": 1.0, "edits/e": 1.0} and done.members[1].text == reference
    _, same = completed([group(0, reference, [reference])], 0, editgrpo("edit.match=exact"))
    assert same == {"edits/unchanged": 1.0}
    report, reference = RULES["a"]  # it still sees a conflict
    (done,), _ = completed([group(0, reference, [report])], 0, editgrpo("edit.match=exact"))
    assert [letter for letter, _, _ in done.members[1].steps] == ["a"]


def test_references_without_any_entity_are_refused_before_the_first_step() -> None:
    studies = [Study(f"s{i}", "train", "asdf qwer.", None, ()) for i in range(70)]
    with pytest.raises(UserError, match="finds none in the first 64 reference reports; use"):
        editgrpo().check(studies)
    editgrpo().check([replace(studies[0], report="The heart is enlarged."), *studies])
    editgrpo("edit.level=paragraph").check(studies)


def test_a_cut_report_is_edited_up_to_its_last_whole_sentence() -> None:
    """At every place where a report may break off: what its edit says, the report or the reference
    says as a whole sentence."""
    own = "The heart measures 3.5 cm, approx. as before. Small left effusion. "
    own += "There is no pneumothorax."
    reference = "The heart is enlarged. Right basilar opacity may be pneumonia."
    whole = {"The heart measures 3.5 cm, approx. as before.", "Small left effusion."}
    whole |= {"There is no pneumothorax.", "The heart is enlarged."}
    whole |= {"Right basilar opacity may be pneumonia."}
    edited = 0
    for end in range(1, len(own)):
        cut = replace(member(policy(), own[:end]), finished=False)
        groups = [replace(group(end, reference, []), members=(cut,))]
        (done,), _ = completed(groups)
        assert done.members[0] == cut, "what was sampled stays"
        for extra in done.members[1:]:
            edited += 1
            said = {extra.text[a:b] for a, b in split_sentences(extra.text)}
            assert said <= whole, (own[:end], extra.text)
            assert extra.finished and int(extra.ids[-1]) == policy().end_of_turn
            assert policy().codec.decode(extra.ids) == extra.text
            assert len(extra.steps) == 1
    assert edited > len(own) // 2
