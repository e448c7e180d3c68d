"""The progress bars of transformers, shown where there is something to wait for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from transformers.utils import logging


@contextmanager
def no_progress_bars(*, keys: bool = True) -> Iterator[None]:
    """Draw no bars, and without `keys` no table of missing keys."""
    shown, before = logging.is_progress_bar_enabled(), logging.get_verbosity()
    logging.disable_progress_bar()
    logging.set_verbosity(before if keys else logging.CRITICAL)
    try:
        yield
    finally:
        logging.set_verbosity(before)
        if shown:
            logging.enable_progress_bar()
