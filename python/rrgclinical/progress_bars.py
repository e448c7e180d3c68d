"""The progress bars of transformers, shown where there is something to wait for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from transformers.utils import logging


@contextmanager
def no_progress_bars() -> Iterator[None]:
    """Reading or writing a small checkpoint draws no bars; the setting is restored."""
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


@contextmanager
def no_key_tables() -> Iterator[None]:
    """Silence transformers' table of missing and foreign keys, which the caller names itself."""
    before = logging.get_verbosity()
    logging.set_verbosity(logging.CRITICAL)
    try:
        yield
    finally:
        logging.set_verbosity(before)
