"""The claims as plain text: what is promised beforehand, and the tables afterwards."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len

from experiments.replicate.claims import MEASURES, Claim
from experiments.replicate.cost import clock, seconds_of
from experiments.replicate.jobs import JOBS, Task
from experiments.replicate.outcome import CheckOutcome, Outcome
from experiments.replicate.verdicts import NOT_REPRODUCED, OPEN, Estimate
from rrgreport import numbers

QUICK_NOTE = (
    "--quick: phantoms, policies and steps too few to learn anything. It shows the machinery and "
    "claims nothing."
)


def listing(claims: Sequence[Claim], tasks: Sequence[Task]) -> list[str]:
    """Every claim with its jobs, then every job with what it is estimated to take."""
    lines = []
    for claim in claims:
        lines += [f"{claim.name} ({claim.group}; {claim.paper}): {claim.says}"]
        lines += [f"    {', '.join(claim.jobs)}"]
    shown = {task.job.name: task for task in tasks}
    rows = [["job", "estimate", "command"]]
    rows += [[n, clock(seconds_of(t)), t.command] for n, t in shown.items() if n in JOBS]
    return [*lines, "", *aligned(rows, right=(1,))]


def spoken(outcome: Outcome) -> list[str]:
    """A claim, its verdict, table and checks; where it is not reproduced, what was tried."""
    claim = outcome.claim
    seeds = f"{len(outcome.seeds)} seed{'s' if len(outcome.seeds) > 1 else ''}"
    lines = [f"{claim.name} ({claim.paper}): {claim.says}", f"  {outcome.verdict}; {seeds}", ""]
    header = ["", *(MEASURES[m] for m in claim.measures)]
    rows = [header]
    for row in outcome.rows:
        rows.append([row.row.label, *(cell(row.values.get(m)) for m in claim.measures)])
    lines += [f"  {line}" for line in aligned(rows, right=range(1, len(header)))]
    lines += ["", *(f"  {check_line(check)}" for check in outcome.checks)]
    if outcome.verdict in (NOT_REPRODUCED, OPEN):
        tried = [f"{row.row.label}: {row.tried}" for row in outcome.rows if row.tried]
        lines += ["", "  tried", *(f"    {line}" for line in tried)]
        lines += [f"    {line}" for line in claim.differs]
    return lines


def cell(found: Estimate | None) -> str:
    """0.612 [0.580, 0.641], or a dash."""
    if found is None:
        return numbers.MISSING
    return f"{found.value:.3f} [{found.low:.3f}, {found.high:.3f}]"


def check_line(check: CheckOutcome) -> str:
    """The check, its difference with interval and seeds, and whether it holds."""
    found = check.found
    seeds = " ".join(f"{value:+.3f}" for value in found.seeds)
    return (
        f"{check.text} ({check.measure}): {found.value:+.3f} "
        f"[{found.low:+.3f}, {found.high:+.3f}]; seeds {seeds}: {check.outcome}"
    )


def aligned(rows: Sequence[Sequence[str]], right: Sequence[int] | range) -> list[str]:
    """Columns of equal width, those in `right` flush right."""
    widths = [max(cell_len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = []
        for i, (text, width) in enumerate(zip(row, widths, strict=True)):
            fill = " " * (width - cell_len(text))
            cells.append(fill + text if i in right else text + fill)
        lines.append("  ".join(cells).rstrip())
    return lines
