"""Order the studies of steps; encode their prompts, images ahead of use by worker processes.

The order is epochs of seeded permutations, cut into batches, and depends on nothing but the seed
and the step.

Reading a radiograph and cutting it into patches takes 30 to 150 ms of a core (estimate), tokenising
its prompt less than one: workers of PyTorch's DataLoader do the first, this process the second. The
order is the caller's, who names the batches from any step on, so a resumed run reads what the
uninterrupted one would have read.
"""

from __future__ import annotations

import multiprocessing
import signal
import sys
import warnings
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from itertools import islice, tee
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset

from rrgclinical.common.host import unless_hung_up
from rrgclinical.common.stop import WARNINGS
from rrgdata.images.in_flight import InFlight
from rrgdata.images.read import area_of, read_image
from rrgdata.study import Study
from rrgpolicy.model.policy import ImageRule, Policy
from rrgpolicy.model.prompt import EncodedPrompt, Pixels, prompt_of
from rrgtrain.errors import UserError
from rrgtrain.schema import DataSettings
from rrgtrain.state.identity import digest_of

T = TypeVar("T")


class PromptLoader:
    """Encode prompts: `loader(study)` now, `loader.ahead(batches)` while the device works.

    The prompts of the first studies stay, up to `data.cache_mib` of pixels: a small data set, or
    the validation studies, are encoded once. Memory does not grow beyond that.
    """

    def __init__(self, policy: Policy, style: str, settings: DataSettings | None = None) -> None:
        settings = settings or DataSettings()
        self.policy, self.style = policy, style
        self.workers, self.read_ahead = settings.workers, settings.read_ahead
        self._accepted = (settings.body_parts,) if settings.body_parts else ()
        self._room = settings.cache_mib << 20  # bytes
        self._stored: dict[str, EncodedPrompt] = {}

    def __call__(self, study: Study) -> EncodedPrompt:
        """Encode the prompt of one study, or return it if it is stored."""
        stored = self._stored.get(study.id)
        return stored or self._encode(
            study, _read(self.policy.images, InFlight(), _paths(study), *self._accepted)
        )

    def batch(self, studies: Sequence[Study]) -> list[EncodedPrompt]:
        """Encode the prompts of a batch, a study that comes twice once."""
        return _each_once(studies, self)

    def ahead(self, batches: Iterable[Sequence[Study]]) -> Generator[list[EncodedPrompt]]:
        """Yield the prompts of each batch, in order; workers read `data.read_ahead` studies ahead.

        With `data.workers` 0 a batch is read when it is asked for. Close the iterator to end the
        workers.

        Raises:
            UserError: an image that cannot be read, when its batch is asked for, or a worker that
                died or could not be started.
        """
        if not self.workers:
            yield from map(self.batch, batches)
            return
        batches, later = tee(batches)
        skipped: deque[bool] = deque()
        arrived: deque[Pixels | UserError | None] = deque()

        def asked() -> Iterator[tuple[Path, ...]]:
            for studies in later:
                for study in _unique(studies):
                    skipped.append(not study.images or study.id in self._stored)
                    if not skipped[-1]:
                        yield _paths(study)

        with closing(self._read_ahead(asked())) as pixels:

            def encode(study: Study) -> EncodedPrompt:
                if not skipped:  # nobody has asked for this study yet
                    arrived.extend(islice(pixels, 1))
                if skipped.popleft():
                    return self(study)
                return self._encode(study, arrived.popleft() if arrived else next(pixels))

            for studies in batches:
                yield _each_once(studies, encode)

    def _encode(self, study: Study, pixels: Pixels | UserError | None) -> EncodedPrompt:
        if isinstance(pixels, UserError):
            raise pixels
        prompt = prompt_of(self.policy, study, pixels, style=self.style)
        if pixels is not None and study.id not in self._stored:
            values = pixels.pixel_values
            size = values.nbytes + 3 * sum(p.width * p.height for p in pixels.pictures)
            if size <= self._room:
                self._room -= size
                if values.is_shared():  # a worker's: it would fill /dev/shm
                    values = values.clone()
                self._stored[study.id] = prompt.with_pixels(values)
        return prompt

    def _read_ahead(
        self, asked: Iterator[tuple[Path, ...]]
    ) -> Generator[Pixels | UserError | None]:
        loader: DataLoader[Any] = DataLoader(
            _Images(self.policy.images, *self._accepted),
            batch_size=None,
            sampler=asked,
            num_workers=self.workers,
            prefetch_factor=-(-self.read_ahead // self.workers),
            pin_memory=self.policy.device.type == "cuda",
            worker_init_fn=_leave_signals,
            # without one of its own it draws from the generator of dropout, again after a resume
            generator=torch.Generator(),
        )
        # PyTorch's would raise wherever this process stands; without it the next batch tells of it
        handler = signal.getsignal(signal.SIGCHLD)
        before = multiprocessing.active_children()
        try:
            pixels = iter(loader)
        except OSError as error:
            _kill(_since(before))  # a half-made iterator ends none of its workers
            raise UserError(
                f"a process that reads images cannot be started ({error.strerror}): lower "
                "data.workers, make memory free, or raise the limits (ulimit -u, ulimit -n)"
            ) from error
        workers = _since(before)  # not those that others start while these read
        if signal.getsignal(signal.SIGCHLD) is not handler:
            signal.signal(signal.SIGCHLD, handler)
        try:
            yield from pixels
        except RuntimeError as error:
            if "DataLoader worker" not in str(error):
                raise
            raise UserError(
                f"a process that reads images died ({str(error).splitlines()[0]}); it may lack "
                "memory, /dev/shm included: lower data.read_ahead or data.workers"
            ) from error
        finally:
            del pixels  # ends the workers
            _kill(workers)


class _Images(Dataset[Any]):
    """The images of a study, by their paths."""

    def __init__(self, rule: ImageRule | None, *accepted: Sequence[str]) -> None:
        self.rule, self.accepted = rule, accepted
        # of all workers together, who inherit it
        self.in_flight = InFlight(multiprocessing)

    def __getitem__(self, paths: Any) -> Pixels | UserError | None:
        try:
            pixels = _read(self.rule, self.in_flight, paths, *self.accepted)
        except UserError as error:
            return error  # raised where the study is used, in one line
        if pixels is None:
            return None
        try:
            # here, where its failure can be told: the queue's own thread would lose the item
            pixels.pixel_values.share_memory_()
        except (RuntimeError, OSError) as error:
            return UserError(
                f"a process that reads images cannot hand them on ({error}); "
                "give /dev/shm more room (docker --shm-size), or lower data.read_ahead"
            )
        return pixels


def _read(
    rule: ImageRule | None, in_flight: InFlight, paths: Sequence[Path], *accepted: Sequence[str]
) -> Pixels | None:
    if rule is None:
        return None
    with closing(_pictures(rule.area, in_flight, paths, *accepted)) as pictures:
        return rule.encode(pictures)


def _pictures(
    area: int, in_flight: InFlight, paths: Sequence[Path], *accepted: Sequence[str]
) -> Generator[Image.Image]:
    """Read one picture after the other, each let go before the next where it was encoded."""
    for path in paths:
        with in_flight.hold(area_of(path)):
            try:
                yield read_image(path, area, *accepted)
            except UserError as error:
                # before a run only a sample of the images was looked at
                raise UserError(f"{error}; `rrgtrain data check` finds all broken images") from None


def _paths(study: Study) -> tuple[Path, ...]:
    return tuple(image.path for image in study.images)


def _unique(studies: Sequence[Study]) -> Iterable[Study]:
    return {study.id: study for study in studies}.values()


def _each_once(
    studies: Sequence[Study], encode: Callable[[Study], EncodedPrompt]
) -> list[EncodedPrompt]:
    prompts = {study.id: encode(study) for study in _unique(studies)}
    return [prompts[study.id] for study in studies]


def _since(before: list[BaseProcess]) -> set[BaseProcess]:
    return set(multiprocessing.active_children()).difference(before)


def _kill(workers: set[BaseProcess]) -> None:
    """Kill workers that no SIGTERM ends, such as one that waits for a dead disk."""
    for worker in workers:
        worker.kill()


def _leave_signals(worker: int) -> None:
    """Leave Ctrl-C and warnings to the trainer, whose phase still needs what is read.

    A terminal, torchrun and Slurm signal all processes. Only a second SIGTERM ends a worker: it may
    hang, and PyTorch has no other way to end it.
    """
    for number in (*WARNINGS, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: signal.signal(signal.SIGTERM, signal.SIG_DFL))
    sys.excepthook = unless_hung_up


def batch_indices(count: int, batch: int, step: int, seed: int) -> list[int]:
    """Indices in [0, count) of the `step`-th batch; batches run on across epoch borders."""
    begin = step * batch
    chosen: list[int] = []
    while len(chosen) < batch:
        epoch, offset = divmod(begin + len(chosen), count)
        order = np.random.default_rng((seed, epoch)).permutation(count)
        chosen.extend(int(i) for i in order[offset : offset + batch - len(chosen)])
    return chosen


def order_of(studies: Sequence[Study], batch: int, before: str | None = None) -> str:
    """Digest what an order depends on; warn where it is not as `before` a resume."""
    now = digest_of([batch, *(study.id for study in studies)])
    if before not in (None, now):
        warnings.warn(
            "the training studies, or how many a step reads, are not those of before the resume: "
            "of this epoch, some studies come again and some are left out",
            stacklevel=2,
        )
    return now
