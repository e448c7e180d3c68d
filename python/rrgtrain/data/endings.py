"""Finds out whether PNG and JPEG are there to their end, whatever lies behind it.

Decoders fill up what is missing, and say nothing where a copy that broke off was filled with zeros.
"""

from __future__ import annotations

import struct
from pathlib import Path

PNG_SIGNATURE = 8
"""Bytes before the first chunk."""
JPEG_END = b"\xff\xd9"
SCANS = (0xDA, 0x93)
"""Second bytes of the markers behind which the pixels lie: of JPEG and JPEG-LS, of JPEG 2000."""


def png_ends(file: Path) -> bool:
    """Tell whether a PNG's chunks lead to its IEND."""
    size = file.stat().st_size
    with file.open("rb") as stream:
        place = PNG_SIGNATURE
        while place + 12 <= size:
            stream.seek(place)
            length, kind = struct.unpack(">L4s", stream.read(8))
            if kind == b"IEND":
                return True
            place += 12 + length
    return False


def jpeg_ends(data: bytes) -> bool:
    """Tell whether a JPEG, JPEG-LS or JPEG 2000 stream has its end marker behind its pixels.

    Thumbnails, which have an end of their own, lie in the segments before.
    """
    place = 2
    while place + 4 <= len(data):
        mark, kind, length = struct.unpack(">BBH", data[place : place + 4])
        if mark != 0xFF:
            break
        if kind in SCANS:
            return data.find(JPEG_END, place + 2) >= 0
        # fill bytes may stand before a marker
        place += 1 if kind == 0xFF else 2 + length
    return False
