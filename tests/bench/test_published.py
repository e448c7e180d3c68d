"""No page shows a row that is older than the code it times."""

from __future__ import annotations

import importlib.util
import re
import subprocess
from pathlib import Path

import pytest

from bench import published, rows
from bench.published import CODE, NoHistory, Stale, code_of, kept_rows, stale

ROOT = Path(__file__).parents[2]
LOSS, CORE = "rrgkern/policy_loss/api.py", "csrc/policy_loss/cpu.cc"
SOURCES = {
    LOSS: '"""A loss."""\n\n\ndef loss(x):\n    """Add."""\n    return x + 1\n',
    CORE: "int f() { return 1; }  // one\n",
    "rrgkern/mccs/api.py": "x = 1\n",
    "rrgkern/policy_loss/README.md": "a table\n",
}


def git(tree: Path, *words: str) -> str:
    command = ["git", "-C", str(tree), "-c", "user.name=a", "-c", "user.email=a@b", *words]
    return subprocess.check_output(command, text=True, stderr=subprocess.DEVNULL).strip()


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A repository of two rooms, in one commit."""
    for name, text in SOURCES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "first")
    return tmp_path


def found(tree: Path, **row: str) -> list[Stale]:
    published._why.cache_clear()
    commit = git(tree, "rev-parse", "--short=12", "HEAD~0")
    return stale([{"room": "policy_loss", "commit": commit, **row}], tree)


CHANGES = {
    "a line of Python": (LOSS, "x + 1", "x + 2", True),
    "a line of C++": (CORE, "return 1", "return 2", True),
    "a docstring": (LOSS, "Add.", "Add one.", False),
    "a comment": (CORE, "// one", "// the first\n/* of\nthem */", False),
    "its page": ("rrgkern/policy_loss/README.md", "table", "tale", False),
    "another room": ("rrgkern/mccs/api.py", "1", "2", False),
}


def test_which_changes_make_a_row_stale(tree: Path) -> None:
    first, wrong = git(tree, "rev-parse", "--short=12", "HEAD"), []
    for name, (file, old, new, told) in CHANGES.items():
        (tree / file).write_text(SOURCES[file].replace(old, new))
        if bool(found(tree, commit=first)) is not told:
            wrong.append(f"{name}, on the disk")
        git(tree, "commit", "-q", "-a", "-m", name)
        if bool(found(tree, commit=first)) is not told or found(tree):
            wrong.append(f"{name}, in a commit")
        (tree / file).write_text(SOURCES[file])
        git(tree, "commit", "-q", "-a", "-m", "back")
    assert not wrong, wrong
    (tree / "rrgkern/policy_loss/kernel.py").write_text("x = 1\n")
    git(tree, "add", ".")
    (told,) = found(tree, commit=first)
    assert str(told) == (
        f"policy_loss  ({first}): rrgkern/policy_loss/kernel.py changed since; "
        "make bench ROOM=peers"
    )


def test_checks_before_the_clock_leave_rows_fresh(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A function that no bench times may change, but not what stands beside it."""
    first = git(tree, "rev-parse", "--short=12", "HEAD")
    monkeypatch.setattr(published, "UNTIMED", {LOSS: ("check",)})
    source = SOURCES[LOSS] + "\n\ndef check(x):\n    assert x\n"
    (tree / LOSS).write_text(source)
    assert not found(tree, commit=first)
    assert stale([{"bench": "update_step", "commit": first}], tree)
    (tree / LOSS).write_text(source.replace("x + 1", "x + 2"))
    assert found(tree, commit=first)


def test_a_refusal_by_type_or_mode_leaves_rows_fresh(tree: Path) -> None:
    """What reads a tensor, does more than raise, or changes what is imported elsewhere does not."""
    first = git(tree, "rev-parse", "--short=12", "HEAD")
    head = "from a import b\n\n\ndef loss(x):\n"
    (tree / LOSS).write_text(head + "    return b(x)\n")
    git(tree, "commit", "-q", "-a", "-m", "second")
    first = git(tree, "rev-parse", "--short=12", "HEAD")
    two = "from a import b, functorch_level\n\n\ndef loss(x):\n"
    mode = "    if functorch_level() is not None:\n        raise ValueError\n"
    kind = "    if not isinstance(x, int):\n        raise ValueError(x)\n"
    fresh = (two + mode, head + kind, two + mode + kind)
    changed = (
        (head.replace(" b", " c as b")),
        head.replace("from a", "from c") + kind,
        two,
        head + kind.replace("raise ValueError(x)", "x = int(x)"),
        head + kind.replace("not isinstance(x, int)", "x > 0"),
        head + kind.replace("not isinstance(x, int)", "not isinstance(x.item(), int)"),
        head + kind.replace("not isinstance(x, int)", "not bool(x)"),
        head + kind + "    else:\n        x = 2\n",
    )
    for sources, stales in ((fresh, False), (changed, True)):
        for source in sources:
            (tree / LOSS).write_text(source + "    return b(x)\n")
            assert bool(found(tree, commit=first)) is stales, source


def test_untimed_code_is_there() -> None:
    for file, names in published.UNTIMED.items():
        source = (ROOT / file).read_text("utf-8")
        assert all(f"def {name}(" in source for name in names), file


def test_rows_of_no_commit_and_of_unknown_code_are_stale(tree: Path) -> None:
    for row in ({"commit": "abc-dirty"}, {"commit": "unknown"}, {"room": "cake"}):
        assert found(tree, **row), row


def test_a_clone_without_the_commit_says_so(
    tree: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    home = tmp_path_factory.mktemp("clones")
    first = git(tree, "rev-parse", "--short=12", "HEAD")
    git(tree, "commit", "-q", "--allow-empty", "-m", "second")
    git(tree, "clone", "-q", "--depth=1", tree.as_uri(), str(home / "shallow"))
    (home / "archive").mkdir()
    for clone in ("shallow", "archive"):
        with pytest.raises(NoHistory, match=f"no history of commit {first}"):
            stale([{"room": "policy_loss", "commit": first}], home / clone)


@pytest.mark.skipif(importlib.util.find_spec("latex2mathml") is None, reason="no MkDocs Material")
def test_the_page_draws_fresh_rows_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    from docs import hooks

    names = re.findall(r"<!-- rows: (\w+) -->", (ROOT / "docs/performance.md").read_text("utf-8"))
    assert set(names) == set(hooks.TABLES)
    for name in names:
        rows, note = hooks.rows_of(name)
        if "not known here" in note:
            pytest.skip(f"no history of the rows: {note.strip()}")
        assert not stale(rows) and ("not shown" in note) is bool(len(rows) < len(every(name)))
    # a row whose code has changed is left out of a table and named with what to run
    monkeypatch.setattr(published, "_why", lambda commit, *_: "changed" if commit == "old" else "")
    row = {"room": "mccs", "case": "x", "provider": "eager", "p50_vs_eager": 1.0}
    planted = [{**row, "commit": "new"}, {**row, "commit": "old", "provider": "rrgkern"}]
    monkeypatch.setattr(published, "newest", lambda path: planted)
    drawn = hooks._ROWS.sub(hooks._drawn, "<!-- rows: peers -->")
    assert "| eager |" in drawn and "| rrgkern |" not in drawn
    assert "1 rows are not shown" in drawn and drawn.endswith(
        "`make bench ROOM=peers` measures them again."
    )


def test_the_first_page_quotes_rows_of_the_gpu() -> None:
    path = ROOT / "bench/results/nvidia-h100-80gb-hbm3.jsonl"
    rows = published.newest(path)
    page = (ROOT / "README.md").read_text("utf-8")
    quoted = {
        "from logits, in place": ("policy_loss_from_logits", "dense, forward+backward"),
        "from hidden states": ("linear_policy_loss", "domain, trainable head, forward+backward"),
        "with the head, every": ("linear_policy_loss", "dense, trainable head, forward+backward"),
    }
    for start, (room, case) in quoted.items():
        line = next(line for line in page.splitlines() if line.startswith(f"| {start}"))
        of_case = [row for row in rows if (row["room"], row["case"]) == (room, case)]
        best = {"liger-triton", "cce-exact"} & {row["provider"] for row in of_case}
        ours = "rrgkern in place" if room.endswith("logits") else "rrgkern"
        cells = line.replace("*", "").split("|")[2:6]
        for cell, name in zip(cells, (ours, "eager", "compiled", *best), strict=True):
            (row,) = (row for row in of_case if row["provider"] == name)
            mib = f"{row['peak_mib']:.1f}" if row["peak_mib"] < 0.5 else f"{row['peak_mib']:,.0f}"
            assert f"{row['p50_ms']:.1f} ms, {mib} MiB" in cell, (start, name)
    (step,) = (row for row in rows if row["room"] == "update_step" and row["layers"] == 36)
    assert f"update {step['seconds/update']:.1f} s" in page
    assert f"sampling by transformers {step['seconds/rollout']:.1f} s" in page.replace("\n", " ")
    assert f"{step['peak_mib'] / 1024:.1f} GiB" in page


def every(name: str) -> list[dict]:
    from docs import hooks

    file, field = hooks.FILES[name]
    rows = published.newest(ROOT / "bench" / "results" / f"{file}.jsonl")
    return [row for row in rows if row.get(field)]


POSTPONED = "from __future__ import annotations\n"
KERNEL = "@triton.jit\ndef f(x, N: tl.constexpr): y: int = 1\n"
# source, what stands in it, what shall: does that change what runs?
ANNOTATIONS = {
    "an argument": (POSTPONED + "def f(x, *y, z=1): pass", "x, *y", "x: A, *y: B", False),
    "a result": (POSTPONED + "async def f(): pass", "()", "() -> A[B]", False),
    "a variable": (POSTPONED + "def f():\n    if a: y = g()", "y", "y: A", False),
    "a type": (POSTPONED + "def f():\n    y: A\n    y = 1", "A", "B", False),
    "an attribute": (POSTPONED + "class C:\n def f(self): self.y = 1", "y", "y: A", False),
    "a method": (POSTPONED + "class C:\n @staticmethod\n def f(x): pass", "x", "x: A", False),
    "a backward": (POSTPONED + "@first_order('f')\ndef g(x): pass", "x", "x: A", False),
    "a default": (POSTPONED + "def f(x: A = 1): pass", "1", "2", True),
    "a value": (POSTPONED + "def f():\n    y: A = 1", "1", "2", True),
    "a local": (POSTPONED + "def f():\n    pass\n    y = 1", "pass", "y: A", True),
    "a field": (POSTPONED + "class C(NamedTuple):\n    x: int", "int", "float", True),
    "a field inside": (POSTPONED + "def f():\n class C(NamedTuple):\n  x: A", "A", "B", True),
    "a constant": (POSTPONED + "N: A = 1", "A", "tl.constexpr", True),
    "a kernel's argument": (POSTPONED + KERNEL, "x,", "x: tl.float64,", True),
    "a kernel's variable": (POSTPONED + KERNEL, "y: int", "y: tl.constexpr", True),
    "an op": (POSTPONED + "@custom_op('f')\ndef f(x: A): pass", "A", "B", True),
    "evaluated": ("def f(x: A): pass", "A", "B", True),
}


def test_annotations_that_nothing_reads_are_no_code() -> None:
    wrong = [
        name
        for name, (source, old, new, runs) in ANNOTATIONS.items()
        if (code_of(source, "a.py") != code_of(source.replace(old, new), "a.py")) is not runs
        or source.count(old) != 1
    ]
    assert not wrong, wrong


def test_the_code_of_every_row_is_there() -> None:
    assert {published.name_of(row) for row in kept_rows()} <= set(CODE)
    missing = [p for name in CODE for p in published.paths_of(name) if not (ROOT / p).is_dir()]
    assert missing == ["csrc/shared_prefix"], "a room without C++"
    long, short = "def f():\n    'x'\n    return 1  # y\n", "def f(): return 1"
    assert code_of(long, "a.py") == code_of(short, "a.py")


# Rows name the commit that was measured.
def test_a_tree_is_dirty_by_a_changed_file_but_not_by_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def git(*arguments: str) -> str:
        who = ("-c", "user.name=a", "-c", "user.email=a@b")
        return subprocess.check_output(["git", "-C", tmp_path, *who, *arguments], text=True)

    monkeypatch.setattr(rows, "ROOT", tmp_path)
    monkeypatch.delenv("RRGKERN_COMMIT", raising=False)
    assert rows.commit() == "unknown"
    results = tmp_path / "bench" / "results" / "cpu.jsonl"
    results.parent.mkdir(parents=True)
    source = tmp_path / "a.py"
    for file in (results, source):
        file.write_text("")
    git("init", "-q")
    git("add", "-A")
    git("commit", "-qm", "first")
    head = git("rev-parse", "--short=12", "HEAD").strip()
    assert rows.commit() == head
    results.write_text("{}\n")
    assert rows.commit() == head
    source.write_text("x = 1\n")
    assert rows.commit() == f"{head}-dirty"
