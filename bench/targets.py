"""Judge the fused losses on the rows of one run.

N = 8192 positions, V = 151,936, H = 2048, bf16, forward and backward; memory is the peak above the
inputs, gradients included. A target whose row is missing is unmeasured, which is not a pass.
Milliseconds are an H200's: another card's are printed and not judged, since the bytes that a loss
moves alone take it longer (an H100's memory is 0.7 times as fast). Memory and ratios hold on any.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

HEAD, LOGITS = "linear_policy_loss", "policy_loss_from_logits"
Row = dict[str, Any]
GB = 1e9 / 2**20  # in MiB
TIMED_ON = "h200"

DROP_MASKED_ROWS = ("trl-head", "cce-exact")
KEEP_MASKED_ROWS = ("liger-chunked", "liger-scaled-ce", "verl-head")


@dataclass(frozen=True)
class Target:
    """`provider` in `case` of `room` takes at most `ms`, and `mib` above its inputs.

    ms: on an H200.
    With `rivals` the figures are taken against the best of them: at least `faster` times as fast,
    at most `memory` times the peak.
    """

    text: str
    room: str
    case: str
    provider: str
    ms: float | None = None
    mib: float | None = None
    rivals: tuple[str, ...] = ()
    faster: float | None = None
    memory: float | None = None


def _case(kind: str, head: str | None = None) -> str:
    return f"{kind}, {head} head, forward+backward" if head else f"{kind}, forward+backward"


TARGETS = (
    Target("logits, in place", LOGITS, _case("dense"), "rrgkern in place", ms=1.5, mib=16),
    Target("frozen head", HEAD, _case("dense", "frozen"), "rrgkern", ms=16, mib=0.4 * GB),
    Target(
        "gradient in the forward",
        HEAD,
        _case("dense", "trainable"),
        "rrgkern forward",
        ms=25,
        mib=1.9 * GB,
    ),
    Target(
        "recompute, every row active",
        HEAD,
        _case("dense", "trainable"),
        "rrgkern recompute",
        ms=31,
        mib=0.9 * GB,
    ),
    Target(
        "recompute, 30 % of the rows active",
        HEAD,
        _case("sparse", "trainable"),
        "rrgkern recompute",
        ms=15,
        mib=0.9 * GB,
    ),
    Target(
        "recompute into .grad",
        HEAD,
        _case("sparse", "trainable"),
        "rrgkern into .grad",
        mib=0.3 * GB,
    ),
    *(
        Target(
            f"batch of the domain, {head} head, against {who}",
            HEAD,
            _case("domain", head),
            "rrgkern",
            rivals=rivals,
            faster=faster,
            memory=0.5,
        )
        for head, against_best in (("trainable", 1.7), ("frozen", 2.0))
        for who, rivals, faster in (
            ("exact rivals that drop masked rows", DROP_MASKED_ROWS, against_best),
            ("rivals that do not", KEEP_MASKED_ROWS, 3.0),
        )
    ),
)


@dataclass(frozen=True)
class Verdict:
    """A target, "pass", "fail" or "unmeasured", and the figures behind it."""

    target: Target
    state: str
    figures: str


def judge(rows: Sequence[Row], targets: Iterable[Target] = TARGETS) -> list[Verdict]:
    """The verdict on each target, from rows as `bench.harness` writes them on a GPU."""
    return [_judge(target, rows) for target in targets]


def _judge(target: Target, rows: Sequence[Row]) -> Verdict:
    found = {
        row["provider"]: row
        for row in rows
        if row["room"] == target.room and row["case"] == target.case and "p50_ms" in row
    }
    ours = found.get(target.provider)
    if ours is None:
        return Verdict(target, "unmeasured", f"no row of {target.provider!r}")
    rivals = [found[name] for name in target.rivals if name in found]
    if target.rivals and not rivals:
        return Verdict(target, "unmeasured", f"no row of {' or '.join(target.rivals)}")

    checks: list[tuple[bool | None, str]] = []  # None: shown, not judged
    if target.ms is not None:
        timed_here = TIMED_ON in ours["device"]
        text = f"{ours['p50_ms']:.2f} of {target.ms:g} ms" + ("" if timed_here else " (an H200's)")
        checks.append((ours["p50_ms"] <= target.ms if timed_here else None, text))
    if target.mib is not None:
        peak = ours["peak_mib"]
        checks.append((peak <= target.mib, f"{peak:.0f} of {target.mib:.0f} MiB"))
    if target.faster is not None:
        fastest = min(rivals, key=lambda row: row["p50_ms"])
        ratio = fastest["p50_ms"] / ours["p50_ms"]
        text = f"{ratio:.2f} of {target.faster:g} times as fast as {fastest['provider']}"
        checks.append((ratio >= target.faster, text))
    if target.memory is not None:
        leanest = min(rivals, key=lambda row: row["peak_mib"])
        share = ours["peak_mib"] / leanest["peak_mib"]
        text = f"{share:.2f} of {target.memory:g} times the memory of {leanest['provider']}"
        checks.append((share <= target.memory, text))
    judged = [passed for passed, _ in checks if passed is not None]
    state = ("pass" if all(judged) else "fail") if judged else "unmeasured"
    return Verdict(target, state, "; ".join(text for _, text in checks))


def table(verdicts: Sequence[Verdict]) -> str:
    """One line a target."""
    width = max(len(verdict.target.text) for verdict in verdicts)
    return "\n".join(
        f"{verdict.state:<10}  {verdict.target.text:<{width}}  {verdict.figures}"
        for verdict in verdicts
    )
