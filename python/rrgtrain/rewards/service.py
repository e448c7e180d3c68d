"""The reward of a batch of reports: weighted terms, none of which may fail quietly."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from rrgtrain.clinical import Extractor, Labeller, build_extractor, build_labeller
from rrgtrain.data.study import Study
from rrgtrain.errors import UserError
from rrgtrain.rewards.batch import RewardBatch
from rrgtrain.rewards.terms import TERMS
from rrgtrain.schema import Reward


class RewardService:
    """Callable on (reports, studies) -> {"total": [R], term: [R], ...}, float64 arrays.

    A term that raises stops the call, and a value that is not finite is an error naming the
    term and the study: a failing reward is never a reward of 0. `seconds` keeps the time spent
    per term since construction.
    """

    def __init__(
        self,
        settings: Reward,
        labeller: Labeller | None = None,
        extractor: Extractor | None = None,
    ) -> None:
        unknown = [name for name in settings.terms if name not in TERMS]
        if unknown or not settings.terms:
            seen = f"names {unknown[0]!r}" if unknown else "is empty"
            raise UserError(f"reward.terms {seen}; choose from {', '.join(sorted(TERMS))}")
        self.settings = settings
        self.labeller = labeller or build_labeller(settings.labeller)
        self.extractor = extractor or build_extractor(settings.extractor)
        self.seconds = dict.fromkeys(settings.terms, 0.0)

    def __call__(self, reports: Sequence[str], studies: Sequence[Study]) -> dict[str, np.ndarray]:
        if len(reports) != len(studies):
            raise ValueError(f"{len(reports)} reports for {len(studies)} studies; pass one each")
        batch = RewardBatch(
            reports,
            studies,
            self.labeller,
            self.extractor,
            self.settings.against,
            self.settings.margin,
            self.settings.neg_weight,
        )
        values: dict[str, np.ndarray] = {}
        total = np.zeros(len(reports))
        for name, weight in self.settings.terms.items():
            begin = time.perf_counter()
            value = np.asarray(TERMS[name](batch), dtype=np.float64)
            self.seconds[name] += time.perf_counter() - begin
            self._check(name, value, studies)
            values[name] = value
            total += weight * value
        return {"total": total, **values}

    @staticmethod
    def _check(name: str, value: np.ndarray, studies: Sequence[Study]) -> None:
        if value.shape != (len(studies),):
            raise ValueError(f"reward term {name} gave shape {value.shape}, not ({len(studies)},)")
        bad = np.flatnonzero(~np.isfinite(value))
        if bad.size:
            i = int(bad[0])
            raise UserError(f"reward term {name} gave {value[i]} for study {studies[i].id}")
