"""A bad file of any kind, given to any command, is one line and a status that is not 0."""

from __future__ import annotations

import io
import itertools
import os
import re
import shutil
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from rrgclinical.common import json_reader
from rrgdata import phantom
from rrgtrain import cli
from rrgtrain.errors import UserError
from tests.rrgtrain.common import phantoms
from tests.rrgtrain.runs import finished_demo

WENT_ON = "the command went on"
TOO_DEEP = json_reader.DEEPEST + 1


def content(data: bytes) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        path.write_bytes(data + b"\n" if data else data)  # a torn last line is let pass

    return write


KINDS: dict[str, Callable[[Path], None]] = {
    "nested": content(b'{"a": ' + b"[" * TOO_DEEP),
    "nested list": content(b"[" * TOO_DEEP + b"]" * TOO_DEEP),
    "Latin-1": content('{"a": "é"}'.encode("latin-1")),
    "UTF-16": content('{"a": "b"}'.encode("utf-16")),
    "empty": content(b""),
    "cut": content(b'{"a": {"b": '),
    "number": content(b"7"),
    "list": content(b"[7]"),
    "foreign": content(b'{"a": 1}'),
    "digits": content(b'{"a": ' + b"9" * 5000 + b"}"),
    "zeros": content(bytes(64)),
    "a set": content(b"rl: !!set {a, b}"),
    "no key": content(b"null: 1"),
    "unclosed": content(b"rl: {algorithm: '${oc.env:A'}"),
    "directory": Path.mkdir,
    "pipe": os.mkfifo,
    "loop": lambda path: path.symlink_to(path.name),
    "unreadable": content(b"{}"),
}


@pytest.fixture
def closed(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Files that may not be read; root may read what it forbids itself."""
    real, names = io.open, set[str]()

    def opened(file: Any, *args: Any, **options: Any) -> Any:
        if isinstance(file, str | Path) and os.path.abspath(file) in names:
            raise PermissionError(13, "Permission denied", str(file))
        return real(file, *args, **options)

    monkeypatch.setattr("io.open", opened)
    monkeypatch.setattr("builtins.open", opened)
    return names


# By file: the commands that read it. RUN is a finished run, BEGUN one that is not, CK a checkpoint.
IU = ["data.source=iu_xray", "data.root=DATA"]
SFT = ["sft", "--out", "o", "policy.path=CK"]
EVAL = ["eval", "--from", "CK", "--out", "o", *IU]
RL = ["rl", "--from", "CK", "--out", "o", *IU]
RESUME = ["demo", "--resume", "BEGUN"]
SCORE = ["eval", "--out", "o", "--predictions"]
GENERATE = ["generate", "CK", "DATA/images", "--out", "out.jsonl"]
SELECT = ["select", "--from", "CK", "--out", "SELECTED", *IU]
PLAN = ["plan", "sft", "policy.path=CK"]
READERS: dict[str, list[list[str]]] = {
    "mine.yaml": [
        ["sft", "mine.yaml", "--out", "o"],
        ["plan", "mine.yaml"],
        [*GENERATE, "--recipe", "mine.yaml"],
    ],
    "p.jsonl": [[*SCORE, "p.jsonl", "--references", "good.jsonl"]],
    "p.json": [[*SCORE, "p.json", "--references", "good.jsonl"]],
    "p.csv": [[*SCORE, "p.csv", "--references", "good.jsonl"]],
    "r.json": [[*SCORE, "good.jsonl", "--references", "r.json"]],
    "RUN/summary.json": [["report", "RUN"], ["report", "RUN", "BEGUN"]],
    "RUN/samples.jsonl": [["report", "RUN"]],
    "RUN/predictions.jsonl": [["report", "RUN"]],
    "RUN/metrics.jsonl": [["report", "RUN"]],
    "RUN/config.yaml": [["report", "RUN"]],
    "BEGUN/config.yaml": [RESUME],
    "BEGUN/metrics.jsonl": [RESUME],
    "BEGUN/resume": [RESUME],
    "BEGUN/resume/*/manifest.json": [RESUME],
    "BEGUN/resume/*/state.pt": [RESUME],
    "BEGUN/spent/a.json": [RESUME],
    "CK/config.json": [EVAL, PLAN],
    "CK/tokenizer.json": [EVAL],
    "CK/tokenizer_config.json": [EVAL],
    "CK/preprocessor_config.json": [EVAL],
    "CK/rrgtrain.json": [EVAL],
    "CK/adapter_config.json": [EVAL, PLAN],
    "CK/model.safetensors": [EVAL],
    "DATA/annotation.json": [["data", "check", "DATA", IU[0]], [*SFT, *IU]],
    "DATA/phantom.json": [["data", "--out", "DATA"]],
    "prompt.txt": [[*SFT, "policy.prompt=prompt.txt"]],
    "subset.json": [[*RL, "data.subset=subset.json"]],
    "SELECTED/config.yaml": [SELECT],
    "SELECTED/sampled.jsonl": [SELECT],
    "out.jsonl": [GENERATE],
    "context.csv": [[*GENERATE, "--context", "context.csv"]],
}
# Rightly taken: nothing that is wanted stands there, or it is shown as it is.
TAKEN = {
    "mine.yaml": {"empty"},
    "RUN/metrics.jsonl": {"empty"},
    "out.jsonl": {"empty"},
    "RUN/samples.jsonl": {"empty"},
    "RUN/predictions.jsonl": {"empty"},
    "RUN/config.yaml": KINDS.keys()
    - {"Latin-1", "UTF-16", "directory", "pipe", "loop", "unreadable"},
    # what comes behind the checkpoint's rows is dropped
    "BEGUN/metrics.jsonl": {"nested", "nested list"},
    "BEGUN/resume": {"directory"},
    "CK/tokenizer_config.json": {"foreign", "directory", "pipe", "loop"},
    "CK/preprocessor_config.json": {"foreign", "directory", "pipe", "loop"},
    "CK/rrgtrain.json": {"foreign"},
    # transformers, too, takes a file alone for one
    "CK/adapter_config.json": {"directory", "pipe", "loop"},
    "SELECTED/config.yaml": {"directory", "pipe", "loop"},
    "SELECTED/sampled.jsonl": {"empty"},
}
# Words that no file is wrong for.
WORDS = [
    ["plan", "--disk", "inf"],
    ["plan", "--gpu-memory", "inf"],
    ["plan", "rl.steps=" + "9" * 5000],
    ["sft", "--out", "o", "rl.algorithm=${oc.env:A"],
    ["rl", "--from", "CK", "--out", "o", "rl.algorithm=os:system"],
    ["report", "nowhere"],
    ["data", "--out", "good.jsonl"],
]
ASIDE = re.compile("was trained|warning:|resuming|for research only|will take about|left out")


def cases() -> Iterator[tuple[str, str, list[str]]]:
    """Each file with three kinds in turn, so that all are met; with RRGTRAIN_ALL_KINDS, all."""
    turn = itertools.cycle(KINDS)
    for target, commands in READERS.items():
        few = ["nested", *itertools.islice(turn, 2)]
        for kind in KINDS if "RRGTRAIN_ALL_KINDS" in os.environ else dict.fromkeys(few):
            for words in commands:
                yield target, kind, words


@pytest.fixture
def place(at_home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Runs, a checkpoint and data, and commands that stop where long work would begin."""
    monkeypatch.setattr(sys, "path", list(sys.path))

    def stop(*_: object, **__: object) -> None:
        raise UserError(WENT_ON)

    write = phantom.write_phantom

    def write_phantom(config: Any, out: Path, **more: Any) -> Any:
        return write(config, out, **more) if out.exists() else stop()

    monkeypatch.setattr("rrgdata.phantom.write_phantom", write_phantom)
    monkeypatch.setattr("rrgtrain.run.session.write_reports", stop)
    monkeypatch.setattr("rrgtrain.run.stages.train_sft", stop)
    monkeypatch.setattr("rrgtrain.run.stages.train_rl", stop)
    monkeypatch.setattr("rrgtrain.run.select_studies._sample", stop)
    monkeypatch.setattr("rrgtrain.run.generate._write", stop)
    monkeypatch.setattr("rrgtrain.run.outcome.finish", stop)
    # a demo asks for it, and it would stay
    monkeypatch.setattr("torch.use_deterministic_algorithms", lambda *_: None)
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    demo = finished_demo()[0]
    made = {"RUN": demo, "BEGUN": demo, "CK": demo / "checkpoints/sft", "DATA": phantoms()}
    for name, source in made.items():
        shutil.copytree(source, name)
    Path("BEGUN/report.html").unlink()
    Path("SELECTED").mkdir()
    Path("good.jsonl").write_text('{"id": "1", "report": "No effusion."}\n')
    return at_home


def test_every_bad_file_is_one_line(place, closed, capsys):
    wrong = []
    for target, kind, words in cases():
        with spoilt(place, target, kind, closed):
            end, went_on = ended(place, words, capsys)
        if end or (went_on and kind not in TAKEN.get(target, ())):
            wrong.append(f"{target}, {kind}: {' '.join(words)}: {end or 'went on'}")
    for words in WORDS:
        end, went_on = ended(place, words, capsys)
        if end or went_on:
            wrong.append(f"{' '.join(words)[:80]}: {end or 'went on'}")
    assert not wrong, "\n".join(wrong)


@contextmanager
def spoilt(place: Path, target: str, kind: str, closed: set[str]) -> Iterator[None]:
    """Put a bad file in the place of each that `target` matches, and back what was there."""
    before = place / "before"
    before.mkdir()
    places = sorted(place.glob(target)) or [place / target]
    for number, path in enumerate(places):
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists():
            path.rename(before / str(number))
        KINDS[kind](path)
        if kind == "unreadable":
            closed.add(str(path))
    yield
    closed.clear()
    for number, path in enumerate(places):
        remove(path)
        if (before / str(number)).exists():
            (before / str(number)).rename(path)
    before.rmdir()


def ended(place: Path, words: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[str, bool]:
    """Run a command; return what is wrong with its end, and whether it has taken what it read."""
    words = [str(next(place.glob(w)).relative_to(place)) if "*" in w else w for w in words]
    capsys.readouterr()
    try:
        status = cli.main(words)
    except BaseException as error:
        trace = traceback.extract_tb(error.__traceback__)[-1]
        return f"{error!r:.200} at {trace.filename}:{trace.lineno}", False
    finally:
        remove(place / "o")
        remove(place / "BEGUN/report.html")
    told = capsys.readouterr().err
    lines = [x for x in told.splitlines() if x.startswith("rrgtrain: ") and not ASIDE.search(x)]
    if status == 0 or WENT_ON in told:
        return "", True
    return "" if len(lines) == 1 and "Traceback" not in told else f"{status} {told[:400]!r}", False


def remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
