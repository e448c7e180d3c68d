"""Files of reports that a packer wrote."""

from __future__ import annotations

import bz2
import gzip
import lzma
from pathlib import Path

import pytest

from rrgclinical.common.errors import UserError
from rrgclinical.scorecard import read_predictions


def test_a_packed_file_is_told_from_another_encoding(tmp_path: Path) -> None:
    content = b"id,report\n1,Clear lungs.\n"
    packed = {"gzip": gzip.compress(content), "xz": lzma.compress(content)}
    packed |= {"bzip2": bz2.compress(content), "zstd": b"\x28\xb5\x2f\xfd\x24\x00\x81"}
    for packer, data in packed.items():
        path = tmp_path / "p.csv"
        path.write_bytes(data)
        with pytest.raises(UserError, match=f"packed by {packer}; unpack it"):
            read_predictions(path)
