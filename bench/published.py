"""Tell whether rows are as new as their code; pages show no others.

    python -m bench.published      every row that is older than its code, and what to run

A row is stale where code of its room differs from that of the row's commit, but for comments,
docstrings, annotations that nothing reads, and refusals that ask for no more than a type or a mode:
each takes less than 0.1 µs. The row of a tree with changes (`-dirty`) belongs to no commit: nothing
can be said for it.
"""

from __future__ import annotations

import ast
import functools
import json
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
_LOSSES = ("policy_loss", "logps")
_MODELS = ("chexbert", "radgraph", "ratescore")
# The code that a row times, by its room or bench, and the command that measures it again.
CODE = {
    "policy_loss": ("policy_loss",),
    "policy_loss_from_logits": _LOSSES,
    "linear_policy_loss": _LOSSES,
    "token_logps": ("logps",),
    "linear_token_logps": ("logps",),
    "update_step": (*_LOSSES, "shared_prefix", "python/rrgpolicy/model", "python/rrgtrain/train"),
    "clinical": tuple(f"python/rrgclinical/{model}" for model in _MODELS),
}
COMMANDS = {
    "update_step": "make bench ROOM=step",
    "clinical": "make oracle && RRGKERN_ROWS=cpu-clinical RRGKERN_BENCH_FULL=1 .venv/bin/python -m "
    "pytest -q --benchmark-quiet bench/clinical.py",
}
# No bench times these functions, or with () no function of the file: variants and scales are made
# before the clock starts, a door only names what it opens, and rrgclinical.cached keeps the graphs.
UNTIMED: dict[str, tuple[str, ...]] = {
    "rrgkern/policy_loss/scale.py": (),
    "rrgkern/policy_loss/spec.py": (
        *("__post_init__", "_one_of", "_flag", "_number"),
        *("_check_clip", "_check_levels", "unlike"),
    ),
    "python/rrgclinical/radgraph/__init__.py": (),
    "python/rrgclinical/radgraph/cached.py": (),
}
# A whole update makes its variant and scales as it goes.
TIMES_ALL = ("update_step",)
# Their rows are drawn by docs/performance.md.
FILES = ("cpu-peers", "cpu-clinical", "nvidia-h100-80gb-hbm3")
# They read no annotation of what they decorate, as triton.jit and custom_op do.
_DECORATORS = ("staticmethod", "classmethod", "property", "first_order")
_COMMENTS = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)


@dataclass(frozen=True)
class Stale:
    """Hold a row that is not shown any more, and why."""

    row: dict[str, Any]
    why: str

    def __str__(self) -> str:
        name = name_of(self.row)
        what = ", ".join(str(self.row[k]) for k in ("case", "model", "provider") if self.row.get(k))
        return f"{name} {what} ({self.row['commit']}): {self.why}; {command_of(self.row)}"


class NoHistory(LookupError):
    """The commit of a row is not here: the clone is shallow, or none."""


def newest(path: Path) -> list[dict[str, Any]]:
    """Read the rows of a file, the newest of each measurement."""
    kept: dict[str, dict[str, Any]] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        names = ["room", "case", "bench", "model", "batch"]
        names += ["provider", "members", "pixels", "layers"]
        kept[json.dumps([row.get(name) for name in names])] = row
    return list(kept.values())


def name_of(row: dict[str, Any]) -> str:
    """Return the room or bench that a row is of."""
    return str(row.get("room") or row["bench"])


def command_of(row: dict[str, Any]) -> str:
    """Return the command that measures a row again."""
    if row.get("device", "cpu") != "cpu":
        return "python bench/gpu_step.py" if name_of(row) == "update_step" else "make gpu"
    return COMMANDS.get(name_of(row), "make bench ROOM=peers")


def stale(rows: Iterable[dict[str, Any]], root: Path = ROOT) -> list[Stale]:
    """List the rows whose code has changed since; NoHistory where that cannot be told."""
    return [Stale(row, why) for row in rows if (why := _why(row["commit"], name_of(row), root))]


@functools.cache
def _why(commit: str, name: str, root: Path) -> str:
    if name not in CODE:
        return f"bench/published.py does not say which code {name} times"
    if commit.endswith("-dirty") or commit == "unknown":
        return "measured on a tree with changes that no commit holds"
    untimed = {} if name in TIMES_ALL else UNTIMED
    changed = changed_files(commit, paths_of(name), root, untimed)
    return f"{', '.join(changed[:3])} changed since" if changed else ""


def paths_of(name: str) -> list[str]:
    """List the folders of the code that a room's or bench's rows time."""
    folders = [part if "/" in part else f"rrgkern/{part}" for part in CODE[name]]
    return folders + [f"csrc/{part}" for part in CODE[name] if "/" not in part]


def changed_files(
    commit: str,
    paths: Sequence[str],
    root: Path = ROOT,
    untimed: Mapping[str, tuple[str, ...]] | None = None,
) -> list[str]:
    """List the files of code below `paths` that differ from those of `commit`.

    Args:
        untimed: functions that may differ, by their file; () for a file that may differ.
    """
    try:
        _git(root, "rev-parse", "--verify", "--quiet", f"{commit}^{{commit}}")
    except (OSError, subprocess.CalledProcessError) as error:
        raise NoHistory(f"no history of commit {commit}: a shallow clone, or none") from error
    listed = _git(root, "diff", "--no-renames", "--name-only", "--relative", commit, "--", *paths)
    files = [
        file for file in listed.splitlines() if Path(file).suffix in (".py", ".h", ".cc", ".cu")
    ]
    untimed = untimed or {}
    return [
        file
        for file in files
        if untimed.get(file) != ()
        and _before(root, commit, file, untimed) != _now(root, file, untimed)
    ]


def _before(root: Path, commit: str, file: str, untimed: Mapping[str, tuple[str, ...]]) -> str:
    try:
        return code_of(_git(root, "show", f"{commit}:./{file}"), file, untimed.get(file, ()))
    except subprocess.CalledProcessError:
        return ""  # it is new


def _now(root: Path, file: str, untimed: Mapping[str, tuple[str, ...]]) -> str:
    path = root / file
    if not path.is_file():
        return ""
    return code_of(path.read_text(encoding="utf-8"), file, untimed.get(file, ()))


@functools.lru_cache(maxsize=1024)
def code_of(text: str, file: str, untimed: tuple[str, ...] = ()) -> str:
    """Take from a source what does not run: comments, docstrings, layout, plain annotations.

    Args:
        untimed: names of functions that are left out too.
    """
    if not file.endswith(".py"):
        return " ".join(_COMMENTS.sub(" ", text).split())
    tree = _without_refusals(ast.parse(text))
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            # a text alone does nothing, wherever it stands
            node.body = [  # type: ignore[attr-defined]
                x
                for x in body
                if not _is_text(x) and not (isinstance(x, ast.FunctionDef) and x.name in untimed)
            ]
    return ast.dump(_Untyped().visit(tree) if _POSTPONED in map(ast.dump, tree.body) else tree)


# What a refusal may ask, and still cost nothing: nobody reads a tensor for it.
_ASKED = ("isinstance", "functorch_level")


def _is_refusal(node: ast.AST) -> bool:
    """True for `if not isinstance(x, Kind): raise ...` and for such a question of a mode."""
    if not isinstance(node, ast.If) or node.orelse or len(node.body) != 1:
        return False
    asked = node.test
    if isinstance(asked, ast.UnaryOp) and isinstance(asked.op, ast.Not):
        asked = asked.operand
    elif isinstance(asked, ast.Compare) and ast.unparse(asked).endswith(" is not None"):
        asked = asked.left
    simple = isinstance(asked, ast.Call) and all(isinstance(x, ast.Name) for x in asked.args)
    return simple and isinstance(node.body[0], ast.Raise) and _called(asked) in _ASKED


def _without_refusals(tree: ast.Module) -> ast.Module:
    """Take refusals out, and names that only these needed out of imports."""
    inside: set[str] = set()
    for node in list(ast.walk(tree)):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            for refusal in filter(_is_refusal, body):
                inside |= _names(refusal)
            node.body = [x for x in body if not _is_refusal(x)]  # type: ignore[attr-defined]
    needless = inside - _names(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            node.names = [x for x in node.names if (x.asname or x.name) not in needless]
    return tree


def _names(tree: ast.AST) -> set[str]:
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}


_POSTPONED = ast.dump(ast.parse("from __future__ import annotations").body[0])


class _Untyped(ast.NodeTransformer):
    """Take types off functions and their variables, in a module that evaluates none.

    Those of a class make its fields, and an op's schema of them; those of a module's constants, and
    of a function with a decorator, Triton reads. They stay.
    """

    _in_function = False

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        if not all(_called(decorator) in _DECORATORS for decorator in node.decorator_list):
            return node
        node.returns = None
        for argument in ast.walk(node.args):
            if isinstance(argument, ast.arg):
                argument.annotation = None
        return self._inside(node, True)

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        return self._inside(node, False)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        if not self._in_function:
            return node
        if node.value is not None:
            return ast.Assign([node.target], node.value)
        node.annotation = ast.Constant(None)  # that there is one makes the name local
        return node

    def _inside(self, node: ast.AST, function: bool) -> ast.AST:
        before, self._in_function = self._in_function, function
        self.generic_visit(node)
        self._in_function = before
        return node


def _called(decorator: ast.expr) -> str:
    return ast.unparse(decorator.func if isinstance(decorator, ast.Call) else decorator)


def _is_text(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def _git(root: Path, *arguments: str) -> str:
    command = ["git", "-C", str(root), *arguments]
    return subprocess.check_output(command, text=True, stderr=subprocess.DEVNULL)


def kept_rows() -> list[dict[str, Any]]:
    """Read the rows that docs/performance.md draws as long as they are fresh."""
    results = ROOT / "bench" / "results"
    return [row for name in FILES for row in newest(results / f"{name}.jsonl")]


if __name__ == "__main__":
    found = stale(kept_rows())
    print("\n".join(map(str, found)) or "every row is as new as its code")
    sys.exit(bool(found))
