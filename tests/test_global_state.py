"""A test that leaves a global setting changed fails, whichever setting it is."""

from __future__ import annotations

import csv
import locale
import os
import signal

import numpy as np
import pytest
import torch

from tests.global_state import unchanged

CHANGES = {
    "torch default dtype": (
        lambda: torch.set_default_dtype(torch.bfloat16),
        lambda: torch.set_default_dtype(torch.float32),
    ),
    "torch default device": (
        lambda: torch.set_default_device("meta"),
        lambda: torch.set_default_device(None),
    ),
    "torch grad mode": (
        lambda: torch.set_grad_enabled(False),
        lambda: torch.set_grad_enabled(True),
    ),
    "torch anomaly mode": (
        lambda: torch.autograd.set_detect_anomaly(True),
        lambda: torch.autograd.set_detect_anomaly(False),
    ),
    "torch autocast": (
        lambda: torch.set_autocast_enabled("cpu", True),
        lambda: torch.set_autocast_enabled("cpu", False),
    ),
    "torch deterministic algorithms": (
        lambda: torch.use_deterministic_algorithms(True),
        lambda: torch.use_deterministic_algorithms(False),
    ),
    "torch matmul precision": (
        lambda: torch.set_float32_matmul_precision("medium"),
        lambda: torch.set_float32_matmul_precision("highest"),
    ),
    "torch denormals": (
        lambda: torch.set_flush_denormal(True),
        lambda: torch.set_flush_denormal(False),
    ),
    "torch print options": (
        lambda: torch.set_printoptions(precision=2),
        lambda: torch.set_printoptions(profile="default"),
    ),
    "NumPy errors": (lambda: np.seterr(all="raise"), lambda: np.seterr(all="warn", under="ignore")),
    "NumPy print options": (
        lambda: np.set_printoptions(precision=2),
        lambda: np.set_printoptions(precision=8),
    ),
    "longest cell of a CSV": (
        lambda: csv.field_size_limit(2**20),
        lambda: csv.field_size_limit(2**17),
    ),
    "environment RRGKERN_PLANTED": (
        lambda: os.environ.update(RRGKERN_PLANTED="1"),
        lambda: os.environ.pop("RRGKERN_PLANTED"),
    ),
    "SIGTERM": (
        lambda: signal.signal(signal.SIGTERM, signal.SIG_IGN),
        lambda: signal.signal(signal.SIGTERM, signal.SIG_DFL),
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_planted_change_is_named(name):
    change, restore = CHANGES[name]
    try:
        with pytest.raises(AssertionError, match=f"state changed: {name} was"), unchanged():
            change()
    finally:
        restore()


def test_a_number_of_threads_is_named():
    threads = torch.get_num_threads()
    try:
        with pytest.raises(AssertionError, match="torch threads was"), unchanged():
            torch.set_num_threads(threads + 1)
    finally:
        torch.set_num_threads(threads)


def test_a_locale_is_named():
    before = locale.setlocale(locale.LC_NUMERIC)
    other = "C.UTF-8" if before == "C" else "C"
    try:
        with pytest.raises(AssertionError, match="locale was"), unchanged():
            locale.setlocale(locale.LC_NUMERIC, other)
    finally:
        locale.setlocale(locale.LC_NUMERIC, before)


def test_a_working_directory_is_named(tmp_path):
    before = os.getcwd()
    try:
        with pytest.raises(AssertionError, match="working directory was"), unchanged():
            os.chdir(tmp_path)
    finally:
        os.chdir(before)


def test_what_is_put_back_passes(monkeypatch):
    with unchanged(), monkeypatch.context() as patch:
        patch.setenv("RRGKERN_PLANTED", "1")
        patch.chdir("/")


def test_every_test_is_watched(request):
    assert "_global_state_stays" in request.fixturenames
