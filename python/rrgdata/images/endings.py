"""Finds out whether PNG and JPEG are there to their end, whatever lies behind it.

Decoders fill up what is missing, and say nothing where a copy that broke off was filled with zeros:
its end marker is looked for, behind its pixels. Not found out is a stream that somebody ended so.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from pathlib import Path

from rrgclinical.common.errors import UserError

PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
CHUNKS = 100_000
"""Chunks of a PNG, each of which takes Pillow some reads; encoders put 4 KiB and more into one."""
JPEG_END = b"\xff\xd9"
BEGINNINGS = (b"\xff\xd8", b"\xff\x4f")
"""Of JPEG and JPEG-LS, and of a JPEG 2000 codestream, which may lie in the boxes of a JP2."""
CODESTREAM = b"\xff\x4f\xff\x51"
SCANS = (0xDA, 0x93)
"""Second bytes of the markers behind which the pixels lie: of JPEG and JPEG-LS, of JPEG 2000."""
ALONE = (0x01, *range(0xD0, 0xD9))
"""Second bytes of markers without a length."""
MARKERS = 10_000
"""Markers of a JPEG; an embedded colour profile takes at most 255."""
BETWEEN = 1 << 16
"""Bytes that are no segment, before the first scan: Pillow passes over them one by one."""
HEADER = 1 << 24
"""Bytes before the first scan: thumbnails, colour profiles."""
MOST_SCANS = 100
"""Scans of a JPEG, as in libtiff; each is a pass over all pixels. libjpeg writes 10 at most."""
IN_SCAN = re.compile(rb"\xff[\x80-\xcf\xd8-\xfe]")
"""A marker behind a scan's header: the pixels hold, behind 0xFF, but less or a restart."""


def png_ends(file: Path) -> bool:
    """Tell whether a PNG's chunks lead to its IEND; UserError as `_png_chunks`."""
    return b"IEND" in _png_chunks(file)


def _png_chunks(file: Path) -> Iterator[bytes]:
    """Yield the kind of each chunk of a PNG; UserError, without the file's name, for too many."""
    size = file.stat().st_size
    with file.open("rb") as stream:
        place = len(PNG_SIGNATURE)
        for _ in range(CHUNKS):
            if place + 12 > size:
                return
            stream.seek(place)
            length, kind = struct.unpack(">L4s", stream.read(8))
            yield kind
            place += 12 + length
    raise UserError(f"the PNG has more than {CHUNKS} chunks; save the image again")


def check_beginning(file: Path) -> None:
    """Raise UserError for a JPEG or PNG on whose header Pillow would dwell.

    It does not name the file. Others pass, and so do those that end in their header.
    """
    with file.open("rb") as stream:
        head = stream.read(BETWEEN)
        if head.startswith(PNG_SIGNATURE):
            _ = b"IDAT" in _png_chunks(file)
        if head[:2] != BEGINNINGS[0]:
            return
        for size in (0, HEADER):
            head += stream.read(size)
            if any(kind in SCANS for kind, _ in jpeg_segments(head)):
                return
        if len(head) > HEADER:
            raise UserError(
                f"the JPEG has no pixels in its first {HEADER} bytes; save it again without "
                "what is embedded"
            )


def jpeg_segments(data: bytes, place: int = 2) -> Iterator[tuple[int, int]]:
    """Yield the second byte of each marker to the first scan, and its length's place.

    Raises UserError, without the file's name, for more than MARKERS or BETWEEN.
    """
    count = between = 0
    while 2 <= place <= len(data) - 4:
        mark, kind, length = struct.unpack(">BBH", data[place : place + 4])
        if mark != 0xFF or kind in (0, 0xFF):
            # decoders pass over what stands between segments, and fill bytes
            begin = place
            if kind == 0xFF:
                part = data[place : place + BETWEEN + 1]
                place += max(1, len(part) - len(part.lstrip(b"\xff")) - 1)
            else:
                place = data.find(b"\xff", place + 1)
            between += (place if place >= 0 else len(data)) - begin
            if between > BETWEEN:
                raise UserError(
                    f"more than {BETWEEN} bytes stand between the segments of the JPEG; save the "
                    "image again"
                )
            continue
        count = _one_more(count)
        yield kind, place + 2
        if kind in SCANS:
            return
        place += 2 if kind in ALONE else 2 + length


def _one_more(count: int) -> int:
    """Count a marker; UserError for too many."""
    if count >= MARKERS:
        raise UserError(f"the JPEG has more than {MARKERS} markers; save the image again")
    return count + 1


def jpeg_ends(data: bytes) -> bool:
    """Tell whether a JPEG stream has its end marker behind its pixels.

    JPEG-LS and JPEG 2000 too. Thumbnails, which have an end of their own, lie before the pixels.

    Raises UserError, without the file's name, for more scans or markers than an image has.
    """
    place = 2 if data[:2] in BEGINNINGS else data.find(CODESTREAM) + 2
    for kind, begin in jpeg_segments(data, place):
        if kind == SCANS[0]:
            return _scans_end(data, begin)
        if kind in SCANS:
            return data.find(JPEG_END, begin) >= 0
    return False


def _scans_end(data: bytes, place: int) -> bool:
    """Tell whether scans lead to an end; `place` is where the length of the first one stands."""
    kind, scans, count = SCANS[0], 0, 0
    while kind != JPEG_END[1]:
        scans, count = scans + (kind == SCANS[0]), _one_more(count)
        if scans > MOST_SCANS:
            raise UserError(
                f"the JPEG has more than {MOST_SCANS} scans, each of which is a pass over all "
                "pixels; save it again, not progressive"
            )
        length = 0 if kind in ALONE else int.from_bytes(data[place : place + 2], "big")
        marker = IN_SCAN.search(data, place + length)
        if marker is None:
            return False
        kind, place = data[marker.start() + 1], marker.end()
    return True
