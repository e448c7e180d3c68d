"""The page and its figures: what stands where, and what is said of a claim."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from experiments.replicate.figure import figure_of, interval_chart
from experiments.replicate.outcome import Outcome, outcome_of
from experiments.replicate.page import write_page
from experiments.replicate.text import spoken
from tests.experiments.replicate.common import claim, result, task

SEEDS = (0, 1)
MEANS = {"sft": 0.3, "editgrpo_para": 0.55, "editgrpo": 0.5}


@pytest.fixture
def failed(tmp_path: Path) -> Outcome:
    """Sentences were planted below paragraphs."""
    results = {
        job: [
            result(task(job, seed, tmp_path), micro_f1=mean, macro_f1=mean / 2, reward=1.0)
            for seed in SEEDS
        ]
        for job, mean in MEANS.items()
    }
    return outcome_of(claim("sentences"), results, SEEDS, quick=False)


def test_a_claim_that_fails_is_told_with_its_numbers(failed: Outcome, tmp_path: Path) -> None:
    said = "\n".join(spoken(failed))
    assert "does not reproduce here; 2 seeds" in said
    assert "sentences is above paragraph (micro-F1): -0.050 [-0.050, -0.050]; seeds" in said
    assert "  tried\n    SFT: 80 steps, of 16 prompts\n    paragraph: 80 steps" in said
    assert "not CheXbert" in said.partition("  tried\n")[2]
    page = tmp_path / "page.html"
    write_page([failed], page, command="make replicate", notes=["a <note>"])
    text = page.read_text()
    assert text.count("does not reproduce here") == 2, "in the list of verdicts and at the claim"
    assert "a &lt;note&gt;" in text and text.count("/common.yaml+editgrpo") == 4
    assert "80 steps, of 16 prompts" in text
    for row in failed.rows:
        value = row.values["micro_f1"]
        assert f"<td>{value.value:.3f}<small>{value.low:.3f} to {value.high:.3f}</small>" in text


def test_an_interval_stands_where_its_numbers_are(failed: Outcome) -> None:
    drawn = str(interval_chart(failed))
    lines = re.findall(r'<polyline class="line c\d" points="([\d.]+),[\d.]+ ([\d.]+),', drawn)
    dots = [float(x) for x in re.findall(r'class="dot c\d" cx="([\d.]+)"', drawn)]
    assert len(lines) == len(dots) == 3
    assert drawn.count("dot faint") == 3 * len(SEEDS)
    for (low, high), dot in zip(lines, dots, strict=True):
        assert float(low) < dot < float(high)
    assert dots[0] < dots[2] < dots[1], "in the order of the planted means, row by row"
    values = [row.values["micro_f1"].value for row in failed.rows]
    shares = [(v - values[0]) / (values[1] - values[0]) for v in values]
    places = [(x - dots[0]) / (dots[1] - dots[0]) for x in dots]
    assert places == pytest.approx(shares, abs=0.01)


def test_curves_are_means_over_seeds(tmp_path: Path) -> None:
    jobs = {"orapo_grpo": 0.4, "orapo": 0.2}
    results = {
        job: [
            result(task(job, s, tmp_path), zero_rate=m, zero_groups=m, rare_f1=1 - m, macro_f1=m)
            for s in SEEDS
        ]
        for job, m in jobs.items()
    }
    found = outcome_of(claim("oracle"), results, SEEDS, quick=False)
    assert found.verdict == "reproduces here"
    for label, job in (("without", "orapo_grpo"), ("with oracle", "orapo")):
        assert found.curves[label].shape == (2, 400)
        assert found.curves[label].mean() == pytest.approx(jobs[job], abs=0.02)
    assert "tried" not in "\n".join(spoken(found))
    chart, legend = figure_of(found)
    assert [name for _, name in legend] == ["without", "with oracle"]
    assert chart.count("<polyline") == 4, "a faint and a smoothed line each"
