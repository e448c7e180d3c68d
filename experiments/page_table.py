"""Print a table of docs, write it into its page, or compare the two.

Each script of such a table takes `--write`, and `--check` with the packages that must have rows;
the rows of a package that is not installed stay as they are on the page, and are named.
"""

from __future__ import annotations

import ast
import importlib
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

DOCS = Path(__file__).parents[1] / "docs"
END = "<!-- end -->"

Cells = Sequence[str]


def installed(package: str) -> str:
    """Return the version of what a first cell names last; "" for our own."""
    name = package.split()[-1]
    return "" if name == "rrgkern" else metadata.version(name)


@dataclass(frozen=True)
class PageTable:
    """Holds the columns of a table, and what yields the rows of each package.

    script: module that has it, and writes its name on the page; page: file in docs/; packages: by
    the first cell of their rows; version: of such a package, which is written behind it.
    """

    script: str
    page: str
    columns: Cells
    packages: Mapping[str, Callable[[], Iterator[Cells]]]
    version: Callable[[str], str] = installed

    @property
    def head(self) -> list[str]:
        """The two lines above the rows."""
        return ["| " + _line(self.columns), "|" + "---|" * (len(self.columns) + 1)]

    def rows(self, needed: Collection[str] = ()) -> Iterator[str]:
        """Yield the rows in Markdown, of what is installed.

        needed: packages whose absence raises ModuleNotFoundError or PackageNotFoundError.
        """
        for package, rows_of in self.packages.items():
            try:
                version = self.version(package)
                made = list(rows_of())
            except (ModuleNotFoundError, metadata.PackageNotFoundError) as error:
                if {package, package.split()[-1]} & {*needed}:
                    raise
                print(f"{package}: its rows are not checked, {error}", file=sys.stderr)
                continue
            first = f"{package} {version}".rstrip()
            yield from (_line([first, *cells]) for cells in made)

    def main(self, arguments: list[str]) -> int:
        """Print the table; with `--check` say where the page differs from it, and return 1."""
        rows = list(self.rows(arguments))
        if not {"--check", "--write"} & {*arguments}:
            print("\n".join([*self.head, *rows]))
            return 0
        page = DOCS / self.page
        before, begin, behind = page.read_text().partition(
            f"<!-- written by python -m {self.script} -->"
        )
        section, end, after = behind.partition(END)
        of_page = section.strip().splitlines()
        written = [row for row in of_page if row not in self.head]
        made = {self._package(row) for row in rows}
        if "--write" in arguments:
            stay = [row for row in written if self._package(row) not in made]
            order = list(self.packages)
            lines = sorted([*rows, *stay], key=lambda row: order.index(self._package(row)))
            text = "\n".join([*self.head, *lines])
            page.write_text(f"{before}{begin}\n\n{text}\n\n{end}{after}")
            return 0
        written = [row for row in written if self._package(row) in made]
        odd = [f"not on {self.page}: {row}" for row in rows if row not in written]
        odd += [f"on {self.page} alone: {row}" for row in written if row not in rows]
        print("\n".join(odd) or "the page says the same")
        return int(bool(odd))

    def _package(self, row: str) -> str:
        first = row.split(" | ")[0].removeprefix("| ")
        return first if first in self.packages else first.rpartition(" ")[0]


def alone(name: str) -> ModuleType:
    """Import the module of a package without any `__init__` above it.

    Those of trainers ask for a GPU, or for engines that a loss does not need.
    """
    first, *rest = name.split(".")
    place, above = _folder_of(first), first
    for part in rest:
        if above not in sys.modules:
            module = ModuleType(above)
            module.__path__ = [str(place)]
            module.__spec__ = ModuleSpec(above, None, is_package=True)
            module.__spec__.submodule_search_locations = module.__path__
            sys.modules[above] = module
        place, above = place / part, f"{above}.{part}"
    return importlib.import_module(name)


class _Mocks(MetaPathFinder, Loader):
    """Finds a mock for each module of a package but some."""

    def __init__(self, package: str, but: Collection[str]) -> None:
        self.package, self.but = package, but

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        mocked = name.startswith(f"{self.package}.") and name not in self.but
        return ModuleSpec(name, self, is_package=True) if mocked else None

    def create_module(self, spec: ModuleSpec) -> Any:
        """Make a mock for a spec."""
        return MagicMock(name=spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Run nothing."""


def alone_among_mocks(name: str, *but: str) -> ModuleType:
    """Import a module alone, with mocks of the rest of its package.

    but: modules of the package that stay themselves. For files whose functions call none of the
    others, and whose imports ask for a GPU or for servers.
    """
    mocks = _Mocks(name.partition(".")[0], {name, *but})
    sys.meta_path.insert(0, mocks)
    try:
        return alone(name)
    finally:
        sys.meta_path.remove(mocks)


def methods_of(package: str, file: str, class_: str, names: Cells, **space: Any) -> SimpleNamespace:
    """Compile methods of a class, and the constants of its file, without the imports.

    For a trainer whose base classes are of releases that its losses do not need. The methods are
    functions of a `self` that the caller makes. space: what they take from the file's imports.
    """
    path = _folder_of(package) / file
    tree = ast.parse(path.read_text("utf-8"))
    (owner,) = (n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == class_)
    taken: list[ast.stmt] = [n for n in tree.body if isinstance(n, ast.Assign) and _literal(n)]
    taken += [n for n in owner.body if isinstance(n, ast.FunctionDef) and n.name in names]
    alone = ast.Module([*ast.parse("from __future__ import annotations").body, *taken], [])
    exec(compile(alone, str(path), "exec"), space)
    return SimpleNamespace(**space)


def _folder_of(package: str) -> Path:
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError(f"No module named {package!r}", name=package)
    return Path(spec.submodule_search_locations[0])


def _literal(assigned: ast.Assign) -> bool:
    parts = ast.walk(assigned.value)
    return all(isinstance(part, ast.Constant | ast.List | ast.Load) for part in parts)


def _line(cells: Cells) -> str:
    return f"| {' | '.join(cells)} |"
