"""Words of the command line that are told with their mend before anything is read."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from rrgtrain.cli import main

EMPTY = "is empty; write it out, or set the variable"
DASH = "- is no file here, and nothing goes through a pipe; name a file, or ./-"
GONE = "the working directory is gone; cd to one that is there"
pytestmark = pytest.mark.usefixtures("at_home")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("report ~/no/where", f"no run in {Path.home()}/no/where;"),
        ("eval --references=~/r.csv --predictions A=~/no.csv", f" {Path.home()}/no.csv does not"),
        ("eval --predictions a.csv b.q.csv --references r.csv", " b.q.csv is no setting; say --pr"),
        ("eval --predictions A=a.csv B=b.json", " B=b.json is no setting; say --predictions"),
        ("plan rl.steps = 8", " a blank stands before '='; settings are written section.key=value"),
        ("plan reward.terms={match: 1}", " quote 'k={a: 1}'"),
        ("trian", "no command 'trian': choose demo, sft, rl,"),
        ("evla --out r", "no command 'evla': did you mean eval?; see `rrgtrain --help`"),
        ("plan --gpus 8 scale.mode=none", " scale.mode=none is one process, --gpus 8 several"),
        ("plan policy.path=~nobody-is-called-so/x", "begins with ~ and the name of no user"),
        ("plan rl.algorithm=nosuch --stage=rl", "rl.algorithm='nosuch' is unknown"),
        ("demo dr_grpo --small", "--small is the recipe demo_small: leave out dr_grpo"),
        ("demo --resume runs/demo --small", "has its own: leave out --small"),
        ("rl --small", "unrecognized arguments: --small"),
        ("keys rl.stepz", "rrgtrain: keys: unknown key 'rl.stepz'; did you mean rl.steps?"),
        ("keys tau_replac", "rrgtrain: keys: unknown key 'tau_replac'; "),
        ("keys qqqq", "the top level has seed, deterministic, data"),
        ("keys seed.x", "seed is a whole number and has no keys of its own"),
        ("plan demo --gpu h10", "did you mean h100? use h100, h200, a100-80, a100-40, l40s, a10"),
        ("plan demo --gpus 0", "at least one"),
        ("plan demo --gpu-memory -3", "give the memory of one GPU in GiB"),
        ("plan demo --disk 0", "--disk 0; give it in GiB"),
        ("plan mine.yaml", "mine.yaml:1: 'policy.path' is 'a\\x00b', which holds a NUL"),
    ],
)
def test_one_line_names_the_mend(words: str, told: str, refusal: Callable[..., str]) -> None:
    Path("mine.yaml").write_text('policy: {path: "a\\0b"}\n')
    out = ["--out", "r"] if words.startswith("eval") else []
    assert told in refusal(*words.split(), *out)


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("rrgtrain ev", ["eval "]),
        ("rrgtrain data ch", ["check "]),
        ("rrgtrain data check --no", ["--no-images "]),
        ("rrgtrain rl rl.lr", ["rl.lr="]),
        ("rrgtrain sft editgrpo_n", ["editgrpo_norm "]),
        ("rrgtrain report ", ["--help ", "--out ", "-h "]),
        ("rrgtrain eval editgrpo eval.cleaning=", []),
    ],
)
def test_bash_completes(typed, offered, monkeypatch, capsys):
    monkeypatch.setenv("COMP_LINE", f"{typed} behind the cursor")
    monkeypatch.setenv("COMP_POINT", str(len(typed)))
    monkeypatch.setattr("sys.argv", ["rrgtrain", "rrgtrain", "word", "before"])
    assert main() == 0
    assert capsys.readouterr().out.split("\n")[:-1] == (offered or [""])


@pytest.mark.parametrize("name", ["a" * 300, "loop/run/er", "file/run/er"])
@pytest.mark.parametrize("verb", ["sft", "rl", "eval", "select", "generate"])
def test_a_name_that_cannot_be_is_not_tried_again(verb, name, tmp_path, capsys):
    """75 lets a batch system start the same command again, and again.

    Three parts: two would be a name of the hub, which `select` would ask for it.
    """
    Path("loop").symlink_to("loop")
    Path("file").write_text("")
    where = ["--out", name]
    words = {
        "sft": [verb, *where],
        "rl": [verb, "--from", "tiny", *where],
        "eval": [verb, "--from", "tiny", *where],
        "select": [verb, "--from", name, *where],
        "generate": [verb, name, ".", "--out", "r.jsonl"],
    }[verb]
    assert main(words) == 2
    *_, line = capsys.readouterr().err.splitlines()
    assert line.startswith("rrgtrain: ") and "again" not in line
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "loop"]


@pytest.mark.parametrize("odd", ["bad\udcff", "bad\0", "\ud800"])
def test_a_word_that_no_file_can_hold_is_told_before_anything_is_begun(odd, tmp_path, refusal):
    """The words of a command end in its report, which would fail when all is done."""
    for words in (
        ["sft", "--out", odd],
        ["sft", "--out=" + odd],
        ["plan", f"policy.path={odd}"],
        [odd],
    ):
        assert "is not UTF-8 text; rename the file that it names" in refusal(*words)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("line", "words"),
    [
        # "$NAME" of a shell where NAME is not set: --from would train a policy of random weights,
        # --out and FOLDER would be the working directory, --host every address of the machine
        (EMPTY, ["rl", "--from", "", "--out", "r"]),
        (EMPTY, ["eval", "--from=", "--out", "r"]),
        (EMPTY, ["sft", "--out", " "]),
        (EMPTY, ["generate", "", "images"]),
        (EMPTY, [""]),
        (DASH, ["stress", "--reports", "-"]),
        (DASH, ["stress", "--against=-"]),
        (DASH, ["report", "-"]),
    ],
)
def test_an_empty_word_and_a_dash_are_told_and_nothing_is_begun(line, words, tmp_path, refusal):
    assert line in refusal(*words)
    assert not list(tmp_path.iterdir())


def test_a_working_directory_that_no_page_can_name_is_refused(tmp_path, monkeypatch, refusal):
    # init wrote a recipe with half a character as data.root, which the next command refused
    odd = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff"))
    odd.mkdir()
    monkeypatch.chdir(odd)
    for words in (["init", "exp", "--data", "x.csv"], ["stress"], ["sft", "--out", "run"]):
        assert "is not UTF-8 text, and the working directory; cd to another" in refusal(*words)
    assert not list(odd.iterdir())


def test_a_working_directory_that_is_gone(tmp_path, monkeypatch, refusal):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    out = ["--out", str(tmp_path / "out")]
    for words in (
        *(["demo", *out], ["sft", *out], ["rl", "--from", "x", *out]),
        *(["eval", "--from", "x", *out], ["select", "--from", "x", *out], ["plan", "demo"]),
        ["report", str(tmp_path)],
        *(["generate", "x", "y", *out], ["export", "x", *out]),
        *(["data", "check", str(tmp_path)], ["init", str(tmp_path / "out"), "--data", "x"]),
    ):
        assert GONE in refusal(*words), words
    assert main(["recipes"]) == 0 and not (tmp_path / "out").exists()


def test_what_reads_and_writes_nothing_is_told_among_processes_too(tmp_path, monkeypatch, refusal):
    monkeypatch.setenv("WORLD_SIZE", "2")
    # a process among several sets it, and it stays
    monkeypatch.setenv("TORCH_CPP_LOG_LEVEL", "ERROR")
    assert main(["recipes"]) == main(["keys", "rl.kl"]) == main(["doctor"]) == 0
    line = refusal("data", "--out", str(tmp_path / "out"))
    assert "rrgtrain data is one process; start it without torchrun" in line
    assert not (tmp_path / "out").exists()
