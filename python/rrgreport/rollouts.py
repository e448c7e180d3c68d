"""Reports sampled at the last recorded step, as FactS read and judged them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rrgreport import numbers
from rrgreport.facts import FactsRead, read_facts
from rrgreport.run_files import read_record

SHOWN = 4


@dataclass(frozen=True)
class ScoredReport:
    """A sampled report of study `id`; `score` is FactS's, `reward` the total."""

    id: str
    step: int
    text: str
    score: str
    reward: str
    facts: FactsRead


def last_rollouts(steps: Path) -> list[ScoredReport]:
    """Choose highest, lowest and some between by FactS reward, of the last record.

    The best alone would mislead. None where no step is recorded, or where FactS was no reward.
    Raises UserError for a file that is no record.
    """
    # Numbers of six digits, or of more: the longer name is the later step.
    records = sorted(steps.glob("*.json.gz"), key=lambda path: (len(path.name), path.name))
    if not records:
        return []
    record = read_record(records[-1])
    if "facts" not in record["notes"]:
        return []
    # Of a group that says one thing eight times, once.
    distinct: dict[tuple[str, str], tuple[float, ScoredReport]] = {}
    competing = [
        (group["study"], member)
        for group in record["groups"]
        for member in group["members"]
        if member["competes"]
    ]
    notes, rewards = record["notes"]["facts"], record["rewards"]
    for (study, member), note, score, total in zip(
        competing, notes, rewards["facts"], rewards["total"], strict=True
    ):
        if member["origin"] == "sampled" and (study, member["text"]) not in distinct:
            shown = (numbers.value(score), numbers.value(total))
            rollout = ScoredReport(study, record["step"], member["text"], *shown, read_facts(note))
            distinct[study, member["text"]] = score, rollout
    ranked = [rollout for _, rollout in sorted(distinct.values(), key=lambda pair: -pair[0])]
    last = len(ranked) - 1
    places = dict.fromkeys(round(i * last / (SHOWN - 1)) for i in range(SHOWN) if ranked)
    return [ranked[place] for place in places]
