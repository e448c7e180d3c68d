"""Prompts read ahead: the same as those read at once, each once, and workers that fail."""

from __future__ import annotations

import errno
import multiprocessing
import os
import resource
import signal
from contextlib import closing
from dataclasses import replace
from itertools import count
from pathlib import Path

import numpy as np
import pytest
import torch

from rrgclinical.common.stop import WARNINGS
from rrgdata.study import ImageRef, Study
from rrgpolicy.model.prompt import EncodedPrompt, Pixels
from rrgtrain.errors import UserError
from rrgtrain.schema import DataSettings
from rrgtrain.train import loader as loader_module
from rrgtrain.train.loader import PromptLoader
from tests.rrgdata import dicom_files
from tests.rrgpolicy.model.common import tiny_policy
from tests.rrgtrain.common import phantoms, studies
from tests.rrgtrain.runs import start_process

ORDER = ((0, 1), (2, 2), (1, 3), (4, 0), (5,), (6, 3), (0, 4))


def mixed() -> list[Study]:
    """Seven studies, with and without images."""
    files = sorted((phantoms() / "images").rglob("*.png"))[:4]
    with_images = [
        Study(f"seen-{i}", "train", "Normal.", None, (ImageRef(file, "frontal"),))
        for i, file in enumerate(files)
    ]
    return [*with_images[:2], *studies(2), *with_images[2:], studies(3)[2]]


def batches(given: list[Study]) -> list[list[Study]]:
    return [[given[i] for i in batch] for batch in ORDER]


def loader(**settings: int) -> PromptLoader:
    return PromptLoader(tiny_policy(), "short", DataSettings(**settings))


def same(one: EncodedPrompt, other: EncodedPrompt) -> bool:
    if (one.pixel_values is None) != (other.pixel_values is None) or one.key != other.key:
        return False
    alike = torch.equal(one.input_ids, other.input_ids)
    if one.pixel_values is None or other.pixel_values is None:
        return alike
    assert one.image_grid_thw is not None and other.image_grid_thw is not None
    return (
        alike
        and torch.equal(one.pixel_values, other.pixel_values)
        and torch.equal(one.image_grid_thw, other.image_grid_thw)
    )


@pytest.mark.parametrize(
    ("workers", "ahead", "cache"), [(0, 1, 64), (1, 1, 0), (1, 40, 64), (3, 1, 1), (3, 40, 0)]
)
def test_what_workers_read_is_what_is_read_at_once(workers: int, ahead: int, cache: int) -> None:
    given, plain = mixed(), loader(cache_mib=0)
    read = loader(workers=workers, read_ahead=ahead, cache_mib=cache)
    for _ in range(2):  # the second time some are stored
        with closing(read.ahead(batches(given))) as prompts:
            arrived = list(prompts)
        assert [len(batch) for batch in arrived] == [len(batch) for batch in ORDER]
        for batch, wanted in zip(arrived, batches(given), strict=True):
            assert all(same(p, plain(s)) for p, s in zip(batch, wanted, strict=True))


def test_what_is_kept_ends_at_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    given = mixed()
    read = loader(cache_mib=1)
    for _ in range(2):
        size = [read(study).pixel_values for study in given]
    bytes_ = sum(p.pixel_values.nbytes for p in read._stored.values() if p.pixel_values is not None)
    assert 0 < bytes_ <= 1 << 20 < sum(p.nbytes for p in size if p is not None)


def test_a_broken_image_is_told_with_its_batch_and_not_before(tmp_path: Path) -> None:
    given = mixed()
    path = tmp_path / "broken.png"
    path.write_bytes(b"not an image")
    (image,) = given[4].images
    given[4] = replace(given[4], images=(replace(image, path=path),))
    with closing(loader(workers=2, read_ahead=20).ahead(batches(given))) as prompts:
        for _ in range(3):
            next(prompts)
        with pytest.raises(UserError, match=r"broken\.png: not an image") as error:
            next(prompts)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("workers", [0, 1])
def test_accepted_body_parts_reach_whoever_reads(tmp_path: Path, workers: int) -> None:
    rows = np.arange(64 * 64, dtype=np.uint16).reshape(64, 64)
    path = dicom_files.write(tmp_path / "a.dcm", rows, Modality="DX", BodyPartExamined="RIBS")
    study = Study("s", "train", "Normal.", None, (ImageRef(path, ""),))
    settings = DataSettings(workers=workers, body_parts=["ribs"])
    given = PromptLoader(tiny_policy(), "short", settings)
    with closing(given.ahead([[study]])) as prompts:
        ((prompt,),) = prompts
    assert same(prompt, given(study))
    with (
        closing(loader(workers=workers).ahead([[study]])) as prompts,
        pytest.raises(UserError, match="body part is RIBS"),
    ):
        list(prompts)


def kill_itself(path: Path, area: int) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_workers_leave_warnings_to_the_trainer() -> None:
    """torchrun and Slurm signal the group, and the phase that is finished still reads."""
    given, at_once = mixed(), [loader().batch(b) for b in batches(mixed())]
    for number in (*WARNINGS, signal.SIGINT, signal.SIGHUP):
        with closing(loader(workers=2, read_ahead=2, cache_mib=0).ahead(batches(given))) as ahead:
            found = [next(ahead)]
            workers = multiprocessing.active_children()
            for worker in workers:
                os.kill(worker.pid or 0, number)
            found += ahead
            for one, other in zip(found, at_once, strict=True):
                assert all(map(same, one, other)), number
        for worker in workers:
            worker.join(30)
            assert worker.exitcode == 0, number


def test_a_worker_killed_for_memory_is_told_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    handler = signal.getsignal(signal.SIGCHLD)
    monkeypatch.setattr(loader_module, "read_image", kill_itself)
    with (
        closing(loader(workers=1).ahead(batches(mixed()))) as prompts,
        pytest.raises(UserError, match=r"a process that reads images died .*data.read_ahead") as e,
    ):
        list(prompts)
    assert "\n" not in str(e.value)
    assert signal.getsignal(signal.SIGCHLD) is handler


def _hand_on_more_than_there_is_room_for(told: Path) -> None:
    def large(processor: object, in_flight: object, paths: object) -> Pixels:
        # as a full /dev/shm does, files of more than 64 KiB fail
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, 1 << 16))
        return Pixels({"pixel_values": torch.zeros(1 << 20)}, (1,))

    loader_module._read = large
    try:
        list(loader(workers=1, read_ahead=2).ahead(batches(mixed())))
    except UserError as error:
        told.write_text(str(error))


def test_pixels_that_cannot_be_handed_on_are_told_in_one_line(tmp_path: Path) -> None:
    """Fail where the trainer sees it: in the queue's own thread it waits for ever."""
    process = start_process(_hand_on_more_than_there_is_room_for, tmp_path / "told")
    process.join(500)
    assert process.exitcode == 0
    (line,) = (tmp_path / "told").read_text().splitlines()
    assert line.startswith("a process that reads images cannot hand them on (")
    assert "docker --shm-size" in line


def children() -> set[int]:
    own = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children")
    alive = set(map(int, own.read_text().split()))
    return {pid for pid in alive if "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()}


@pytest.mark.parametrize("number", [errno.EAGAIN, errno.ENOMEM, errno.EMFILE])
def test_where_not_all_workers_can_be_started_none_stays(number, monkeypatch):
    """One that stays takes the exit's SIGTERM for the scheduler's, and the exit waits for it."""
    before, real, starts = children(), multiprocessing.Process.start, count()

    def start(process: multiprocessing.Process) -> None:
        if next(starts):
            raise OSError(number, os.strerror(number))
        real(process)

    monkeypatch.setattr(multiprocessing.Process, "start", start)
    with pytest.raises(UserError, match=rf"cannot be started \({os.strerror(number)}\)") as e:
        next(loader(workers=2).ahead(batches(mixed())))
    assert next(starts) == 2 and "\n" not in str(e.value)
    for worker in multiprocessing.active_children():
        worker.join(60)
    assert children() <= before


def test_a_worker_that_hangs_ends_with_the_iterator(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stopped process, as one that waits for a dead disk, keeps SIGTERM for later."""
    monkeypatch.setattr("torch.utils.data._utils.MP_STATUS_CHECK_INTERVAL", 0.1)
    before = children()
    with closing(loader(workers=2).ahead(batches(mixed()))) as prompts:
        next(prompts)
        for worker in children() - before:
            os.kill(worker, signal.SIGSTOP)
        other = multiprocessing.get_context("fork").Process(target=signal.pause, daemon=True)
        other.start()  # an engine, say, or another loader's
    for process in {*multiprocessing.active_children()} - {other}:
        process.join(10)
    assert children() <= before | {other.pid or 0} and other.is_alive()
    other.kill()
    other.join(10)


def test_workers_draw_nothing_that_a_resumed_run_would_draw_again() -> None:
    """The generator of dropout is as it was, however often images begin to be read."""
    before = torch.get_rng_state()
    with closing(loader(workers=1).ahead(batches(mixed()))) as prompts:
        next(prompts)
    assert torch.equal(torch.get_rng_state(), before)
