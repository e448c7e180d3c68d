"""Numbers as the tables and figures print them."""

from __future__ import annotations

import math

from rrgclinical.metrics.registry import MetricDefinition, metric_of
from rrgreport.summary import Metric

MISSING = "–"


def value(number: float | None, name: MetricDefinition | None = None) -> str:
    """Format 0.612, 41 % for shares, 132.4 for large values, a dash for none."""
    if number is None:
        return MISSING
    if not math.isfinite(number):
        return {math.inf: "∞", -math.inf: "−∞"}.get(number, "not a number")
    if name is not None and name.percent:
        return f"{100 * number:.0f} %"
    digits = name.digits if name is not None else None
    return _signed(number, _digits(number) if digits is None else digits, plus="")


def interval(metric: Metric, name: MetricDefinition | None = None) -> str:
    """ "0.580 to 0.641", or nothing when there is no interval."""
    if metric.low is None or metric.high is None:
        return ""
    return f"{value(metric.low, name)} to {value(metric.high, name)}"


def change(before: Metric, after: Metric, name: MetricDefinition) -> str:
    """Signed difference with the digits its values are shown with; in points for shares."""
    difference = after.value - before.value
    if not math.isfinite(difference):
        return MISSING
    if name.percent:
        return _signed(100 * difference, 0)
    digits = min(_digits(before.value), _digits(after.value))
    return _signed(difference, digits if name.digits is None else name.digits)


def _digits(number: float) -> int:
    return 1 if abs(number) >= 10 else 3


def _signed(number: float, digits: int, plus: str = "+") -> str:
    text = f"{abs(number):.{digits}f}"
    if float(text) == 0:
        return text
    return f"{'−' if number < 0 else plus}{text}"


def duration(seconds: float | None) -> str:
    """8.4 s, 3 min 20 s, 2 h 05 min."""
    if seconds is None or not math.isfinite(seconds):
        return MISSING
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02} s"
    return f"{minutes // 60} h {minutes % 60:02} min"


def count(number: float) -> str:
    """1,234."""
    return f"{number:,.0f}" if math.isfinite(number) else value(number)


def metric_text(key: str, metric: Metric | None) -> str:
    """One table cell as plain text: "0.612 (0.580 to 0.641)"."""
    if metric is None:
        return MISSING
    name = metric_of(key)
    span = interval(metric, name)
    return value(metric.value, name) + (f" ({span})" if span else "")


def tick(number: float) -> str:
    """An axis label: 0.25, 1,500, 2e-5."""
    if number and not 1e-3 <= abs(number) < 1e6:
        mantissa, _, exponent = f"{number:.2g}".partition("e")
        text = f"{mantissa}e{int(exponent)}" if exponent else mantissa
    else:
        text = f"{number:,.0f}" if abs(number) >= 1000 else f"{number:g}"
    return text.replace("-", "−")
