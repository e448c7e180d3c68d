"""Hold a report's findings against its reference's: right, differing, missed, invented.

With w the weight of a finding and a pair's value = affinity of its concepts * what differences of
attributes leave of it,

    right  = sum over pairs of w_reference * value
    differ = sum over pairs of w_reference * (over - value), over = w_report / w_reference in
             [1, `most overstated`], without a bound for a device called misplaced
    missed, false = sum of w over findings without a partner, times `denied` where the other denies
    said   = normal * (unspoken + (1 - unspoken) * weighted share of the reference's denials made)
    style  = (1 - repeated^2 / 2) / sqrt(max(1, words / (1.5 words_reference + 30)))
             0 if empty, or silent where the reference is not
    score  = style * (right + said) / (right + normal + differ + missed + false)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rrgclinical.cached import CAPACITY, Cached
from rrgclinical.common.arguments import check_pairs, check_reports
from rrgclinical.common.errors import UserError
from rrgclinical.rules.concepts import CONCEPTS
from rrgclinical.rules.cues import SEVERITIES, SIDES, ZONES
from rrgclinical.rules.details import CHANGES, TIPS
from rrgclinical.severity.reading import LEFT, RIGHT, WRONG_TIP, ReportReading, SidedFinding, read
from rrgclinical.severity.table import SUMMARY, Significance, full_weight, load_table, weight

_STEPS = {
    1: "severity one step over",
    2: "severity two steps over",
    -1: "severity one step under",
    -2: "severity two steps under",
}


Texts = Sequence[str]
Readings = Sequence[ReportReading] | None
Findings = list[SidedFinding]
Weights = list[float]


@dataclass(slots=True)
class SeverityJudgement:
    """A report beside its reference; `truth` and `got` are the findings of both.

    score in [0, 1]. right, differ, missed, false, normal, said, style: the parts of the formula.
    pairs: (place in truth, place in got, value, cost). lost, extra: (place, cost, denied).
    both: concepts that the report affirms and denies.
    """

    score: float
    right: float
    differ: float
    missed: float
    false: float
    normal: float
    said: float
    style: float
    truth: list[SidedFinding]
    got: list[SidedFinding]
    pairs: list[tuple[int, int, float, float]]
    lost: list[tuple[int, float, bool]]
    extra: list[tuple[int, float, bool]]
    both: list[int]

    def explain(self, table: Significance) -> dict[str, Any]:
        """Say in words what was right, missed and invented, which attribute differed, at what cost.

        JSON-able; costs are in weights of the table, parts as in the formula.
        """
        right, differs = [], []
        for i, j, value, cost in self.pairs:
            truth, got = self.truth[i], self.got[j]
            said = differences(truth, got)
            if truth.concept != got.concept:
                said = [f"said {CONCEPTS[got.concept].name}", *said]
            if not said and cost < 1e-9:
                right.append({"finding": truth.name(), "weight": _short(weight(truth, table))})
                continue
            differs.append(
                {"finding": truth.name(), "differs": said, "left": _short(value),
                 "cost": _short(cost)}
            )  # fmt: skip
        return {
            "score": _short(self.score),
            "right": right,
            "differs": differs,
            "missed": [_priced(self.truth[i], cost, no) for i, cost, no in self.lost],
            "invented": [_priced(self.got[j], cost, no) for j, cost, no in self.extra],
            "contradicted": [CONCEPTS[concept].name for concept in self.both],
            "denials": {"said": _short(self.said), "of": _short(self.normal)},
            "style": _short(self.style),
        }


def judge(
    report: ReportReading, reference: ReportReading, table: Significance, *, same: bool
) -> SeverityJudgement:
    """Judge a report; `same` says that its text is the reference's."""
    truth, got = _facing(reference, report), _facing(report, reference)
    weights = [weight(finding, table) for finding in truth]
    claimed = [weight(finding, table) for finding in got]
    factors, denied = table.factors, table.factors["denied"]
    pairs, right, differ = [], 0.0, 0.0
    open_truth, open_got = dict.fromkeys(range(len(truth))), dict.fromkeys(range(len(got)))
    for value, _, i, j in _candidates(truth, got, weights, claimed, table):
        if i not in open_truth or j not in open_got:
            continue
        del open_truth[i], open_got[j]
        base = full_weight(truth[i], table)
        over = max(1.0, full_weight(got[j], table) / base) if base > 0.0 else 1.0
        if got[j].tip != WRONG_TIP:
            over = min(factors["most overstated"], over)
        cost = weights[i] * (max(1.0, over) + value)
        pairs.append((i, j, -value, cost))
        right -= weights[i] * value
        differ += cost
    lost = [
        (i, weights[i] * (denied if no else 1.0), no)
        for i in open_truth
        for no in [denies(report, truth[i], table, reference)]
    ]
    extra = [
        (j, claimed[j] * (denied if no else 1.0), no)
        for j in open_got
        for no in [denies(reference, got[j], table, report)]
    ]
    concepts = {finding.concept for finding in got}
    both = [
        c for c, sides in ({} if concepts.isdisjoint(report.denied) else report.denied).items()
        if 0 in sides and c in concepts and c not in reference.denied
    ]  # fmt: skip
    missed = sum(cost for _, cost, _ in lost)
    false = sum(cost for _, cost, _ in extra)
    false += factors["affirmed and denied"] * sum(table.weight[c] for c in both)
    share = _share_denied(report, reference, concepts, table)
    if share is None:
        share = 1.0 if truth or same else 0.5
    said = table.normal * (table.unspoken + (1.0 - table.unspoken) * share)
    if share == 1.0:
        said = table.normal
    style = _style(report, reference)
    whole = right + table.normal + differ + missed + false
    score = min(1.0, style * (right + said) / whole) if whole > 0.0 else style
    return SeverityJudgement(
        score, right, differ, missed, false, table.normal, said, style,
        truth, got, pairs, lost, extra, both,
    )  # fmt: skip


def differences(truth: SidedFinding, got: SidedFinding) -> list[str]:
    """Name the attributes in which two findings differ, as "side right, not left"."""
    said = []
    if truth.side != got.side or truth.side_said != got.side_said:
        said.append(_versus("side", _side(got), _side(truth)))
    if truth.zones != got.zones:
        zones = [" and ".join(ZONES[z] for z in sorted(f.zones)) for f in (got, truth)]
        said.append(_versus("zone", *zones))
    if truth.severity != got.severity:
        said.append(_versus("severity", SEVERITIES[got.severity], SEVERITIES[truth.severity]))
    if truth.change != got.change:
        said.append(_versus("change", CHANGES[got.change], CHANGES[truth.change]))
    if truth.size != got.size:
        said.append(_versus("size", *(f"{f.size:g} mm" if f.size else "" for f in (got, truth))))
    if truth.tip != got.tip:
        said.append(_versus("tip", TIPS[got.tip], TIPS[truth.tip]))
    if truth.doubt != got.doubt:
        said.append("suspected, not stated" if got.doubt else "stated, not suspected")
    if truth.tension != got.tension:
        said.append("tension invented" if got.tension else "tension unsaid")
    if got.contradicted and not truth.contradicted:
        said.append("severity or change contradicted")
    return said


def _candidates(
    truth: Findings, got: Findings, weights: Weights, claimed: Weights, table: Significance
) -> list[tuple[float, float, int, int]]:
    """(-value, -lesser weight, places) of every pair with a share in common, best first."""
    affinity, pairings = table.affinity, []
    for i, want in enumerate(truth):
        for j, have in enumerate(got):
            common = affinity.get((want.concept, have.concept), 0.0)
            if common > 0.0:
                value = common if want == have else common * _agreement(want, have, table.left)
                pairings.append((-value, -min(weights[i], claimed[j]), i, j))
    pairings.sort()
    return pairings


def _agreement(want: SidedFinding, have: SidedFinding, left: Any) -> float:
    value = 1.0
    if want.side != have.side and want.side and have.side:
        value *= left["wrong side"]
    elif want.side != have.side or want.side_said != have.side_said:
        value *= left["side unsaid"]
    if want.zones != have.zones:
        unsaid = "other zone" if want.zones and have.zones else "zone unsaid"
        value *= left["zone overlaps" if want.zones & have.zones else unsaid]
    if want.severity != have.severity:
        step = _STEPS[have.severity - want.severity] if want.severity and have.severity else ""
        value *= left[step or "severity unsaid"]
    if want.change != have.change:
        apart = "change reversed" if abs(want.change - have.change) == 2 else "change beside"
        value *= left[apart if want.change and have.change else "change unsaid"]
    if want.size != have.size:
        value *= _size_left(want.size, have.size, left)
    if want.tip != have.tip:
        missing = "wrong tip unsaid" if WRONG_TIP in (want.tip, have.tip) else "tip unsaid"
        value *= left["tip wrong" if want.tip and have.tip else missing]
    if want.tension != have.tension:
        value *= left["tension"]
    if have.contradicted and not want.contradicted:
        value *= left["contradicted"]
    return value * left["certainty"] if want.doubt != have.doubt else value


def _size_left(want: float, have: float, left: Any) -> float:
    small, large = min(want, have), max(want, have)
    if not small:
        return left["size unsaid"]
    if large <= 1.25 * small:
        return 1.0
    return left["size off by a quarter" if large <= 2 * small else "size off by more than double"]


def _facing(own: ReportReading, other: ReportReading) -> list[SidedFinding]:
    """The findings; one without a side faces both where the other report names both."""
    sided: list[SidedFinding] = []
    for (concept, side), finding in own.present.items():
        if not side and (concept, LEFT) in other.present and (concept, RIGHT) in other.present:
            sided += [finding._replace(side=s, side_said=False, paired=True) for s in (LEFT, RIGHT)]
        else:
            sided.append(finding)
    return sided


def denies(
    reading: ReportReading, finding: SidedFinding, table: Significance, own: ReportReading
) -> bool:
    """Tell if a report denies a finding.

    It denies the finding itself, a wide term for it, or all that is acute. A wide denial that
    `own`, the finding's report, makes too is no contradiction.
    """
    concept, side = finding.concept, finding.side
    for other in table.wide[concept] & reading.denied.keys():
        if other == concept or other not in own.denied:
            sides = reading.denied[other]
            if not side or side in sides or 0 in sides:
                return True
    return False


def _share_denied(
    report: ReportReading, reference: ReportReading, affirmed: set[int], table: Significance
) -> float | None:
    """Weighted share of the reference's denials that the report makes; None where it has none."""
    true = {finding.concept for finding in reference.present.values()}
    total = made = 0.0
    for concept in reference.denied:
        own = table.weight[concept]
        total += own
        if concept in affirmed and concept not in true:
            continue
        if concept in report.denied:
            made += own
            continue
        best = 0.0
        for other in report.denied:
            wide = 0.5 if SUMMARY in (concept, other) else 0.0
            best = max(best, table.affinity.get((concept, other), wide))
        made += own * best
    return min(made / total, 1.0) if total > 0.0 else None


def _style(report: ReportReading, reference: ReportReading) -> float:
    if not report.words or (report.silent and report != reference):
        return 0.0
    again = max(0.0, report.repeated - reference.repeated)
    long = report.words / (1.5 * reference.words + 30.0)
    return (1.0 - 0.5 * again * again) * (long**-0.5 if long > 1.0 else 1.0)


def _priced(finding: SidedFinding, cost: float, denied: bool) -> dict[str, Any]:
    priced = {"finding": finding.name(), "cost": _short(cost)}
    return {**priced, "denied": True} if denied else priced


def _side(finding: SidedFinding) -> str:
    return SIDES[finding.side] if finding.side_said else ""


def _versus(name: str, got: str, truth: str) -> str:
    got, truth = ("" if word == "unsaid" else word for word in (got, truth))
    if not got:
        return f"{name} unsaid, {truth}"
    return f"{name} {got}, not {truth}" if truth else f"{name} {got}, unsaid there"


def _short(value: float) -> float:
    return round(value, 3)


class Severity:
    """The reward `severity` with one table; see `judge` for the formula.

    table: YAML file of tiers and costs, None the packaged one. context: weigh by the age and the
    question of each indication, as the table's `context` says. capacity: texts kept in memory
    beside the references. Raises UserError as `load_table`, and for a table without a context.
    """

    def __init__(
        self, table: str | None = None, *, context: bool = False, capacity: int = CAPACITY
    ) -> None:
        self.table = load_table(table)
        if not isinstance(context, bool):
            raise UserError(f"severity: context is {context!r}; wanted true or false")
        self.context = self.table.context() if context and self.table.context else None
        if context and self.context is None:
            raise UserError(f"{table}: context missing; copy the packaged table's, or leave it off")
        self._tables: dict[tuple[tuple[int, float], ...], Significance] = {(): self.table}
        self.results: Cached[ReportReading] = Cached(
            lambda texts: [read(text) for text in texts], capacity=capacity
        )

    def read(self, texts: Sequence[str], *, keep: bool = False) -> list[ReportReading]:
        """The reading of each text; those with `keep`, references, stay in memory."""
        return self.results(check_reports(texts, "texts"), keep=keep)

    def table_of(self, indication: str) -> Significance:
        """Return the table of an indication: itself where nothing is asked or expected."""
        factors = self.context.factors(indication) if self.context and indication else ()
        if factors not in self._tables:
            self._tables[factors] = self.table.times(factors)
        return self._tables[factors]

    def judge(
        self, reports: Texts, references: Texts, readings: Readings = None, indications: Texts = ()
    ) -> list[SeverityJudgement]:
        """Judge each report against its reference; `readings` are the references', if read.

        indications: of the studies, for a reader with `context`.

        Raises TypeError for what is no list of str, ValueError where they differ in number.
        """
        return [*self.each(reports, references, readings, indications)]

    def each(
        self, reports: Texts, references: Texts, readings: Readings = None, indications: Texts = ()
    ) -> Iterator[SeverityJudgement]:
        """Yield what `judge` returns, for callers that keep none of it."""
        reports, references = check_pairs(reports, references)
        truth = readings or self.read(references, keep=True)
        contexts = indications or [""] * len(truth)
        rows = zip(self.read(reports), truth, reports, references, contexts, strict=True)
        for got, want, report, reference, indication in rows:
            # texts are compared only where nothing is read in the reference
            empty = not want.present and not want.denied
            same = empty and report.split() == reference.split()
            yield judge(got, want, self.table_of(indication), same=same)


def in_words(note: Mapping[str, Any]) -> str:
    """Write a note of `SeverityJudgement.explain` as a line, costs included."""
    parts = [f"severity {note['score']:.3f}"]
    right = [one["finding"] for one in note["right"]]
    parts += [f"right: {', '.join(right)}"] if right else []
    differs = [
        f"{one['finding']} ({'; '.join(one['differs'] or ['weight'])}, costs {one['cost']:g})"
        for one in note["differs"]
    ]
    parts += [f"differs: {', '.join(differs)}"] if differs else []
    for key in ("missed", "invented"):
        listed = [
            f"{one['finding']} (costs {one['cost']:g}{', denied' if one.get('denied') else ''})"
            for one in note[key]
        ]
        parts += [f"{key}: {', '.join(listed)}"] if listed else []
    if note["contradicted"]:
        parts.append(f"affirmed and denied: {', '.join(note['contradicted'])}")
    denials = note["denials"]
    parts.append(f"denials {denials['said']:g} of {denials['of']:g}")
    if note["style"] < 1:
        parts.append(f"length and repetition leave {note['style']:g}")
    return "; ".join(parts)
