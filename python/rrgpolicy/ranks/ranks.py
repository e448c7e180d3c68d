"""Exchange values and errors between the processes of one run.

    with ranks.opened(mode, timeout, cuda):        the processes that torchrun has started
        with ranks.propagate_errors():             an error inside is every rank's error
            everything = ranks.gather(mine)        one value a rank, in their order

In a process of its own, without torchrun, there is one rank, and every function returns at once.

Ranks speak only by exchanges: each rank gives a value, or the error that it has met, and gets what
all gave. All ranks make the same exchanges in the same order; an error is sent in place of the next
value and raised on every rank. Collectives on tensors know nothing of errors: what may fail is done
before an exchange, and the collectives after it. An error between the collectives of a forward and
its backward (`inseparable`) cannot be told; the process ends, which the others notice.
"""

from __future__ import annotations

import datetime
import os
import pickle
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from rrgclinical.common.errors import Stopped, UserError
from rrgclinical.common.progress import silenced
from rrgclinical.common.stop import stopping
from rrgpolicy.ranks import lost

T = TypeVar("T")

# On an error that all ranks know: the rank that alone has met it, or None.
_MARK = "rrgpolicy_rank"

_broken = False
_timeout = 1800.0
_joined = False
_side: dist.ProcessGroup | None = None


class Lost(Stopped):
    """Another rank is gone or does not answer: nothing can be agreed on any more."""


def processes() -> int:
    """Return the number of processes that torchrun has started; 1 without it."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def rank() -> int:
    """Return the rank of this process, from 0; before `opened`, from torchrun's environment."""
    return dist.get_rank() if _active() else int(os.environ.get("RANK", "0"))


def size() -> int:
    """The number of processes that take part."""
    return dist.get_world_size() if _active() else 1


def timeout() -> float:
    """Seconds for which ranks wait for each other, as `opened` was told."""
    return _timeout


def is_main() -> bool:
    """Tell whether this rank writes files and prints."""
    return rank() == 0


def shard(items: Sequence[T]) -> list[T]:
    """Return this rank's part of `items`.

    Parts differ in number by one at most, and may be empty."""
    return list(items[rank() :: size()]) if _active() else list(items)


def unshard(parts: Sequence[Sequence[T]]) -> list[T]:
    """The inverse of `shard`, from the parts of all ranks in their order."""
    total = sum(map(len, parts))
    return [parts[k % len(parts)][k // len(parts)] for k in range(total)]


def gather(value: T) -> list[T]:
    """Gather the values of all ranks.

    Raises the error of the first rank that has met one."""
    return _exchange(value) if _active() else [value]


def side_group() -> dist.ProcessGroup | None:
    """Return the group over which threads beside the main ones speak to each other.

    All ranks call it at once, in the main thread. None where there is one rank. It waits long, as
    one disk may be slower than another; the group of the main threads tells of a lost rank.
    """
    global _side
    if _active() and _side is None:
        _side = dist.new_group(backend="gloo", timeout=datetime.timedelta(days=1))
    return _side


def gather_aside(
    group: dist.ProcessGroup | None, value: T, error: Exception | None = None
) -> list[T]:
    """Gather the values of all ranks over `side_group`, in the thread that it is for.

    error: what this rank has met in place of a value. Raises the error of the first rank with one.
    """
    if group is None:
        if error is not None:
            raise error
        return [value]
    if isinstance(error, Lost) or agreed_with(error) is not None:
        raise error  # type: ignore[misc]
    parts: list[Any] = [None] * size()
    try:
        dist.all_gather_object(parts, (_portable(error), value), group)
    except RuntimeError as failure:
        raise _lost(failure) from (error or failure)
    return _values(parts, error)


def barrier() -> None:
    """Waits for all ranks. Raises the error of the first rank that has met one."""
    gather(None)


def broadcast_from_main(value: T) -> T:
    """Rank 0's value, for what must be decided alike."""
    return gather(value)[0]


def from_main(make: Callable[[], T]) -> T:
    """Let rank 0 make a value, and hand it to all."""
    made: Any = make() if is_main() else None
    return broadcast_from_main(made)


@contextmanager
def main_first() -> Iterator[None]:
    """Rank 0 does the block, then the others: they find what it wrote."""
    if not is_main():
        barrier()
    yield
    if is_main():
        barrier()


@contextmanager
def propagate_errors() -> Iterator[None]:
    """Raise an error inside the block on every rank.

    The others raise it at the latest at the end of their blocks."""
    try:
        yield
    except Exception as error:
        agreed = agree(error)
        if agreed is error:
            raise
        raise agreed from error


@contextmanager
def inseparable() -> Iterator[None]:
    """Collectives on tensors inside: an error that only one rank meets there cannot be told."""
    with stopping.deferred():
        try:
            yield
        except Exception as error:
            if _active() and agreed_with(error) is None:
                _break()
                note = f"{type(error).__name__}: {error}".splitlines()[0]
                raise Lost(
                    f"rank {rank()} failed between collectives, or another did: {note}"
                ) from error
            raise


def agree(error: Exception) -> Exception:
    """Tell the error to all ranks.

    Returns the one that all agree on, perhaps another rank's."""
    if not _active() or _broken or agreed_with(error) is not None:
        return error
    try:
        _exchange(None, error)
    except Exception as agreed:
        return agreed
    raise AssertionError("an exchange with an error in it has raised none")


def agreed_with(error: BaseException | None) -> BaseException | None:
    """Find the error that all ranks know among the causes of `error`.

    None without one."""
    while error is not None and not hasattr(error, _MARK):
        error = error.__cause__
    return error


def error_rank(error: BaseException) -> int | None:
    """The rank that alone has met the error; None where all have."""
    return getattr(agreed_with(error), _MARK, None)


def broken() -> bool:
    """Tell whether ranks can no longer speak to each other."""
    return _broken


@contextmanager
def opened(mode: str, timeout: float, *, cuda: bool) -> Iterator[None]:
    """Joins the processes that torchrun has started; with mode "none", nothing.

    timeout: seconds for which a rank waits for the others. Raises UserError where mode and
    torchrun do not fit.
    """
    started = dist.is_torchelastic_launched() or "WORLD_SIZE" in os.environ
    if mode == "none":
        if processes() > 1:
            raise UserError(
                f"torchrun has started {processes()} processes, but scale.mode=none is one alone; "
                "use scale.mode=fsdp2"
            )
        yield
        return
    if not started:
        again = f"-m {stopping.program}" if stopping.program else "PROGRAM"
        raise UserError(
            f"scale.mode={mode} spreads over the processes of torchrun, and this is one alone; "
            f"start it with `torchrun --nproc-per-node N {again} ...`, or use scale.mode=none"
        )
    _join(timeout, cuda=cuda)
    with silenced(not is_main()):
        yield


def _join(timeout: float, *, cuda: bool) -> None:
    """Join the other processes; UserError where one refuses, or has no GPU of its own."""
    if cuda:
        local = int(os.environ.get("LOCAL_RANK", "0"))
        if local >= torch.cuda.device_count():
            raise UserError(
                f"process {local} of this node finds {torch.cuda.device_count()} GPUs; start as "
                "many processes as there are GPUs (--nproc-per-node)"
            )
        torch.cuda.set_device(local)
    global _broken, _timeout, _joined, _side
    _broken, _timeout, _joined, _side = False, timeout, True, None
    store, own = lost.store_of_torchrun(), dict[str, Any]()
    if store is not None:
        # PyTorch's: a thread that waits for an answer holds up the others of its connection
        joined = lost.store_of_torchrun(timeout)
        own = {"store": joined, "rank": rank(), "world_size": processes()}
        try:
            lost.await_all(store, processes(), timeout)
        except lost.TorchrunGone:
            _broken = True
            raise
    dist.init_process_group(
        "cpu:gloo,cuda:nccl" if cuda else "gloo", timeout=datetime.timedelta(seconds=timeout), **own
    )


def refuse(line: str) -> None:
    """Tell the other ranks why this one does not join them, if it has not."""
    if not _joined and processes() > 1:
        lost.refuse(line)


def prints_last_line() -> bool:
    """Tell whether this rank prints the last line; rank 0 may be gone."""
    rank, local = os.environ.get("RANK", "0"), os.environ.get("LOCAL_RANK")
    return rank == "0" or (_broken and (rank == "1" or local == "0"))


def join_alone(*, cuda: bool) -> None:
    """Make this process a world of one for PyTorch's collectives.

    Does nothing in a world that is there already.

    It stays one rank, and nothing is exchanged. No port is opened.
    """
    if not dist.is_initialized():
        backend = "cpu:gloo,cuda:nccl" if cuda else "gloo"
        dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)


def close() -> None:
    """Leaves the others, once rank 0 has said all there is to say.

    torchrun ends the processes that are left when one has failed, so none may go before it.
    """
    if not _active():
        if dist.is_available() and dist.is_initialized():
            dist.destroy_process_group()
        return
    try:
        if not _broken:
            _exchange(None)
            _exchange(None)
    except Exception:
        _break()
    finally:
        if not _broken:
            dist.destroy_process_group()


def _active() -> bool:
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


def _break() -> None:
    """Speak to no rank any more."""
    global _broken
    _broken = True


def _exchange(value: Any, error: Exception | None = None) -> list[Any]:
    if _broken:
        raise Lost("another rank is gone")
    parts: list[Any] = [None] * size()
    # a signal between the two collectives of an exchange would leave the others waiting
    with stopping.deferred():
        try:
            dist.all_gather_object(parts, (_portable(error), value))
        except RuntimeError as failure:
            _break()
            raise _lost(failure) from (error or failure)
        return _values(parts, error)


def _lost(error: RuntimeError) -> Lost:
    # "[file:line] what happened. What to do about it."
    reason = str(error).partition("] ")[2] or str(error)
    return Lost(f"another rank is gone ({reason.partition('. ')[0]}; torchrun's report says which)")


def _values(parts: list[Any], error: Exception | None) -> list[Any]:
    """What the ranks gave, of (error, value) each; raises the first rank's error."""
    failed = [r for r, (met, _) in enumerate(parts) if met is not None]
    if failed:
        agreed = error if failed[0] == rank() and error else pickle.loads(parts[failed[0]][0])
        setattr(agreed, _MARK, failed[0] if len(failed) < size() else None)
        raise agreed
    return [value for _, value in parts]


def _portable(error: Exception | None) -> bytes | None:
    """The error with its traceback as a note, so that rank 0 can tell it as if it were its own."""
    if error is None:
        return None
    trace = "".join(traceback.format_exception(error))
    try:
        copy = pickle.loads(pickle.dumps(error))
        copy.add_note(trace)
        return pickle.dumps(copy)
    except Exception:
        plain = RuntimeError(f"{type(error).__name__}: {error}")
        plain.add_note(trace)
        return pickle.dumps(plain)
