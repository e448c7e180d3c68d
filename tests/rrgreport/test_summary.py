"""Summaries survive the disk; the printed table is aligned and says what is missing."""

from __future__ import annotations

import json
import math

import pytest
from rich.cells import cell_len

from rrgreport import Metric, RunSummary, System, numbers, print_summary
from rrgtrain.errors import UserError


def example() -> RunSummary:
    return RunSummary(
        "Demo [test]",
        {
            "SFT": System(
                {"micro_f1": Metric(0.6124, 0.58, 0.641), "reward": Metric(1.5)}, seconds=61.3
            ),
            "肺 GRPO": System(
                {
                    "micro_f1": Metric(0.78),
                    "reward": Metric(math.nan),
                    "zero_variance": Metric(0.17),
                    "ratescore": Metric(0.7),
                },
                edits={"b": 1204.0, "a": 3.0, "c": 0.0},
                per_finding={"Edema": 0.5},
                phases={"rollout": 3.0},
            ),
        },
        notes=["Phantom data: not clinical results."],
    )


def test_save_and_load(tmp_path) -> None:
    summary = example()
    summary.seconds = math.inf
    summary.save(tmp_path / "s.json")
    json.loads((tmp_path / "s.json").read_text(), parse_constant=pytest.fail)
    loaded = RunSummary.load(tmp_path / "s.json")
    assert math.isnan(loaded.systems["肺 GRPO"].metrics["reward"].value)
    for both in (loaded, summary):
        both.systems["肺 GRPO"].metrics["reward"] = Metric(0.0)
    assert loaded == summary


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"systems": {"a": {}}, "seconds": null}'])
def test_what_is_not_a_summary(tmp_path, text) -> None:
    (tmp_path / "s.json").write_text(text)
    with pytest.raises(UserError, match=r"s\.json is not a run's summary"):
        RunSummary.load(tmp_path / "s.json")
    with pytest.raises(UserError, match="does not exist"):
        RunSummary.load(tmp_path / "none.json")


def test_plain_table(capsys) -> None:
    print_summary(example())
    lines = capsys.readouterr().out.splitlines()
    header, sft, grpo = lines[2:5]
    assert lines[0] == "Demo [test]" and lines[-1] == "Phantom data: not clinical results."
    order = ["system", "micro-F1", "macro-F1", "RaTEScore", "reward", "zero var.", "edits", "time"]
    assert [header.index(name) for name in order] == sorted(header.index(name) for name in order)
    assert "0.612 (0.580 to 0.641)" in sft and "1 min 01 s" in sft
    assert "a 3, b 1,204" in grpo and "c 0" not in grpo
    assert "not a number" in grpo and "17 %" in grpo
    assert cell_len(header) == cell_len(sft) == cell_len(grpo)
    print_summary(RunSummary("Nothing"))
    assert "micro-F1" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0.6124, "0.612"),
        (-0.0001, "0.000"),
        (-0.5, "−0.500"),
        (132.44, "132.4"),
        (math.nan, "not a number"),
        (-math.inf, "−∞"),
        (None, "–"),
    ],
)
def test_values(number, text) -> None:
    assert numbers.value(number) == text


def test_a_name_of_the_user_brings_no_control_character(capsys) -> None:
    system = System({"micro_f1": Metric(0.5)}, seconds=1.0)
    summary = RunSummary("evaluation of a\x1b[2J", {"a\x1b[2J": system})
    print_summary(summary)
    printed = capsys.readouterr().out
    assert printed.count("a\\x1b[2J") == 2 and "\x1b[2J" not in printed
