"""Reports say what the case holds, in few words that a rule-based labeller reads the same way."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rrgclinical import build_labeller
from rrgclinical.labels import NO_FINDING, OBSERVATIONS
from rrgdata.phantom import PhantomConfig, phrases
from rrgdata.phantom.case import (
    FINDINGS,
    LUNG,
    ON_CHECKLIST,
    STATED_ABSENT,
    Case,
    Finding,
    damage,
    labels_of,
    sample_case,
)
from rrgdata.phantom.text import write_context, write_report
from tests.rrgdata.phantom.test_drawing import place

MANY = PhantomConfig(lateral=0.4, prior=0.3)


@cache
def case_at(config, index):
    return sample_case(config, (config.seed, 0, index))


def cases(config=MANY, n=300):
    return [case_at(config, i) for i in range(n)]


def clean(case, config=MANY):
    return write_report(case, case.findings, case.negated, config)


@pytest.fixture(scope="module")
def labeller():
    return build_labeller("rules")


@pytest.mark.parametrize("name", sorted(phrases.POSITIVE))
def test_every_wording_reads_positive(name, labeller):
    finding = replace(place(name), kind="")
    texts = {clean(Case((i,), (finding,), ()), PhantomConfig()) for i in range(80)}
    read = labeller.label(sorted(texts))
    column = OBSERVATIONS.index(FINDINGS[name][0])
    missed = [t for t, ids in zip(sorted(texts), read, strict=True) if ids[column] != 1]
    assert not missed


@pytest.mark.parametrize("change", ["", "new", "unchanged"])
@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("name", sorted(set(FINDINGS) - {"cardiomegaly", "edema", "mediastinum"}))
def test_side_and_lobe_are_said(name, side, change):
    zone = "upper" if place(name).zone else ""
    other = {"left": "right", "right": "left"}[side]
    for uncertain in (False, True):
        fields = {"side": side, "zone": zone, "uncertain": uncertain, "change": change}
        finding = replace(place(name), **fields)
        for i in range(15):
            report = clean(Case((i,), (finding,), ())).lower()
            assert side in report and other not in report
            assert not zone or f"{side} upper lobe" in report


def test_a_thorough_report_says_all_of_one_checklist_and_nothing_beside():
    loose, thorough = PhantomConfig(seed=4), PhantomConfig(seed=4, thorough=1.0)
    listed = {name for name, rate in STATED_ABSENT.items() if rate >= ON_CHECKLIST}
    said = {0.0: set(), 1.0: set()}
    for config in (loose, thorough):
        for case in cases(config, 200):
            silent = {
                name for name, value in zip(OBSERVATIONS, case.labels(), strict=True) if not value
            }
            said[config.thorough].add(frozenset(silent & listed))
            text = clean(case, config).lower()
            if config.thorough:
                assert not any(filler in text for _, _, filler in phrases.FILLERS)
                if not case.findings:
                    assert any(text.endswith(end) for end in phrases.CLOSING_NORMAL), text
    # what a lung density hides is left unsaid in either; nothing else is
    assert len(said[1.0]) < len(said[0.0])
    hidden = {"Lung Opacity", "Pneumonia", "Consolidation"}
    assert all(unsaid <= hidden for unsaid in said[1.0])
    assert any(unsaid - hidden for unsaid in said[0.0])


def test_a_templated_report_tells_what_is_normal_in_one_way():
    said = {}
    for templated in (0.0, 0.5, 1.0):
        config = PhantomConfig(seed=4, thorough=1.0, templated=templated)
        by_case = {}
        for case in cases(config, 300):
            if not case.findings:  # these sentences in this order
                ways = by_case.setdefault((case.negated, case.lateral), set())
                sentences = re.split(r"(?<=\.) ", clean(case, config).lower())
                openings = phrases.OPENING[case.lateral]
                ways.add(tuple(s for s in sentences if s not in openings))
        said[templated] = max(map(len, by_case.values()))
    assert said[1.0] == 1 < said[0.5] <= said[0.0]


def test_a_terse_report_opens_and_says_what_is_abnormal_in_any_order(labeller):
    config = PhantomConfig(seed=4, lateral=0.4, terse=True)
    drawn = cases(config)
    told = [re.split(r"(?<=[.]) ", clean(case, config)) for case in drawn]
    sizes = [1 + len(c.findings) + ({f.name for f in c.findings} <= {"device"}) for c in drawn]
    assert [len(said) for said in told] == sizes
    openings = {phrases.OPENING[lateral][0].capitalize() for lateral in (False, True)}
    assert {said[0] for said in told} == openings
    truth = np.array([case.labels() for case in drawn])
    read = labeller.label([" ".join(said) for said in told])
    assert (read == truth).mean() >= 0.99 and ((read == truth)[:, NO_FINDING]).mean() >= 0.99
    assert truth[:, NO_FINDING].any() and not any(case.negated for case in drawn)
    pair = (Finding("effusion", side="left"), Finding("device", kind="pacemaker", side="left"))
    told = [clean(Case((seed,), pair, ()), config).lower() for seed in range(20)]
    assert {said.index("effusion") < said.index("pacemaker") for said in told} == {False, True}


def test_only_a_garbled_terse_report_denies(labeller):
    config = PhantomConfig(seed=4, terse=True, garble=1.0)
    told = [(case, *damage(case, config)[:2]) for case in cases(config)]
    read = labeller.label([write_report(*parts, config) for parts in told])
    denies = np.array([bool(negated) for *_, negated in told])
    assert 0.2 < denies.mean() < 0.8
    assert ((read == 2).any(1) == denies).mean() > 0.97
    assert (labeller.label([clean(case, config) for case in cases(config)]) != 2).all()


def test_paraphrases_bound_the_wordings():
    finding = Finding("effusion", side="right", severity=1)

    def wordings(k):
        config = PhantomConfig(paraphrases=k)
        reports = [clean(Case((i,), (finding,), ()), config) for i in range(150)]
        sentences = {s for r in reports for s in re.split(r"(?<=\.) ", r)}
        return {s for s in sentences if "effusion" in s}

    assert [len(wordings(k)) for k in (1, 4, 12)] == [1, 4, 12]
    assert len({w.split()[0] for w in wordings(12)}) >= 8, "different first words"


def test_sentences_are_well_formed():
    for case in cases(n=300):
        report = clean(case)
        assert not re.search(r"[{}~]|  | [.,]|\.\.|\ba [aeiou]|\ban [^aeiou]", report), report
        for sentence in re.split(r"(?<=\.) ", report):
            assert sentence[0].isupper() and sentence.endswith("."), report
        for text in write_context(case):
            assert text and text[0].isupper() and text.endswith(".")


def test_labels_take_the_strongest_statement():
    findings = [
        Finding("consolidation", cause="pneumonia"),
        Finding("pneumonia", uncertain=True),
        Finding("opacity", uncertain=True),
    ]
    ids = dict(zip(OBSERVATIONS, labels_of(findings, ["Edema"]), strict=True))
    wanted = {"Consolidation": 1, "Pneumonia": 3, "Lung Opacity": 3, "Edema": 2}
    assert {name: ids[name] for name in wanted} == wanted
    assert ids["No Finding"] == 0
    device = [Finding("device", kind="pacemaker")]
    assert labels_of(device, [])[OBSERVATIONS.index("No Finding")] == 1
    both = [Finding("pneumonia"), Finding("consolidation", cause="pneumonia")]
    assert labels_of(both, [])[OBSERVATIONS.index("Pneumonia")] == 1


def test_comparison_wording_only_with_a_prior():
    words = re.compile(r"\b(new|unchanged|stable|prior|interval|worsening|improving)\b", re.I)
    for case in cases(n=300):
        if case.earlier is None:
            assert not words.search(clean(case))
            assert all(not f.change for f in case.findings)
        else:
            assert write_context(case)[2] != "None."
    changed = [
        c
        for c in cases(n=300)
        if c.earlier is not None and any(f.change == "new" and not f.uncertain for f in c.findings)
    ]
    assert changed
    assert all(re.search(r"\bnew\b", clean(c), re.I) for c in changed)


def test_prior_differs_as_stated():
    for case in cases(PhantomConfig(prior=1.0), 300):
        before = {f.name: f for f in case.earlier}
        for f in case.findings:
            if f.change == "new":
                assert f.name not in before
            else:
                step = before[f.name].severity - f.severity
                assert step == {"unchanged": 0, "larger": -1, "smaller": 1}[f.change]
        for f in case.resolved:
            assert FINDINGS[f.name][0] in case.negated and f.name in before


def spoilt(**knobs):
    config = PhantomConfig(**knobs)
    return config, [(c, *damage(c, config)) for c in cases(config, 300)]


def test_omit_leaves_findings_out_at_its_rate(labeller):
    config, drawn = spoilt(omit=0.3)
    total = sum(len(c.findings) for c, *_ in drawn)
    gone = sum(len(log) for *_, log in drawn)
    assert abs(gone / total - 0.3) < 0.05
    for case, findings, _, log in drawn:
        names = {f.name for f in findings}
        assert {entry["finding"] for entry in log} == {f.name for f in case.findings} - names
        assert all(entry["how"] == "omitted" for entry in log)
    read = labeller.label([write_report(c, f, n, config) for c, f, n, _ in drawn])
    missed = said = 0
    for (_, findings, _, log), ids in zip(drawn, read, strict=True):
        told = {name for f in findings for name in f.observations()}
        for entry in log:
            name = FINDINGS[entry["finding"]][0]
            if name not in told:
                missed += 1
                said += ids[OBSERVATIONS.index(name)] in (1, 3)
    assert missed > 50 and said == 0


def test_a_careful_author_spoils_nothing():
    _, careless = spoilt(omit=0.5, garble=0.5)
    _, drawn = spoilt(omit=0.5, garble=0.5, careful=0.4)
    abnormal = [(before, after) for before, after in zip(careless, drawn, strict=True) if before[3]]
    changed = [after for before, after in abnormal if after != before]
    assert all((list(c.findings), list(c.negated), []) == (f, n, log) for c, f, n, log in changed)
    assert abs(len(changed) / len(abnormal) - 0.4) < 0.1
    assert not any(log for *_, log in spoilt(omit=1.0, careful=1.0)[1])


def test_garble_lies_in_three_ways_and_labels_keep_the_truth():
    _, drawn = spoilt(garble=0.4)
    hows = []
    for case, findings, negated, log in drawn:
        truth = {f.name: f for f in case.findings}
        told = {f.name: f for f in findings}
        for entry in log:
            name, how = entry["finding"], entry["how"]
            hows.append(how.split(" for ")[0])
            if how == "other side":
                assert {told[name].side, truth[name].side} == {"left", "right"}
            elif how == "negated":
                assert name not in told
                other = {n for f in findings for n in f.observations()}
                lungs_told = bool(LUNG & set(told)) and FINDINGS[name][0] == "Lung Opacity"
                assert FINDINGS[name][0] in negated or FINDINGS[name][0] in other or lungs_told
            else:
                assert name not in told and how.split(" for ")[1] not in truth
        assert not set(negated) & {n for f in findings for n in f.observations()}
    rate = len(hows) / sum(len(c.findings) for c, *_ in drawn)
    assert abs(rate - 0.4) < 0.06 and set(hows) == {"other side", "negated", "swapped"}
    assert all(c.labels() == labels_of(c.findings, c.negated) for c, *_ in drawn)


@settings(max_examples=40, deadline=None)
@given(
    findings=st.integers(1, 13),
    normal=st.floats(0, 1),
    prior=st.floats(0, 1),
    prevalence=st.floats(0.05, 5),
    uncertain=st.floats(0, 1),
    thorough=st.floats(0, 1),
    templated=st.floats(0, 1),
    terse=st.booleans(),
    paraphrases=st.integers(1, 12),
    omit=st.floats(0, 1),
    garble=st.floats(0, 1),
    careful=st.floats(0, 1),
    reported=st.integers(0, 13),
    seed=st.integers(0, 2**31),
)
def test_any_configuration_writes_a_consistent_case(**knobs):
    config = PhantomConfig(**knobs)
    case = sample_case(config, (config.seed, 0, 0))
    assert case == sample_case(config, (config.seed, 0, 0))
    labels = case.labels()
    assert len(labels) == 14 and set(labels) <= {0, 1, 2, 3}
    assert not set(case.negated) & {n for f in case.findings for n in f.observations()}
    assert len({f.name for f in case.findings}) == len(case.findings)
    spoken, negated, _ = damage(case, config)
    assert write_report(case, spoken, negated, config).endswith(".")
