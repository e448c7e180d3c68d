"""Tensors on disk: what is written is what safetensors reads, in every dtype and shape."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from rrgtrain.state.tensorfile import DTYPES, HashedFile, read_tensors, write_tensors


def test_every_dtype_and_shape_comes_back(tmp_path: Path) -> None:
    values = torch.arange(-6, 6)
    tensors = {f"t.{d}": values.to(d).reshape(3, 4) for d in DTYPES if "e8m0" not in str(d)}
    tensors |= {
        "scalar": torch.tensor(2.5),
        "empty": torch.zeros(0, 4),
        "strided": torch.arange(12.0).reshape(3, 4).t(),
        "expanded": torch.tensor([1.0]).expand(5),
        "nan": torch.tensor([float("nan"), float("inf")]),
        "trained": torch.ones(2, requires_grad=True),
    }
    path = tmp_path / "t.safetensors"
    with HashedFile(path) as file:
        write_tensors(file, tensors)
    assert file.size == path.stat().st_size
    assert file.digest == hashlib.sha256(path.read_bytes()).hexdigest()
    for found in (read_tensors(path), load_file(path)):
        assert set(found) == set(tensors)
        for name, tensor in tensors.items():
            assert found[name].dtype == tensor.dtype and found[name].shape == tensor.shape
            left, right = found[name].detach(), tensor.detach().contiguous()
            assert (
                left.view(-1).view(torch.uint8).tolist()
                == right.view(-1).view(torch.uint8).tolist()
            ), name


def test_a_dtype_the_format_lacks_is_named(tmp_path: Path) -> None:
    with (
        pytest.raises(TypeError, match="z is torch.complex64; wanted one of torch.float64"),
        HashedFile(tmp_path / "t") as file,
    ):
        write_tensors(file, {"z": torch.zeros(2, dtype=torch.complex64)})


def test_a_file_is_never_written_over(tmp_path: Path) -> None:
    (tmp_path / "t").write_text("there")
    with pytest.raises(FileExistsError):
        HashedFile(tmp_path / "t")
