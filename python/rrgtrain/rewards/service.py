"""The reward of a batch of reports: weighted terms, none of which may fail quietly."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import numpy as np
import torch

from rrgclinical import Extractor, Labeller
from rrgclinical.cached import CachedExtractor, CachedLabeller
from rrgclinical.chat import Unreadable
from rrgclinical.common.arguments import check_pairs, check_reports, share_of_steps
from rrgclinical.common.errors import cause_line
from rrgclinical.common.nothing import check_references
from rrgclinical.common.stopwatch import ExclusiveTimer
from rrgdata.study import Study, check_studies, studies_of
from rrgpolicy.ranks import ranks
from rrgtrain.errors import RewardError, RewardNotFinite, Stopped, UserError
from rrgtrain.rewards.batch import NEEDS, Corpus, RewardBatch, parse_blocks, report_of, truth_of
from rrgtrain.rewards.spending import ENDPOINTS, Spending, check_prices
from rrgtrain.rewards.term_models import (
    SpreadLabeller,
    cached,
    check_model_files,
    open_extractor,
    open_labeller,
    open_model,
)
from rrgtrain.rewards.terms import TERMS, find_term
from rrgtrain.schema import RewardSettings

T = TypeVar("T")

# What reads the whole completion, and is therefore also paid where there is no `<report>`.
_OF_COMPLETIONS = frozenset({"format"})
# Reports before the share of those left out means something.
_ENOUGH = 100


class Scores(dict[str, np.ndarray]):
    """Map "total" and every term by its name to values, float64 `[R]`.

    NaN stands where a judge's answer is left out (`reward.judge.unreadable`).

    notes: term -> one mapping per report, what the term kept for inspection (facts and verdicts).
    """

    def __init__(
        self, values: Mapping[str, np.ndarray], notes: dict[str, list[Mapping[str, Any]]]
    ) -> None:
        super().__init__(values)
        self.notes = notes


def refuse_left_out(settings: RewardSettings, who: str) -> None:
    """Raise UserError where `who` would take what a judge left out for a score."""
    if settings.judge.unreadable == "leave_out":
        raise UserError(
            f"reward.judge.unreadable=leave_out is for rrgtrain's own groups, and {who} has no "
            "place for a report without a score; use reward.judge.unreadable=stop"
        )


class RewardService:
    """Callable on (reports, references) -> {"total": [R], term: [R], ...}, float64 arrays.

    References are studies, or report texts. A term that raises stops the call with a
    `RewardError` naming it, and so does a value that is not finite: a failing reward is never a
    reward of 0. Texts are read once, references kept, both as `reward.cache` says.
    """

    def __init__(
        self,
        settings: RewardSettings,
        labeller: Labeller | None = None,
        extractor: Extractor | None = None,
    ) -> None:
        """Builds what the recipe names. UserError for an unknown term, option or backend."""
        if not settings.terms:
            raise UserError(f"reward.terms is empty; choose from {', '.join(sorted(TERMS))}")
        built = {settings.labeller: labeller, settings.extractor: extractor}
        check_model_files(settings, built=[name for name, model in built.items() if model])
        if settings.max_cost is not None:
            check_prices(settings, settings.max_cost)
        for name, weight in settings.terms.items():
            if not math.isfinite(weight):
                raise UserError(f"reward.terms.{name}={weight}; wanted a finite weight")
        self._terms = {name: find_term(name, TERMS) for name in settings.terms}
        for name, start in settings.starts.items():
            if name not in settings.terms:
                raise UserError(
                    f"reward.starts names {name!r}, which is no term of this recipe; "
                    f"choose from {', '.join(settings.terms)}"
                )
            if not 0.0 <= start <= 1.0:
                raise UserError(f"reward.starts.{name}={start}; wanted a share of the steps, 0..1")
        self.settings = settings
        self.labeller = (
            cached(CachedLabeller, labeller, settings) if labeller else open_labeller(settings)
        )
        self.extractor = (
            cached(CachedExtractor, extractor, settings) if extractor else open_extractor(settings)
        )
        self.watch = ExclusiveTimer()
        self.spending = Spending(settings.max_cost)
        self._corpus = Corpus([])
        self._fitted: list[Study] = []
        self._models: dict[str, Any] = {}
        self._readings: dict[str, Callable[[RewardBatch], Any]] = {}
        self._scored = False
        self._reports = self._unread = 0
        self._lock = threading.RLock()  # a model opens the models that it is made of
        self._worker: ThreadPoolExecutor | None = None

    def __call__(
        self, reports: Sequence[str], references: Sequence[Study | str], progress: float = 1.0
    ) -> Scores:
        """Scores of reports beside the studies (or reference reports) they describe.

        progress: share of the run's steps that are done, for terms that start later
        (`reward.starts`). A term that has not started is measured and weighs nothing.

        Raises TypeError for a report that is no str or a reference that is neither str nor `Study`,
        ValueError for numbers that differ, a reference that says nothing or a progress outside 0 to
        1, RewardError where a term failed.
        """
        progress = share_of_steps(progress)
        texts, studies = check_reports(reports), self._studies(references)
        if len(texts) != len(studies):
            raise ValueError(f"{len(texts)} reports for {len(studies)} studies; pass one each")
        blocks = self.settings.blocks == "think_report"
        inside = [parse_blocks(text).report for text in texts] if blocks else list(texts)
        batch = self._batch(texts, [text or "" for text in inside], studies)
        unwritten = np.array([text is None for text in inside], dtype=bool)
        values: dict[str, np.ndarray] = {}
        for name in self.settings.terms:
            value = self._value(name, batch)
            if name not in _OF_COMPLETIONS:
                value[unwritten] = 0.0
            values[name] = value
        self._scored = True
        self._check_unreadable(values)
        return Scores({"total": self.total(values, progress), **values}, batch.notes)

    def total(self, values: Mapping[str, np.ndarray], progress: float = 1.0) -> np.ndarray:
        """Sum the terms by their weights, float64 `[R]`: those that count at `progress`."""
        total = np.zeros(len(next(iter(values.values()))))
        for name in self.settings.counting(progress):
            total += self.settings.terms[name] * values[name]
        return total

    def measure(
        self, terms: Sequence[str], reports: Sequence[str], references: Sequence[str]
    ) -> Iterator[tuple[str, np.ndarray | RewardError]]:
        """Score reports by named terms, weighed or not; one that fails gives its error.

        Reports are taken as they are, without blocks. They are read once for all terms.
        """
        reports, references = check_pairs(reports, references)
        batch = replace(self._batch(reports, reports, studies_of(references)), noted=False)
        for name in terms:
            try:
                value = self._value(name, batch)
                if unread := int(np.isnan(value).sum()):
                    raise RewardError(f"{name}: {unread} of {len(value)} answers cannot be read")
                yield name, value
            except RewardError as error:
                yield name, error

    def submit(
        self, reports: Sequence[str], references: Sequence[Study | str], progress: float = 1.0
    ) -> Future[Scores]:
        """The same call in a background thread: `submit(...)`, other work, `.result()`.

        Batches run in order. `result()` raises what the call would raise; what is no list of
        reports or studies is raised at once. What was read for one batch is not read again, so
        parts of a rollout submitted as they are finished make the call over the whole cheap.
        """
        texts, studies = check_reports(reports), self._studies(references)
        return self._later(self, texts, studies, share_of_steps(progress))

    def prefetch(self, references: Sequence[Study | str]) -> Future[None]:
        """Reads the references in the background, while the reports on them are being written.

        It reads what the terms have asked of references before, and finds that out by scoring an
        empty report. What fails is a `RewardError` of the future, and of the call that needs it.
        """
        return self._later(self._read_ahead, self._studies(references))

    def close(self) -> None:
        """End the thread of `submit` and `prefetch`, and drop what waits; later calls open one."""
        with self._lock:
            worker, self._worker = self._worker, None
        if worker is not None:
            worker.shutdown(cancel_futures=True)

    def fit(self, studies: Sequence[Study]) -> None:
        """Take the training studies, for terms that need their statistics; TypeError for others.

        Nothing is counted until such a term is asked for, or `count_corpus` is called.
        """
        studies = check_studies(studies)
        self._corpus = Corpus(
            [study.report for study in studies],
            lambda: truth_of(studies, self.labeller, self.settings.against),
        )
        self._fitted = studies

    @property
    def counts_corpus(self) -> bool:
        """Tell whether a term needs the training studies, by `fit`."""
        return not NEEDS.keys().isdisjoint(self.settings.terms)

    def count_corpus(self) -> None:
        """Count what the terms need of the training studies, each rank a share.

        All ranks call it, after `fit` with the same studies.
        """
        spread = SpreadLabeller(self.labeller)
        self._corpus.count(
            self.settings.terms, lambda: truth_of(self._fitted, spread, self.settings.against)
        )

    def scored_text(self, completions: Sequence[str]) -> list[str]:
        """Cut the report from each completion: all, or its `<report>` block, else ""."""
        return [report_of(text, self.settings.blocks) for text in completions]

    def _studies(self, references: Sequence[Study | str]) -> list[Study]:
        studies = studies_of(references)
        check_references([study.report for study in studies])
        return studies

    def _check_unreadable(self, values: Mapping[str, np.ndarray]) -> None:
        """Count the reports that a judge cannot score; RewardError beyond their bound."""
        unread = np.logical_or.reduce([np.isnan(value) for value in values.values()])
        self._reports += len(unread)
        self._unread += int(unread.sum())
        most = self.settings.judge.most
        if self._reports >= _ENOUGH and self._unread > most * self._reports:
            raise RewardError(
                f"the judge's answers to {self._unread} of {self._reports} reports cannot be read, "
                f"more than reward.judge.most={most:g} of them; use another model, or raise it"
            )

    def _later(self, call: Callable[..., T], *arguments: Any) -> Future[T]:
        with self._lock:
            if self._worker is None:
                begin = None
                if torch.cuda.is_initialized():
                    # of its own accord a thread is on the first GPU
                    begin = partial(torch.cuda.set_device, torch.cuda.current_device())
                self._worker = ThreadPoolExecutor(1, "rewards", begin)
            return self._worker.submit(call, *arguments)

    def _read_ahead(self, references: list[Study]) -> None:
        if not references:
            return
        if not self._scored:
            self([""], references[:1])
        nothing = [""] * len(references)
        batch = self._batch(nothing, nothing, references)
        for name, read in list(self._readings.items()):
            try:
                batch.of_references(name, read)
            except (Exception, SystemExit) as error:
                raise RewardError(f"reading {name} failed: {cause_line(error)}") from error

    def _batch(
        self, completions: Sequence[str], reports: Sequence[str], studies: Sequence[Study]
    ) -> RewardBatch:
        return RewardBatch(
            completions=completions,
            reports=reports,
            studies=studies,
            labeller=self.labeller,
            extractor=self.extractor,
            settings=self.settings,
            corpus=self._corpus,
            open=self.model,
            watch=self.watch,
            readings=self._readings,
        )

    @property
    def seconds(self) -> dict[str, float]:
        """Seconds per term, and per kind of reading that terms share, since construction."""
        return {**dict.fromkeys(self.settings.terms, 0.0), **dict(self.watch.seconds)}

    def statistics(self) -> dict[str, float]:
        """Sum since construction `reward_seconds/<what>`, `texts/<model>_{asked,computed,
        from_disk}`, and `endpoint/<model>_...` as `rrgclinical.chat.Usage` counts."""
        rows = {f"reward_seconds/{name}": value for name, value in self.seconds.items()}
        with self._lock:
            models = {"labeller": self.labeller, "extractor": self.extractor, **self._models}
        for name, model in models.items():
            results = getattr(model, "results", None)
            usage = getattr(model, "usage", None)
            if usage is not None:
                rows |= {f"endpoint/{name}_{k}": float(v) for k, v in vars(usage).items()}
            for count in ("asked", "computed", "from_disk") if results is not None else ():
                rows[f"texts/{name}_{count}"] = float(getattr(results, count))
        return rows

    def since(self, before: Mapping[str, float]) -> dict[str, float]:
        """For the log of a step: what `statistics()` has gained since they were `before`.

        On several ranks their sum, of seconds the longest; all ranks call it. Beside it stand the
        share of texts that were not computed and the endpoints' cost up to now.
        """
        own = {name: value - before.get(name, 0.0) for name, value in self.statistics().items()}
        parts = ranks.gather((own, self.spending.own()))
        rows: dict[str, float] = {}
        for name in dict.fromkeys(name for part, _ in parts for name in part):
            values = [part.get(name, 0.0) for part, _ in parts]
            rows[name] = max(values) if name.startswith("reward_seconds/") else sum(values)
        total = self.spending.agreed([spent for _, spent in parts])
        if total["requests"]:
            rows["endpoint/total_cost"] = total["cost"]
        for name, asked in list(rows.items()):
            model = name.removesuffix("_asked")
            if model != name and asked:
                rows[f"{model}_reused"] = 1.0 - rows[f"{model}_computed"] / asked
        return rows

    def model(self, name: str) -> Any:
        """Open the model of a term, or return the one that is open; see `open_model`."""
        with self._lock:
            if name not in self._models:
                self._models[name] = open_model(name, self.settings, self.model)
                if (chat := getattr(self._models[name], "chat", None)) is not None:
                    self.spending.watch(chat)
                    chat.leave_out = self.settings.judge.unreadable == "leave_out"
            return self._models[name]

    def _value(self, name: str, batch: RewardBatch) -> np.ndarray:
        wanted = (len(batch.studies),)
        try:
            with self.watch.measure(name):
                term = self._terms.get(name) or find_term(name, TERMS)
                value = np.array(term(batch), dtype=np.float64)
        except Stopped:  # a signal is no failure of the term that it comes in
            raise
        except Unreadable as error:
            raise RewardError(
                f"reward term {name} failed: {error}; the same reports meet the same answer when "
                "the run is resumed, unless the model is changed or "
                "reward.judge.unreadable=leave_out is set"
            ) from error
        except (Exception, SystemExit) as error:
            raise RewardError(f"reward term {name} failed: {cause_line(error)}") from error
        finally:
            self.spending.save()
        if value.shape != wanted:
            raise RewardError(f"reward term {name} gave shape {value.shape}, not {wanted}")
        unread = np.zeros(wanted, dtype=bool)
        if name in ENDPOINTS and self.settings.judge.unreadable == "leave_out":
            unread = np.isnan(value)
        bad = np.flatnonzero(~np.isfinite(value) & ~unread)
        if bad.size:
            i = int(bad[0])
            study = batch.studies[i].id
            raise RewardNotFinite(f"reward term {name} gave {value[i]} for study {study}")
        return value
