"""Finds out a JPEG whose pixels break off, though it has an end marker.

libjpeg makes the blocks that are missing grey, and Pillow passes its warning over. So where the
last pixel is of that grey, the pixels are decoded once more without the end marker: those that are
there come out, and those that are missing do not. Not found out are a few missing blocks or bits at
the end. A progressive JPEG gets coarse instead, where scans that would refine its brightness are
missing: their headers tell. Not found out are bits that its last scan lacks. Of 12-bit and lossless
JPEG, JPEG-LS and JPEG 2000 the end marker alone is looked for.
"""

from __future__ import annotations

import io
from contextlib import suppress

from PIL import Image

from rrgdata.images.endings import IN_SCAN, JPEG_END, SCANS, jpeg_segments

PROGRESSIVE = 0xC2
"""Second byte of the marker of a frame whose scans refine each other."""
COEFFICIENTS, UNSENT = 64, 99
GREY = 128
"""A sample of a block without coefficients, in 8 bits."""
SEQUENTIAL = (0xC0, 0xC1)
"""Second bytes of the markers of a frame whose pixels are coded from left to right."""
LOOK_AHEAD = 16
"""Bytes behind the pixels, of which libjpeg asks for at most 8 before it decodes the last ones."""


def is_suspect(image: Image.Image) -> bool:
    """Tell whether the last pixel of a decoded JPEG may be one that is missing."""
    pixel = image.getpixel((image.width - 1, image.height - 1))
    return image.mode in ("L", "RGB") and pixel in (GREY, (GREY,) * 3)


def is_closed_early(data: bytes) -> bool:
    """Tell whether a JPEG that another decoder reads breaks off before its end marker."""
    with suppress(OSError), Image.open(io.BytesIO(data), formats=("JPEG",)) as image:
        image.draft(image.mode, (1, 1))  # an eighth of the sides shows the last block too
        image.load()
        return is_suspect(image) and is_cut_short(data)
    return False


def is_cut_short(data: bytes) -> bool:
    """Tell whether the pixels of a suspect JPEG break off.

    One of several scans never does here.
    """
    end, sequential = 0, False
    for kind, begin in jpeg_segments(data):
        sequential = sequential or kind in SEQUENTIAL
        if kind == SCANS[0] and sequential:
            length = int.from_bytes(data[begin : begin + 2], "big")
            marker = IN_SCAN.search(data, begin + length)
            if marker and data.startswith(JPEG_END, marker.start()):
                end = marker.start()
    if not end:
        return False
    with Image.open(io.BytesIO(data), formats=("JPEG",)) as image:
        image.load()
        if not is_suspect(image):  # it was so in another size alone
            return False
    with Image.open(io.BytesIO(data[:end] + bytes(LOOK_AHEAD)), formats=("JPEG",)) as image:
        with suppress(OSError):  # of the end marker, or of pixels that are missing
            image.load()
        # what was not decoded is black: room is made of zeros
        image.tile = []
        return not is_suspect(image)


def is_coarse(data: bytes) -> bool:
    """Tell whether a progressive JPEG lacks scans of its first component."""
    component, lacking = -1, list[int]()
    place = len(data)
    for kind, begin in jpeg_segments(data):
        if kind == PROGRESSIVE:
            component, lacking = data[begin + 8], [UNSENT] * COEFFICIENTS
        place = begin
    kind = SCANS[0]
    while kind != JPEG_END[1]:
        length = int.from_bytes(data[place : place + 2], "big")
        header = data[place + 2 : place + length]
        refines = kind == SCANS[0] and header and component in header[1:][: 2 * header[0] : 2]
        if refines and not _refine(lacking, header):
            return False
        marker = IN_SCAN.search(data, place + length)
        if marker is None:
            return True
        kind, place = data[marker.start() + 1], marker.end()
    return any(lacking)


def _refine(lacking: list[int], header: bytes) -> bool:
    """Write the bits that each coefficient lacks behind a scan, by its header (T.81 B.2.3).

    False for one that does not go on where the last one ended: decoders differ in what they show.
    """
    first, last, bits = header[1 + 2 * header[0] :][:3].ljust(3, b"\0")
    span = slice(first, min(last, COEFFICIENTS - 1) + 1)
    goes_on = set(lacking[span]) <= {bits >> 4 or UNSENT}
    lacking[span] = [bits & 15] * len(lacking[span])
    return goes_on
