"""Finish the pages that MkDocs builds: equations, notes, settings, rows of the benches.

Equations are written as TeX and become MathML here, so that a page needs no script and no network.
The rooms' READMEs, which lie beside their code, become pages beneath `notes/`.
"""

from __future__ import annotations

import html
import json
import posixpath
import re
import sys
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
from mkdocs.structure.files import File, Files
from mkdocs.utils import get_relative_url

ROOT = Path(__file__).parents[1]
# The title that a note has in the index, by its file.
NOTES = {
    path.relative_to(ROOT).as_posix(): path.parent.relative_to(ROOT).as_posix()
    for top in ("rrgkern", "python", "experiments", "recipes", "bench")
    for path in sorted((ROOT / top).rglob("README.md"))
} | {"recipes/PAPERS.md": "every row of the papers' tables", "CHANGELOG.md": "changes"}

_FENCE = re.compile(r"^(\s*```\w+) (?:no-run|error)$", re.MULTILINE)
# A function of rrgkern is imported from the top, wherever it is defined; of a loader the page of
# data layouts shows the module's text alone.
_NAMED = re.compile(r"^(::: (rrgkern|rrgdata)\.\S+)$", re.MULTILINE)
_OPTIONS = {
    "rrgkern": "{show_root_full_path: false}",
    "rrgdata": "{members: false, show_root_heading: false, show_root_toc_entry: false}",
}
_MATH = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.DOTALL)
# The last column of each table.
_AGE = "commit, day, files changed since"
_ROWS = re.compile(r"<!-- rows: (\w+) -->")
_README = re.compile(r"`([\w/]+)/README\.md`")
_LINK = re.compile(r"\[([^\]]+)\]\(([^)#\s]+)(#[^)\s]*)?\)")


def note_page(source: str) -> str:
    """Return the page of a README beneath `notes/`."""
    name = source.removeprefix("python/").removesuffix("/README.md").removesuffix(".md")
    return f"notes/{name.replace('/', '-')}.md"


def on_files(files: Files, config: Any) -> Files:
    """Add the notes, their index and the settings to the pages."""
    for source in NOTES:
        text = _with_links(source, (ROOT / source).read_text(encoding="utf-8"))
        files.append(File.generated(config, note_page(source), content=text))
    listed = "\n".join(f"| [{title}]({note_page(path)}) |" for path, title in NOTES.items())
    index = (
        "# Notes by module\n\nEach module keeps its derivation, its bytes and how to bench it "
        f"beside its code.\n\n| module |\n|---|\n{listed}\n"
    )
    files.append(File.generated(config, "notes.md", content=index))
    files.append(File.generated(config, "settings.md", content=_settings()))
    return files


def _with_links(source: str, text: str) -> str:
    """Point links between notes at their pages; of other files of the tree the name stays."""

    def link(match: re.Match[str]) -> str:
        shown, target, anchor = match[1], match[2], match[3] or ""
        if "://" in target:
            return match[0]
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
        return f"[{shown}]({Path(note_page(path)).name}{anchor})" if path in NOTES else shown

    return _LINK.sub(link, text)


def _to_note(match: re.Match[str]) -> str:
    """Link the README that a setting names, where it has a page."""
    for top in ("", "python/", "python/rrgtrain/"):
        source = f"{top}{match[1]}/README.md"
        if source in NOTES:
            return f"[{NOTES[source]}]({note_page(source)})"
    return match[0]


def _settings() -> str:
    """Write every setting of a recipe as one table a section."""
    sys.path[:0] = [str(ROOT), str(ROOT / "python")]
    from rrgtrain.schema import Recipe
    from rrgtrain.schema.keys import settings

    lines = ["# Settings", "", "`rrgtrain keys` prints the same lines.", ""]
    section = None
    for setting in settings(Recipe):
        top = setting.key.partition(".")[0] if "." in setting.key else "the top level"
        if top != section:
            section = top
            lines += ["", f"## {top}", "", "| setting | default | allowed | meaning |"]
            lines.append("|---|---|---|---|")
        allowed = ", ".join(setting.choices) if setting.choices else setting.type
        bounds = (bound.replace(">=", "≥").replace("<=", "≤") for bound in setting.bounds)
        allowed = ", ".join([allowed, *bounds])
        default = json.dumps(setting.default)
        cells = (f"`{setting.key}`", f"`{default}`", allowed, setting.description)
        safe = (_README.sub(_to_note, c).replace("|", "\\|").replace("<", "&lt;") for c in cells)
        lines.append(f"| {' | '.join(safe)} |")
    return "\n".join(lines) + "\n"


def rows_of(name: str) -> list[dict[str, Any]]:
    """Read the rows of a table, the newest of each measurement, each with its age."""
    sys.path[:0] = [str(ROOT), str(ROOT / "python")]
    from bench.published import age, newest

    file, field = FILES[name]
    rows = newest(ROOT / "bench" / "results" / f"{file}.jsonl")
    return [row | {"age": _cell(age(row))} for row in rows if row.get(field)]


def _cell(age: Any) -> str:
    """Write an age for a column named _AGE."""
    return f"{age.commit}, {age.day}, {'?' if age.changed is None else age.changed}"


def update_step(rows: list[dict[str, Any]]) -> list[list[str]]:
    """Tabulate a whole update beside TRL's."""
    rows.sort(key=lambda row: (row["pixels"], row["members"]))
    return [["members", "prompt tokens", "time", "memory", _AGE]] + [
        [
            str(row["members"]),
            str(row["prompt_tokens"]),
            f"{row['update_ratio']:.1f}",
            f"{row['peak_ratio']:.2f}",
            row["age"],
        ]
        for row in rows
    ]


def peers(rows: list[dict[str, Any]]) -> list[list[str]]:
    """Tabulate the losses beside eager PyTorch and the peers."""
    rows.sort(key=lambda row: (row["room"], row["case"], row["p50_vs_eager"]))
    return [["module", "case", "provider", "time", "peak, MiB", _AGE]] + [
        [
            row["room"],
            row["case"].removesuffix(", forward+backward"),
            row["provider"],
            f"{row['p50_vs_eager']:.2f}",
            f"{row['peak_mib']:.0f}" if row.get("peak_mib") is not None else "-",
            row["age"],
        ]
        for row in rows
    ]


def clinical(rows: list[dict[str, Any]]) -> list[list[str]]:
    """Tabulate the clinical models beside the official packages."""
    return [["model", "reports", "computed by", "reports a second", "ratio", _AGE]] + [
        [
            row["model"],
            row["batch"],
            row["provider"],
            f"{row['reports_a_second']:.1f}",
            f"{row['ratio']:.1f}",
            row["age"],
        ]
        for row in rows
    ]


def gpu(rows: list[dict[str, Any]]) -> list[list[str]]:
    """Tabulate the losses on a GPU, in milliseconds."""
    rows.sort(key=lambda row: (row["room"], row["case"], row["p50_ms"]))
    return [["module", "case", "provider", "ms", "floor", "peak, MiB", "off", _AGE]] + [
        [
            row["room"],
            row["case"].removesuffix(", forward+backward"),
            row["provider"],
            f"{row['p50_ms']:.2f}",
            f"{row['floor_ms']:.1f}" if "floor_ms" in row else "-",
            f"{row['peak_mib']:.0f}",
            f"{row['difference']:.3f}" if "difference" in row else "-",
            row["age"],
        ]
        for row in rows
    ]


def gpu_step(rows: list[dict[str, Any]]) -> list[list[str]]:
    """Tabulate whole steps on a GPU beside what the plan said of them."""
    rows = [row for row in rows if "plan/peak_mib" in row]
    head = ["prompts", "reports of", "sampling, s", "edits, s", "rewards, s", "update, s"]
    return [[*head, "peak, GiB", _AGE]] + [
        [
            str(row["prompts"]),
            f"{row['tokens']} tokens",
            f"{row['seconds/rollout']:.1f} ({row['plan/seconds/sampling']:.1f})",
            f"{row['seconds/edit']:.2f} ({row['plan/seconds/edits']:.2f})",
            f"{row['seconds/reward']:.2f} ({row['plan/seconds/rewards']:.2f})",
            f"{row['seconds/update']:.1f} ({row['plan/seconds/update']:.1f})",
            f"{row['peak_mib'] / 1024:.1f} ({row['plan/peak_mib'] / 1024:.1f})",
            row["age"],
        ]
        for row in rows
    ]


TABLES = {
    **{"update_step": update_step, "peers": peers, "clinical": clinical},
    **{"gpu": gpu, "gpu_step": gpu_step},
}
_H100 = "nvidia-h100-80gb-hbm3"
# Of each table: the file of its rows, and a field that they have.
FILES = {
    "update_step": ("cpu-peers", "bench"),
    "peers": ("cpu-peers", "p50_vs_eager"),
    "clinical": ("cpu-clinical", "bench"),
    "gpu": (_H100, "p50_ms"),
    "gpu_step": (_H100, "seconds/update"),
}


def _drawn(match: re.Match[str]) -> str:
    head, *rows = TABLES[match[1]](rows_of(match[1]))
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _shown(match: re.Match[str]) -> str:
    return f"{match[1]}\n    options: {_OPTIONS[match[2]]}"


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Draw the rows of the benches; take words that are for the tests off the fences.

    The search prefers pages that are written for a reader to notes, and knows no changes.
    """
    source = page.file.src_uri
    if source == note_page("CHANGELOG.md"):
        page.meta["search"] = {"exclude": True}
    else:
        of_reference = source.startswith(("notes", "api/", "settings"))
        page.meta["search"] = {"boost": 0.5 if of_reference else 2}
    if page.file.src_uri in ("data.md", "api/rrgkern.md"):
        markdown = _NAMED.sub(_shown, markdown)
    return _FENCE.sub(r"\1", _ROWS.sub(_drawn, markdown))


def on_page_content(content: str, **_: Any) -> str:
    """Turn TeX into MathML."""

    def equation(match: re.Match[str]) -> str:
        display = "inline" if match[2] == "(" else "block"
        return convert(html.unescape(match[3]).strip(), display=display)

    return _MATH.sub(equation, content)


def on_post_page(output: str, page: Any, **_: Any) -> str:
    """Load the stand-in for a Worker from the site, where the theme would ask a network."""
    return output.replace("https://unpkg.com/iframe-worker/shim", _worker(page.url))


def on_post_template(output_content: str, template_name: str, **_: Any) -> str:
    """Do the same for the page of an unknown address."""
    return output_content.replace("https://unpkg.com/iframe-worker/shim", "/worker.js")


def _worker(url: str) -> str:
    return get_relative_url("worker.js", url)
