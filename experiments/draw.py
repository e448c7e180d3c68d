"""Draw the first page's pictures from a finished run.

Use: `python -m experiments.draw RUN`. `case.svg` is a study with its reference and the systems'
reports, and an edit; `step.svg` how a training step goes, with the rooms that compute it and the
run's own seconds. With `--screens` the sections of the run's report page become the pictures of the
gallery.
"""

from __future__ import annotations

import argparse
import base64
import io
import shutil
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path

from PIL import Image

from rrgclinical import build_extractor
from rrgclinical.common.errors import UserError
from rrgclinical.common.files import atomic_write
from rrgreport import EditSample, RunSummary, Sample, mark_reports, read_samples
from rrgreport.cases import Case, kept_cases
from rrgreport.names import RULES
from rrgreport.redline import ADDED, KEPT, REMOVED, redline
from rrgreport.run_files import RunFiles
from rrgreport.samples import png

WIDTH = 1000
PICTURE = 230
LINE = 19
CHARACTER = 6.9
"""Pixels of a line, and of a wide character of the text's 13.5 pixels."""
INK, PALE = "#1d2b2a", "#5d6d6b"
COLOURS = {
    "correct": "#0b6e4f",
    "partly": "#9a6700",
    "spurious": "#b42318",
    "neutral": INK,
    KEPT: INK,
    REMOVED: "#b42318",
    ADDED: "#0b6e4f",
}
OWNERS = {"yours": "#fde9c8", "rrgtrain": "#d3ece8", "rrgkern": "#dcdcf5"}
# Of each station of a step: what a user may bring, the trainer's room, and the library's.
STATIONS = (
    ("study", "data.source", "rrgdata", ""),
    ("prompt", "", "rrgpolicy", ""),
    ("sample", "", "rrgpolicy", ""),
    ("edit", "algorithm", "algorithms/", "edit_plan entity_match"),
    ("reward", "reward", "rewards/", "mccs"),
    ("advantage", "", "algorithms/", "advantages token_weights"),
    ("forward", "", "rrgpolicy", "shared_prefix logps"),
    ("loss", "recipe", "train/", "policy_loss preference_loss"),
)
SECTIONS = ("Results", "Training", "Studies", "Edits")
"""Sections of a report page that the gallery shows."""
SHADES = ("#8fc7be", "#f3c77c", "#e9a6a0", "#a9a9e2")
PHASES = {"rollout": "sampling", "edit": "edits", "reward": "rewards", "update": "update"}
Run = tuple[str, str]
"""A piece of text and its kind, a key of COLOURS."""


def main(words: Sequence[str] | None = None) -> None:
    """Draw the pictures of the run that the command line names."""
    parser = argparse.ArgumentParser(prog="python -m experiments.draw", description=__doc__)
    parser.add_argument("run", help="directory of a finished run of a demo")
    parser.add_argument("--out", type=Path, default=Path("docs/img"), help="directory (docs/img)")
    parser.add_argument("--screens", action="store_true", help="photograph report.html too")
    options = parser.parse_args(words)
    run = RunFiles.open(options.run)
    summary = RunSummary.load(run.summary)
    drawn = {"case.svg": case_svg(run, summary), "step.svg": step_svg(summary)}
    options.out.mkdir(parents=True, exist_ok=True)
    for name, text in drawn.items():
        atomic_write(options.out / name, text)
        print(options.out / name)
    if options.screens:
        photograph(run.report.resolve(), options.out)


def photograph(page: Path, out: Path) -> None:
    """Save the sections of a report page as pictures, with the Chromium that is installed."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"))
        tab = browser.new_page(viewport={"width": 1000, "height": 720})
        tab.goto(page.as_uri())
        for name in SECTIONS:
            tab.locator("h2", has_text=name).evaluate("e => e.scrollIntoView()")
            path = out / f"report-{name.lower()}.jpg"
            tab.screenshot(path=path, type="jpeg", quality=50)
            print(path)
        browser.close()


def case_svg(run: RunFiles, summary: RunSummary) -> str:
    """Draw the study whose label errors fell most, and an edit; UserError without images."""
    samples = read_samples(run.samples)
    systems = list(summary.systems)
    studies = [s for s in samples if isinstance(s, Sample) and s.images]
    if not studies or len(systems) < 2:
        raise UserError(
            f"{run.path} kept no study with an image and two systems; run rrgtrain demo"
        )
    pictured = {study.id for study in studies}
    cases = [c for c in kept_cases(run, studies, systems)[0] if c.sample.id in pictured]
    case = max(cases, key=lambda case: _fall(case, systems))
    sample, last = case.sample, systems[-1]
    body = [_image(sample), _text(20, 34, _title(sample, last), size=15, bold=True)]
    columns = [("reference", [(sample.reference, "neutral")], "")]
    for name in systems[-2:]:
        columns.append((name, _marked(sample, name), _errors(case, name)))
    bottom, left, wide = 60.0 + PICTURE, PICTURE + 45.0, (WIDTH - PICTURE - 65) / 3
    for place, (head, pieces, errors) in enumerate(columns):
        x = left + place * wide
        body.append(_text(x, 72, head, bold=True))
        lines, end = _paragraph(x, 96, pieces, wide - 18)
        body += [lines, _text(x, end + 6, errors, fill=PALE, size=12)]
        bottom = max(bottom, end + 14)
    body.append(_key(20, bottom + 22))
    bottom += 44
    edits = [s for s in samples if isinstance(s, EditSample)]
    if edits:
        drawn, bottom = _edit(max(edits, key=_worth), bottom)
        body += drawn
    return _svg(bottom + 14, "A phantom study: reference and generated reports", body)


def _fall(case: Case, systems: Sequence[str]) -> tuple[int, int]:
    before, after = (case.errors(name) for name in systems[-2:])
    fallen = before.count - after.count if before and after else 0
    return fallen, len(case.present())


def _title(sample: Sample, last: str) -> str:
    return f"{sample.id}, where {last} gained most: a phantom, no clinical result"


def _marked(sample: Sample, system: str) -> list[Run]:
    text = sample.outputs[system]
    (marked,) = mark_reports([text], [sample.reference], build_extractor("rules"))
    return marked.pieces or [("(an empty report)", "neutral")]


def _errors(case: Case, system: str) -> str:
    errors = case.errors(system)
    if errors is None:
        return ""
    return f"findings: {len(errors.missed)} missed, {len(errors.false)} false"


def _worth(edit: EditSample) -> tuple[bool, bool, int]:
    """Prefer an edit that replaces, that gained, that is short."""
    replaces = any(removed and added for _, removed, added in edit.steps)
    gained = (edit.reward_after or 0) > (edit.reward_before or 0)
    return replaces and "\ufffd" not in edit.before, gained, -len(edit.before + edit.after)


def _edit(edit: EditSample, top: float) -> tuple[list[str], float]:
    head = (
        "An edit while training: EditGRPO mends a sampled report where the reference contradicts it"
    )
    if edit.reward_before is not None and edit.reward_after is not None:
        head += f"; reward {edit.reward_before:.2f} → {edit.reward_after:.2f}"
    pieces = [
        (f"{p.text} ({p.rule}) " if p.rule and p.kind == ADDED else f"{p.text} ", p.kind)
        for p in redline(edit.before, edit.after, edit.steps)
    ]
    rule = f'<path d="M20 {top:g}H{WIDTH - 20}" stroke="#d5dedc"/>'
    drawn = [rule, _text(20, top + 26, head, bold=True)]
    lines, end = _paragraph(20, top + 50, pieces, WIDTH - 40)
    reference, end = _paragraph(20, end + 4, [(f"Reference: {edit.reference}", KEPT)], WIDTH - 40)
    used = dict.fromkeys(rule for rule, _, _ in edit.steps)
    rules = "; ".join(f"{rule}: {RULES.get(rule, rule)}" for rule in used)
    return [*drawn, lines, reference, _text(20, end, f"Rule {rules}", fill=PALE, size=12)], end + 8


def step_svg(summary: RunSummary) -> str:
    """Draw the stations of a step, who owns each, and where the run's seconds went."""
    wide, gap = 110, 80 / 7
    rows = (("yours", 1, 58), ("rrgtrain", 2, 128), ("rrgkern", 3, 198))
    body = [_text(20, 34, "A training step", size=15, bold=True)]
    for x, owner in zip((640.0, 750.0, 870.0), OWNERS, strict=True):
        body += [_box(x, 20, 16, 16, owner), _text(x + 22, 33, owner)]
    for place, station in enumerate(STATIONS):
        x = 20.0 + place * (wide + gap)
        for owner, part, y in rows:
            names = station[part].split()
            if not names:
                continue
            if owner == "rrgkern" or (owner == "rrgtrain" and station[1]):
                body.append(f'<path d="M{x + wide / 2:g} {y - 18}v18" stroke="{PALE}"/>')
            body.append(_box(x, y, wide, 52, owner))
            lines = [station[0], *names] if owner == "rrgtrain" else names
            first = y + 30 - 8.5 * (len(lines) - 1)
            for line, name in enumerate(lines):
                body.append(
                    _text(
                        *(x + wide / 2, first + 17 * line, name),
                        middle=True,
                        bold=owner == "rrgtrain" and line == 0,
                        size=12.5,
                    )
                )
        if place:
            body.append(f'<path d="M{x - gap:.1f} 154h{gap:.1f}" stroke="{INK}" stroke-width="2"/>')
    bars, bottom = _seconds(summary, 282)
    return _svg(
        bottom, "The stations of a training step and the rooms that compute them", body + bars
    )


def _seconds(summary: RunSummary, top: float) -> tuple[list[str], float]:
    name, system = list(summary.systems.items())[-1]
    spent = {k: system.phases[k] for k in PHASES if system.phases.get(k, 0) > 0}
    if not spent:
        return [], top
    total, x, y = sum(spent.values()), 20.0, top + 12
    drawn = [
        _text(20, top, f"Where {name}'s steps spent their time on phantoms, on a CPU", fill=PALE)
    ]
    for shade, (key, seconds) in zip(SHADES, spent.items(), strict=False):
        wide = (WIDTH - 40) * seconds / total
        drawn.append(f'<path d="M{x:.1f} {y}h{wide:.1f}v22h-{wide:.1f}z" fill="{shade}"/>')
        label = f"{PHASES[key]} {seconds / total:.0%}"
        if wide > CHARACTER * len(label):
            drawn.append(_text(x + wide / 2, y + 16, label, middle=True, size=12))
        x += wide
    return drawn, y + 40


def _image(sample: Sample) -> str:
    picture = Image.open(io.BytesIO(png(sample.images[0]))).convert("L")
    picture.thumbnail((2 * PICTURE, 2 * PICTURE))
    buffer = io.BytesIO()
    picture.save(buffer, format="JPEG", quality=60, optimize=True)
    uri = "data:image/jpeg;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")
    place = f'x="20" y="58" width="{PICTURE}" height="{PICTURE}"'
    return f'<image {place} href="{uri}"/>'


def _key(x: float, y: float) -> str:
    runs = [
        ("Sentences, by their entities: ", "neutral"),
        ("the reference says so; ", "correct"),
        ("it says part of it; ", "partly"),
        ("it does not. ", "spurious"),
    ]
    return _line(x, y, runs)


def _paragraph(x: float, y: float, pieces: Iterable[Run], wide: float) -> tuple[str, float]:
    """Draw pieces as lines of at most `wide` pixels; return the drawing and where it ends."""
    lines: list[list[Run]] = [[]]
    used, room = 0, int(wide / CHARACTER)
    for text, kind in pieces:
        for word in text.split():
            if used + len(word) > room and lines[-1]:
                lines.append([])
                used = 0
            lines[-1].append((f"{word} ", kind))
            used += len(word) + 1
    drawn = [_line(x, y + LINE * number, line) for number, line in enumerate(lines)]
    return "\n".join(drawn), y + LINE * len(lines)


def _line(x: float, y: float, runs: Iterable[Run]) -> str:
    joined: list[Run] = []
    for text, kind in runs:
        if joined and joined[-1][1] == kind:
            joined[-1] = (joined[-1][0] + text, kind)
        else:
            joined.append((text, kind))
    spans = "".join(
        f'<tspan fill="{COLOURS[kind]}"{_STRUCK if kind == REMOVED else ""}>{_safe(text)}</tspan>'
        for text, kind in joined
    )
    return f'<text x="{x:g}" y="{y:g}" xml:space="preserve">{spans}</text>'


_STRUCK = ' text-decoration="line-through"'


def _text(
    x: float, y: float, text: str, *, fill: str = INK, size: float = 13.5, **style: bool
) -> str:
    bold = ' font-weight="bold"' if style.get("bold") else ""
    middle = ' text-anchor="middle"' if style.get("middle") else ""
    return (
        f'<text x="{x:g}" y="{y:g}" fill="{fill}" font-size="{size:g}"{bold}{middle}>'
        f"{_safe(text)}</text>"
    )


def _box(x: float, y: float, wide: float, high: float, owner: str) -> str:
    place = f'x="{x:g}" y="{y:g}" width="{wide:g}" height="{high:g}"'
    return f'<rect {place} rx="4" fill="{OWNERS[owner]}" stroke="#8aa09d"/>'


def _safe(text: str) -> str:
    """Escape text for XML, which has no control characters."""
    return escape("".join(c for c in text if c.isprintable()))


def _svg(high: float, title: str, body: Iterable[str]) -> str:
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {high:g}" role="img" '
            'font-family="Helvetica, Arial, sans-serif" font-size="13.5">',
            f"<title>{_safe(title)}</title>",
            f'<rect width="{WIDTH}" height="{high:g}" fill="#ffffff"/>',
            *filter(None, body),
            "</svg>",
            "",
        ]
    )


if __name__ == "__main__":
    main()
