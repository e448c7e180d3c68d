"""Finds out whether PNG and JPEG are there to their end, whatever lies behind it.

Decoders fill up what is missing, and say nothing where a copy that broke off was filled with zeros.
"""

from __future__ import annotations

import struct
from pathlib import Path

PNG_SIGNATURE = 8
"""Bytes before the first chunk."""
JPEG_END = b"\xff\xd9"
BEGINNINGS = (b"\xff\xd8", b"\xff\x4f")
"""Of JPEG and JPEG-LS, and of a JPEG 2000 codestream, which may lie in the boxes of a JP2."""
CODESTREAM = b"\xff\x4f\xff\x51"
SCANS = (0xDA, 0x93)
"""Second bytes of the markers behind which the pixels lie: of JPEG and JPEG-LS, of JPEG 2000."""
ALONE = (0x01, *range(0xD0, 0xD9))
"""Second bytes of markers without a length."""


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
    """Tell whether a JPEG stream has its end marker behind its pixels.

    JPEG-LS and JPEG 2000 too. Thumbnails, which have an end of their own, lie before the pixels.
    """
    place = 2 if data[:2] in BEGINNINGS else data.find(CODESTREAM) + 2
    while 2 <= place <= len(data) - 4:
        mark, kind, length = struct.unpack(">BBH", data[place : place + 4])
        if mark != 0xFF or kind == 0:
            # decoders pass over what stands between segments
            place = data.find(b"\xff", place + 1)
        elif kind in SCANS:
            return data.find(JPEG_END, place + 2) >= 0
        elif kind == 0xFF:
            place += 1
        else:
            place += 2 if kind in ALONE else 2 + length
    return False
