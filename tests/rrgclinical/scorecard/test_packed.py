"""Files of reports that a packer wrote, or that never end."""

from __future__ import annotations

import bz2
import gzip
import lzma
from pathlib import Path

import pytest

from rrgclinical.common.errors import UserError
from rrgclinical.scorecard import read_predictions
from tests.rrgtrain.bounded import bounded


def test_a_packed_file_is_told_from_another_encoding(tmp_path: Path) -> None:
    content = b"id,report\n1,Clear lungs.\n"
    packed = {"gzip": gzip.compress(content), "xz": lzma.compress(content)}
    packed |= {"bzip2": bz2.compress(content), "zstd": b"\x28\xb5\x2f\xfd\x24\x00\x81"}
    for packer, data in packed.items():
        path = tmp_path / "p.csv"
        path.write_bytes(data)
        with pytest.raises(UserError, match=f"packed by {packer}; unpack it"):
            read_predictions(path)


def test_a_cell_that_never_ends_takes_four_bytes_for_each_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "long.csv"
    path.write_text('id,report\n1,"' + "x" * 50_000_000 + '"\n')

    def refusal() -> str:
        with pytest.raises(UserError) as error:
            read_predictions(path)
        return str(error.value)

    assert f"{path}:2 is no CSV (field larger than" in bounded(refusal, mib=230, seconds=20)
    # a break that only Unicode knows stays in its cell
    path.write_text('id,report\n1,"A\u2028B\x0bC\x85D\nE"\n2,F')
    (reports,) = read_predictions(path).values()
    assert reports.texts == [["A\u2028B\x0bC\x85D\nE"], ["F"]]
