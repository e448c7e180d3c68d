"""Rewards of single reports, gathered into batches while others are being scored."""

from __future__ import annotations

import asyncio

from rrgtrain.rewards.service import RewardService


class GatheredRewards:
    """Scores one report a call, and what waits together in one batch.

    For trainers that ask for one sample a call (verl). `batches` counts the calls of the service.
    """

    def __init__(self, service: RewardService, *, most: int = 256, wait: float = 0.02) -> None:
        """most: reports of a batch. wait: seconds that the first report waits for others."""
        self.service, self.most, self.wait = service, most, wait
        self.batches = 0
        self._waiting: list[tuple[str, str, asyncio.Future[dict[str, float]]]] = []
        self._task: asyncio.Task[None] | None = None

    async def __call__(self, report: str, reference: str) -> dict[str, float]:
        """Score a report; "total" and every term. Raises what the batch raised."""
        future: asyncio.Future[dict[str, float]] = asyncio.get_running_loop().create_future()
        self._waiting.append((report, reference, future))
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._drain())
        return await future

    async def _drain(self) -> None:
        await asyncio.sleep(self.wait)
        while self._waiting:
            batch, self._waiting = self._waiting[: self.most], self._waiting[self.most :]
            reports, references, futures = zip(*batch, strict=True)
            self.batches += 1
            try:
                scores = await asyncio.wrap_future(self.service.submit(reports, references))
            except Exception as error:
                for future in futures:
                    if not future.done():  # its caller may have been cancelled
                        future.set_exception(error)
                continue
            for i, future in enumerate(futures):
                if not future.done():
                    future.set_result({name: float(value[i]) for name, value in scores.items()})
