"""Tensors to disk in the safetensors format, one at a time and hashed on the way.

`safetensors.torch.save_file` wants every tensor in host memory at once and reports a full disk as
an error of its own; a checkpoint of weights and optimiser is too large for the one, and must be
told from other failures for the other.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import IO

import torch
from safetensors.torch import load_file

DTYPES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.float8_e4m3fn: "F8_E4M3",
    torch.float8_e5m2: "F8_E5M2",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}


class HashedFile:
    """A new file whose content is hashed while it is written, and on the disk when it is closed."""

    def __init__(self, path: Path) -> None:
        self._file: IO[bytes] = path.open("xb")
        self._hash = hashlib.sha256()
        self.size = 0

    def write(self, data: bytes | memoryview) -> None:
        self._file.write(data)
        self._hash.update(data)
        self.size += len(data)

    @property
    def digest(self) -> str:
        return self._hash.hexdigest()

    def __enter__(self) -> HashedFile:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self._file.flush()
                os.fsync(self._file.fileno())
        finally:
            self._file.close()


def write_tensors(file: HashedFile, tensors: Mapping[str, torch.Tensor]) -> None:
    """Writes `tensors` of any device; each is on the host only while it is written.

    Raises TypeError for a dtype that the format lacks, OSError where the disk refuses.
    """
    header: dict[str, dict[str, object]] = {}
    end = 0
    for name, tensor in tensors.items():
        if tensor.dtype not in DTYPES:
            raise TypeError(
                f"{name} is {tensor.dtype}; wanted one of {', '.join(map(str, DTYPES))}"
            )
        begin, end = end, end + tensor.numel() * tensor.element_size()
        header[name] = {
            "dtype": DTYPES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [begin, end],
        }
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    file.write(len(text).to_bytes(8, "little"))
    file.write(text)
    for tensor in tensors.values():
        flat = tensor.detach().contiguous().cpu().reshape(-1)
        if flat.numel():
            file.write(flat.view(torch.uint8).numpy().data)


def read_tensors(path: Path) -> dict[str, torch.Tensor]:
    """The tensors of a file, on the CPU."""
    return load_file(path)
