"""Add up the cost of a run's endpoints, over its ranks and resumes.

Each process writes its sums to a file of its own, so that a run that is killed or stops in the
middle of a step forgets no cost.
"""

from __future__ import annotations

import json
import math
import time
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from rrgclinical.chat import Chat, ChatSettings
from rrgclinical.common import json_reader
from rrgclinical.common.files import atomic_write
from rrgpolicy.ranks import ranks
from rrgtrain.errors import UserError
from rrgtrain.schema import RewardSettings

# Judges that ask an endpoint, of whose spending each rank has its share, and what builds them.
ENDPOINTS = {
    "facts": "rrgclinical.facts:build_facts",
    "green": "rrgclinical.green:Green.build",
    "crimson": "rrgclinical.crimson:Crimson.build",
}
COUNTS = ("requests", "prompt_tokens", "completion_tokens", "cost")
# Seconds of requests whose cost a process that is killed may take with it.
UNSAVED = 1.0
COSTS = "The endpoints of the rewards have cost"


class Spending:
    """Adds up requests, tokens and cost of a run's endpoints, and holds its budget.

    limit: `reward.max_cost`. Between two agreements of the ranks each may spend an equal part of
    what was left.
    """

    def __init__(self, limit: float | None) -> None:
        self.limit = math.inf if limit is None else limit
        self._chats: list[Chat] = []
        # of other ranks, at the last agreement, and of earlier processes of the run
        self._elsewhere = dict.fromkeys(COUNTS, 0.0)
        self._earlier = dict.fromkeys(COUNTS, 0.0)
        self._allowed = self.limit / ranks.size()
        self._file: Path | None = None
        self._saved = dict.fromkeys(COUNTS, 0.0)
        self._saved_at = 0.0

    def watch(self, chat: Chat) -> None:
        """Count what `chat` asks from here on, and let it ask within the budget."""
        self._chats.append(chat)
        chat.before_request = self._before_request

    def own(self) -> dict[str, float]:
        return _sums(vars(chat.usage) for chat in self._chats)

    def _total(self) -> dict[str, float]:
        """Sums of the run, those of other ranks as of the last agreement."""
        return _sums([self.own(), self._elsewhere])

    def notes(self) -> list[str]:
        """Word what endpoints have cost, as of the last agreement; empty where none was asked."""
        if not (total := self._total())["requests"]:
            return []
        priced = any(c.settings.input_price or c.settings.output_price for c in self._chats)
        return [f"{COSTS} {described(total)}{'' if priced else '; no prices were given'}."]

    def _before_request(self) -> None:
        if time.monotonic() - self._saved_at >= UNSAVED:
            self.save()
        self.require_budget()

    def require_budget(self) -> None:
        """Raise UserError where this rank may spend no more."""
        own = self.own()
        # sums of many small costs are a little off
        if own["cost"] >= self._allowed * (1 - 1e-9):
            total = self._total()
            part = ""
            if total["cost"] < self.limit * (1 - 1e-9):
                part = f" (rank {ranks.rank()} has spent its part; the others may have some left)"
            raise UserError(
                f"the endpoints have cost {described(total)}, and reward.max_cost="
                f"{self.limit:g} allows no more; raise it to go on{part}"
            )

    def keep_in(self, directory: Path) -> None:
        """Write the sums of this process below `directory` from now on; add those found there.

        All ranks call it at once.
        """
        files = directory.glob("*.json") if ranks.is_main() else ()
        earlier = _sums(map(_read, files))
        self._earlier = ranks.broadcast_from_main(earlier)
        self._file = directory / f"{uuid.uuid4().hex}.json"
        self.agree()

    def save(self) -> None:
        """Write the sums of this process where they have changed."""
        own, self._saved_at = self.own(), time.monotonic()
        if self._file is not None and own != self._saved:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            atomic_write(self._file, json.dumps(own))
            self._saved = own

    def agree(self) -> dict[str, float]:
        """Return the sums of the run, and share what is left; all ranks call it."""
        return self.agreed(ranks.gather(self.own()))

    def leave_to_main(self) -> None:
        """Let rank 0 alone spend what is left; all ranks call it."""
        total = self.agree()
        left = max(0.0, self.limit - total["cost"]) if ranks.is_main() else 0.0
        self._allowed = self.own()["cost"] + left

    def agreed(self, parts: list[dict[str, float]]) -> dict[str, float]:
        """As `agree`, from the sums of all ranks."""
        total = _sums([*parts, self._earlier])
        own = parts[ranks.rank()]
        self._elsewhere = {name: total[name] - own[name] for name in COUNTS}
        self._allowed = own["cost"] + max(0.0, self.limit - total["cost"]) / len(parts)
        return total


def described(total: Mapping[str, float]) -> str:
    """Word the sums of a run: its cost, then requests and tokens."""
    return (
        f"{total['cost']:.4g} ({total['requests']:,.0f} requests, {total['prompt_tokens']:,.0f} "
        f"tokens in, {total['completion_tokens']:,.0f} out)"
    )


def check_prices(settings: RewardSettings, budget: float) -> None:
    """UserError for a budget where an endpoint has no price: nothing would reach it."""
    for name in ENDPOINTS:
        options = settings.options.get(name, {})
        free = not (options.get("input_price") or options.get("output_price"))
        if name in settings.terms and options and free:
            raise UserError(
                f"reward.max_cost={budget:g}, but the endpoint of {name} has no price; "
                f"set reward.options.{name}.input_price and .output_price per million tokens"
            )


def share_of_rank(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of an endpoint on this rank: `concurrency` is that of all ranks together.

    UserError where there are more ranks than conversations.
    """
    count = ranks.size()
    total = options.get("concurrency", max(ChatSettings.concurrency, count))
    if not options or count == 1 or not isinstance(total, int):
        return dict(options)
    if 0 < total < count:
        raise UserError(
            f"reward.options.{name}.concurrency={total} is shared by {count} ranks; give each at "
            f"least one conversation ({count}), or use fewer ranks"
        )
    return {**options, "concurrency": total // count + (ranks.rank() < total % count)}


def _read(file: Path) -> dict[str, float]:
    try:
        sums = json_reader.read(file, dict)
        return {name: float(sums[name]) for name in COUNTS}
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"{file} does not say what a process has spent ({error}); put it back, or delete it"
        ) from error


def _sums(parts: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    listed = list(parts)
    return {name: float(sum(part[name] for part in listed)) for name in COUNTS}
