"""Reads the size that a compressed stream says it has, before decoding.

A decoder makes room for what the stream says, whatever the header of the DICOM around it says.
"""

from __future__ import annotations

import re
import struct
from itertools import islice, pairwise

from rrgdata.images.endings import CODESTREAM, MARKERS, SCANS, jpeg_segments

Size = tuple[int, int, int]
"""Rows, columns and components."""

FRAMES = {*range(0xC0, 0xD0), 0xDE, 0xF7} - {0xC4, 0xC8, 0xCC}
"""Second bytes of the markers that begin a frame: JPEG's SOF and DHP, JPEG-LS's SOF."""
_FRAME = re.compile(b"\xff[" + b"".join(b"\\x%02x" % kind for kind in FRAMES) + b"]")
OVERSIZE = b"\xff\xf8", b"\x04"
"""JPEG-LS's marker LSE and its kind that gives a size of its own."""


def jpeg_sizes(data: bytes) -> set[Size]:
    """List every size in a stream of JPEG (all processes), JPEG-LS or JPEG 2000.

    There is one in a stream that is whole. Behind the first scan a frame's marker cannot be pixels,
    since these hold no byte of 0x80 and more after 0xFF.
    """
    place = 0 if data[:4] == CODESTREAM else _codestream(data)
    if place >= 0:
        return {_size_2000(data, place + 4)} if data[place : place + 4] == CODESTREAM else set()
    sizes: set[Size] = set()
    end = len(data)
    for kind, begin in jpeg_segments(data):
        if kind in FRAMES:
            sizes.add(_size(data, begin))
        elif kind == OVERSIZE[0][1] and data[begin + 2 : begin + 3] == OVERSIZE[1]:
            sizes.add((0, 0, 0))
        elif kind in SCANS:
            end = begin
    frames = [*islice(_FRAME.finditer(data, end), MARKERS)]
    # as many are none of any image's, and what comes behind them is not looked at
    more = {(0, 0, 0)} if len(frames) == MARKERS else set()
    return sizes | more | {_size(data, frame.end()) for frame in frames}


def packed_size(segment: bytes, limit: int) -> int:
    """Count the bytes that an RLE segment (PackBits, PS3.5 G.3) decodes to; over `limit`, stop."""
    place = total = 0
    size = len(segment)
    while place < size and total <= limit:
        control = segment[place]
        if control < 128:
            total += min(control + 1, size - place - 1)
            place += control + 2
        else:
            total += 257 - control if control > 128 and place + 1 < size else 0
            place += 2 if control > 128 else 1
    return total


def rle_segments(frame: bytes) -> list[bytes]:
    """Cut a frame of DICOM's RLE into its segments, 15 at most."""
    offsets = [*struct.unpack("<16L", frame[:64].ljust(64, b"\0"))]
    count = min(offsets[0], 15)
    ends = [*offsets[1 : count + 1], len(frame)]
    return [frame[begin:end] for begin, end in pairwise(ends)]


def _codestream(data: bytes) -> int:
    """Return where the codestream of a JP2 file begins, -1 where this is none."""
    if data[4:8] != b"jP  ":
        return -1
    place = 0
    while place + 16 <= len(data):
        length, kind = struct.unpack(">L4s", data[place : place + 8])
        body = 16 if length == 1 else 8
        if kind == b"jp2c":
            # a palette makes of one component as many as it likes
            return len(data) if b"pclr" in data[:place] else place + body
        if length == 1:
            (length,) = struct.unpack(">Q", data[place + 8 : place + 16])
        if length < body:
            break
        place += length
    return len(data)


def _size(data: bytes, begin: int) -> Size:
    _, _, rows, columns, components = struct.unpack(
        ">HBHHB", data[begin : begin + 8].ljust(8, b"\0")
    )
    return rows, columns, components


def _size_2000(data: bytes, begin: int) -> Size:
    fields = struct.unpack(">HH8LH", data[begin : begin + 38].ljust(38, b"\0"))
    right, low, left, high = fields[2:6]
    return low - high, right - left, fields[10]
