"""A package that fails is an error of the caller, never a score."""

from __future__ import annotations

import sys

import pytest

from rrgclinical import build_labeller
from rrgclinical.official import OfficialRaTEScore, OracleError, Worker, oracle_python
from rrgtrain.errors import UserError


def test_no_environment_is_told(monkeypatch, tmp_path):
    monkeypatch.setenv("RRGKERN_ORACLE_PYTHON", str(tmp_path / "python"))
    with pytest.raises(UserError, match="no python at .*: .* run `make oracle`, or name") as caught:
        oracle_python()
    assert "\n" not in str(caught.value)
    with pytest.raises(UserError, match="no python at"):
        Worker()
    with pytest.raises(UserError, match="set reward.options.chexbert.weights=PATH"):
        build_labeller("chexbert-official")


def test_what_the_worker_raises_is_raised_here():
    worker = Worker(sys.executable)
    with pytest.raises(OracleError, match="nonsense: KeyError: 'nonsense'"):
        worker.call("nonsense")
    # It goes on answering.
    with pytest.raises(OracleError, match="chexbert_labels: IndexError: list index out of range"):
        worker.call("chexbert_labels", model=0, reports=["a"])
    with pytest.raises(OracleError, match="TypeError: .*unexpected keyword argument 'text'"):
        worker.call("chexbert_labels", text="a")
    worker.close()
    with pytest.raises(OracleError, match="the oracle process is closed"):
        worker.call("chexbert_labels", reports=["a"])


def test_a_worker_that_ends_is_told():
    worker = Worker(sys.executable)
    worker._process.kill()
    worker._process.wait()
    with pytest.raises(OracleError, match=r"the oracle process ended with -9 \(silent\)"):
        worker.call("chexbert_labels", reports=["a"])


def test_a_worker_that_says_why_it_ended_is_quoted(tmp_path):
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\necho one >&2\necho the last word >&2\nexit 3\n")
    broken.chmod(0o755)
    with pytest.raises(OracleError, match=r"ended with 3 \(the last word\)"):
        Worker(broken).call("chexbert_labels", reports=["a"])


def test_a_worker_that_hangs_is_ended(tmp_path):
    silent = tmp_path / "python"
    silent.write_text("#!/bin/sh\nexec sleep 60\n")
    silent.chmod(0o755)
    worker = Worker(silent, timeout=0.2)
    with pytest.raises(OracleError, match="no answer from the oracle process in 0.2 s"):
        worker.call("chexbert_labels", reports=["a"])
    assert worker._process.poll() is not None


def test_it_ends_with_the_object():
    worker = Worker(sys.executable)
    running, folder = worker._process, worker.folder
    assert folder.is_dir()
    del worker
    assert running.wait(10) == -9
    assert not folder.exists()


def test_folders_that_are_not_there(tmp_path):
    with pytest.raises(UserError, match="ratescore: no folder nowhere"):
        OfficialRaTEScore("nowhere", tmp_path)
