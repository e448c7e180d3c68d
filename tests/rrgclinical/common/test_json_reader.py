"""JSON that others wrote: read, or refused as a ValueError in one line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rrgclinical.common import json_reader
from rrgclinical.common.json_reader import DEEPEST

BAD: dict[bytes, str] = {
    b"[" * DEEPEST + b"[]" + b"]" * DEEPEST: "nested too deeply",
    b'{"a": ' * DEEPEST + b"{}" + b"}" * DEEPEST: "nested too deeply",
    b'"\xff"': "byte 1 is not UTF-8",
    '{"a": 1}'.encode("utf-16"): "not UTF-8",
    b"9" * 309: "an integer of 309 digits",
    b'{"a": ' + b"9" * 5000 + b"}": "an integer of 5000 digits",
    b"": "Expecting value",
    b"{": "Expecting",
    b"[7]": "JSON of a list, wanted a dict",
    b"null": "JSON of a NoneType, wanted a dict",
}


def test_whatever_is_wrong_is_one_line(tmp_path: Path) -> None:
    for content, told in BAD.items():
        path = tmp_path / "file"
        path.write_bytes(content)
        for read in (
            lambda c=content: json_reader.parse(c, dict),
            lambda p=path: json_reader.read(p, dict),
        ):
            with pytest.raises(ValueError, match=told) as caught:
                read()
            assert "\n" not in str(caught.value)


def test_what_is_right_is_read(tmp_path: Path) -> None:
    right: dict[bytes, Any] = {
        b'\xef\xbb\xbf{"a": "\xc3\xa9"}': {"a": "é"},
        b"9" * 308: int("9" * 308),
        b'["' + b"9" * 400 + b'"]': ["9" * 400],
        b"[NaN]".replace(b"NaN", b"1.5e3"): [1500.0],
    }
    for content, value in right.items():
        assert json_reader.parse(content) == value
    assert float(json_reader.parse(b"9" * 308)) < float("inf")


def test_no_more_of_a_file_is_read_than_a_run_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json_reader, "LARGEST", 8)
    path = tmp_path / "file"
    path.write_bytes(b"[1, 2]")
    assert json_reader.read(path, list) == [1, 2]
    path.write_bytes(b"[1, 2, 3]")
    with pytest.raises(ValueError, match="more than"):
        json_reader.read(path)
    with pytest.raises(ValueError, match="no regular file"):
        json_reader.read("/dev/zero")
    with pytest.raises(IsADirectoryError):
        json_reader.read(tmp_path)
