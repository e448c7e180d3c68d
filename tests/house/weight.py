"""Count what a tree weighs: lines of packages, csrc and tests, files, targets, pages, refusals.

A move from one package to another changes no total, and everything that is shipped is in it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.house import plan, tools, tree


def weights(root: Path) -> dict[str, float]:
    """Map what `plan.CAPS` caps to what the tree has of it."""
    everything = tree.modules(root)
    lines = {
        package: sum(module.lines for module in everything if module.package == package)
        for package in plan.PACKAGES
    }
    sources = tree.files(root, ".h", ".cc", ".cu")
    lines["csrc"] = sum(p.read_text().count("\n") for p in sources if _below(p, root, "csrc"))
    total = sum(lines.values())
    python = [module for module in everything if module.package in plan.PACKAGES]
    refused = sum(len(refusal_lines(module.tree)) for module in python)
    pages = (p for p in tree.files(root, ".md") if _below(p, root, "docs"))
    return {
        **lines,
        "packages and csrc": total,
        "tests": sum(module.lines for module in everything if module.package == "tests"),
        "files but findings": sum(not _below(p, root, "findings") for p in tree.files(root)),
        "Makefile targets": len(
            [n for n in tools.recipes(root) if re.fullmatch(r"[a-z][\w-]*", n)]
        ),
        "docs pages": len(list(pages)),
        "refusals, % of packages": round(100 * refused / max(1, total - lines["csrc"]), 1),
    }


def _below(path: Path, root: Path, folder: str) -> bool:
    return path.is_relative_to(root / folder)


def refusal_lines(module: ast.AST) -> set[int]:
    """Return the lines of raises, of checks that do nothing else, of handlers and of warnings."""
    lines: set[int] = set()
    for node in ast.walk(module):
        check = isinstance(node, ast.If) and all(isinstance(n, ast.Raise) for n in node.body)
        warns = isinstance(node, ast.Expr) and "warnings.warn" in ast.unparse(node.value)[:13]
        if isinstance(node, ast.Raise | ast.ExceptHandler) or warns:
            lines |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
        elif check:
            lines |= set(range(node.lineno, (node.body[-1].end_lineno or node.lineno) + 1))
    return lines


def report(root: Path) -> Iterator[str]:
    """Yield each weight of the tree beside its cap."""
    for name, value in weights(root).items():
        yield f"{name}: {value:,} (at most {plan.CAPS[name]:,})"


def weights_are_capped(root: Path) -> Iterator[str]:
    """Check that nothing weighs more than `plan.CAPS` allows; a cap only falls."""
    for name, weight in weights(root).items():
        if weight > plan.CAPS[name]:
            yield f"{name}: {weight:,}, at most {plan.CAPS[name]:,}; a line in, a line out"


def lowered(root: Path) -> Iterator[str]:
    """Write CAPS as they may be now, for the plan: none is raised."""
    yield "CAPS: dict[str, float] = {"
    for name, weight in weights(root).items():
        yield f'    "{name}": {min(weight, plan.CAPS.get(name, weight)):_},'
    yield f'    "before step 1": {plan.CAPS["before step 1"]:_},'
    yield "}"
