"""README and docs: every block runs, every link leads somewhere, every quoted error is real."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import rrgclinical
import rrgkern
from tests.browser import CHROMIUM, QUIET
from tests.docs.blocks import NOT_RUN, ROOT, blocks_of, pages, violations
from tests.house.tree import parse
from tests.rrgtrain.runs import Done, command

needs_mkdocs = pytest.mark.skipif(
    find_spec("material") is None, reason="no MkDocs Material: pip install '.[docs]'"
)


def run(*of_pages: Path, cwd: Path) -> Done:
    """Run the blocks of pages in a process of their own, since they change its settings."""
    return command(*map(str, of_pages), cwd=cwd, main="tests.docs.run")


def planted(tmp_path: Path, text: str) -> Path:
    page = tmp_path / "page.md"
    page.write_text(text)
    return page


def test_blocks_are_of_known_commands_and_settings() -> None:
    wrong = list(violations(pages()))
    assert not wrong, "\n" + "\n".join(wrong)


@pytest.mark.slow
def test_every_block_runs(tmp_path: Path) -> None:
    done = run(*pages(), cwd=tmp_path)
    assert done.status == 0, done.out[-6000:] + done.err[-2000:]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "```bash\nrrgtrain rl editgrpo rl.grup=4 --from A --out B\n```\n",
            "did you mean rl.group",
        ),
        ("```bash no-run\nrrgtrain eval sft evil.limit=2 --from A --out B\n```\n", "eval.limit"),
        ("```bash\nmake cake\n```\n", "make cake is no target"),
        ("```bash\npip install '.[cake]'\n```\n", "cake is no extra"),
        ("```bash\nrm -rf /\n```\n", "a command that nothing checks"),
        ("```yaml\nrl:\n  stepz: 3\n```\n", "did you mean rl.steps"),
        ("```python\nfrom rrgkern import polixy_loss\n```\n", "rrgkern has no polixy_loss"),
        ("```\nrrgtrain demo\n```\n", "wanted one of bash"),
        ("```bash no-run\nmake gpu\n```\n" * (NOT_RUN + 1), "11 blocks carry no-run, at most 10"),
        ("Say `rrgtrain rl ./mine.yaml`.", "required: --from, --out"),
        ("Say\n`rrgtrain eval sft --from A --out B\n--owt C`.", "page.md:2: `rrgtrain eval"),
        ("`python -m experiments.human_codes --dta DIR`", "--dta is no option of human_codes.py"),
        ("`prepare(codec, studies)` is called", "prepare is called with context"),
        ("`rrgpolicy.model.shared_prefix_logps(prompts)`", "is called with model, prompts"),
    ],
)
def test_what_is_planted_is_found(text: str, message: str, tmp_path: Path) -> None:
    wrong = list(violations([planted(tmp_path, text)]))
    assert any(message in line for line in wrong), wrong


def test_what_fails_when_it_runs_is_found(tmp_path: Path) -> None:
    text = (
        "```python\nx = 1\n```\n```python\nassert x == 1\nprint(F.pad(x))\n```\n"
        "```python no-run\n1 / 0\n```\n```bash\nrrgtrain report nowhere\n```\n"
    )
    done = run(planted(tmp_path, text), cwd=tmp_path)
    lines = [line for line in done.out.splitlines() if line.startswith("page.md:")]
    assert done.status == 1 and len(lines) == 2, done.out
    assert lines[0] == "page.md:4: NameError: name 'F' is not defined"
    assert lines[1].startswith("page.md:11: RuntimeError: rrgtrain report nowhere: exit status 2")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site of this tree."""
    folder = tmp_path_factory.mktemp("docs") / "site"
    command = [sys.executable, "-m", "mkdocs", "build", "--site-dir", str(folder)]
    quiet = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=quiet, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


@needs_mkdocs
def test_the_site_is_built(site: Path) -> None:
    built = {
        page.relative_to(site).as_posix(): page.read_text(encoding="utf-8")
        for page in site.rglob("*.html")
    }
    assert len(built) > 40 and "notes/rrgkern-mccs.html" in built
    asked = {
        f"{name}: {url}"
        for name, text in built.items()
        for url in re.findall(
            r'<(?:script|link|img|iframe)[^>]*?(?:src|href)="(https?:[^"]+)"', text
        )
    }
    assert not asked, "a page asks a network"
    # the logo led to the listing of the folder where a page was opened from the disk
    assert '<a href="index.html" title="rrgkern"' in built["quick-start.html"]
    assert "\\(" not in built["systems/orapo.html"] and "<math" in built["systems/orapo.html"]
    assert "no-run" not in built["quick-start.html"]
    settings = built["settings.html"]
    assert "rl.aggregation" in settings and "reward.fact_beta" in settings
    # the rows of the benches are drawn, or what to run for them, not their places
    performance = built["performance.html"]
    assert "rows:" not in performance and "update_step" not in performance
    assert (
        performance.count("<tr>") > 40
        or "make bench ROOM=peers</code> measures them" in performance
    )
    index = (site / "search" / "search_index.js").read_text(encoding="utf-8")
    assert "zero_variance_share" in index
    entries = json.loads(index[index.index("{") : index.rindex("}") + 1])["docs"]
    boost = {entry["location"]: entry.get("boost", 1) for entry in entries}
    assert boost["quick-start.html"] == 2 and boost["notes/rrgkern-mccs.html"] == 0.5
    assert "notes/CHANGELOG.html" in built and "notes/CHANGELOG.html" not in boost
    # a setting names the notes of its module by a link
    assert 'href="notes/rrgkern-edit_plan.html"' in settings and "/README.md" not in settings
    # of a loader, the page of layouts shows the text and no name of the code
    assert "rrgdata.sources.own_table" not in re.sub("<[^>]+>", "", built["data.html"])


# Blocks, tables and equations that are cut at 1,280 pixels, and a page that is wider.
_CUT = """() => {
    const boxes = "pre > code, table, .md-typeset__table, math[display=block]";
    const cut = [...document.querySelectorAll(boxes)].filter(e => e.scrollWidth > e.clientWidth + 1
        || e.matches("math") && e.scrollHeight > e.clientHeight + 1).map(e => e.textContent.trim());
    return document.documentElement.scrollWidth > 1280 ? [...cut, "the page"] : cut;
}"""


@needs_mkdocs
def test_nothing_is_cut_on_a_laptop(site: Path, tmp_path: Path) -> None:
    sync_api = pytest.importorskip(
        "playwright.sync_api", reason="no playwright: pip install -c constraints.txt -e '.[test]'"
    )
    if not CHROMIUM.exists():
        pytest.skip(f"no {CHROMIUM}: apt-get install chromium")
    pages = sorted(site.rglob("*.html"))
    wide = '<div class="md-content"><table><td style="white-space:nowrap">' + "wide " * 900
    (tmp_path / "wide.html").write_text(wide)
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=QUIET)
        tab = browser.new_page(viewport={"width": 1280, "height": 800})
        cut = {}
        for page in [tmp_path / "wide.html", *pages]:
            tab.goto(page.as_uri())
            cut[page.name] = [text[:60] for text in tab.evaluate(_CUT)]
        browser.close()
    assert cut.pop("wide.html"), "the planted page is found"
    assert not {name: texts for name, texts in cut.items() if texts}


def test_the_reference_names_every_public_function() -> None:
    for package in (rrgkern, rrgclinical):
        page = (ROOT / "docs" / "api" / f"{package.__name__}.md").read_text(encoding="utf-8")
        named = set(re.findall(r"^::: [\w.]+\.(\w+)$|`(\w+)`", page, re.MULTILINE))
        assert set(package.__all__) <= {name for pair in named for name in pair}, package


def error_texts() -> list[str]:
    """List the string literals of the packages, with \\0 for each value that is filled in."""
    texts = []
    for folder in ("rrgkern", "python"):
        for path in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.JoinedStr):
                    parts = [
                        str(v.value) if isinstance(v, ast.Constant) else "\0" for v in node.values
                    ]
                    texts.append("".join(parts))
                elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                    texts.append(node.value)
    return texts


def unreal(page: Path) -> list[str]:
    """List the errors that a page quotes and no source has; … stands for what is filled in."""
    texts = error_texts()
    quoted = [
        line for b in blocks_of(page) if b.flag == "error" for line in b.text.splitlines() if line
    ]
    assert quoted, page
    missing = []
    for line in quoted:
        pattern = re.compile(".*".join(map(re.escape, re.split(r" ?… ?", line))), re.DOTALL)
        if len(line.replace("…", "")) < 15 or not any(map(pattern.search, texts)):
            missing.append(line)
    return missing


def test_quoted_errors_stand_in_the_source(tmp_path: Path) -> None:
    assert unreal(ROOT / "docs" / "troubleshooting.md") == []
    page = planted(tmp_path, "```text error\nthe moon is made of … cheese\n```\n")
    assert unreal(page) == ["the moon is made of … cheese"]


# README is short and shows a case; the losses in twelve lines run as they stand.
README = Path(__file__).parents[1] / "README.md"
OWN_LOOP = ROOT / "docs" / "own-loop.md"


AFTERWARDS = """
with torch.no_grad():
    head.weight -= head.weight.grad / head.weight.grad.norm()
moved = linear_token_logps(hidden, head.weight, targets).logps - logps
print(*(m.mean().item() for m in moved.split(offsets.diff().tolist())))
"""


def test_the_first_losses_of_a_loop_run_as_they_stand() -> None:
    code, *_ = re.findall(
        r"^```python\n(.*?)^```", OWN_LOOP.read_text("utf-8"), re.DOTALL | re.MULTILINE
    )
    assert len([line for line in code.splitlines() if line]) <= 12
    # as a user runs it: without Triton's interpreter
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    run = {"env": environment, "capture_output": True, "text": True, "cwd": README.parent}
    seeded = "import torch; torch.manual_seed(0)\n" + code + AFTERWARDS
    done = subprocess.run([sys.executable, "-c", seeded], check=False, **run)
    assert done.returncode == 0, done.stderr
    moved = list(map(float, done.stdout.split()))
    assert moved[0] > 0 > moved[2], "the head moves to the report with most reward of its prompt"
    assert min(moved[4], moved[5]) > 0 > moved[3]


def test_the_first_page_is_short() -> None:
    assert len(README.read_text("utf-8").split()) <= 750


def test_the_first_screens_show_a_case_the_installation_and_the_data_flow() -> None:
    page = README.read_text("utf-8")
    screens = "\n".join(page.splitlines()[:50])
    for words in ("pip install", "make demo", "make test", "--small", "macOS and Windows"):
        assert words in screens
    assert "docs/img/case.svg" in "\n".join(page.splitlines()[:8])
    assert "docs/img/step.svg" in "\n".join(page.splitlines()[:70])
    for picture in re.findall(r"!\[[^\]]{20,}\]\(([^)]+)\)", page):
        assert (README.parent / picture).is_file(), picture
