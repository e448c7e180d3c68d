"""Reads the lookup tables of DICOM, for values and for the window (PS3.3 C.11.1, C.11.2)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
from pydicom.dataset import Dataset

from rrgdata.images.grey import to_8_bits

Span = tuple[float, float]
"""The least and the greatest value that can come in."""


@dataclass(frozen=True)
class LookupTable:
    """Map values to entries: `[n]` numbers, the first one for `first` and whatever is less."""

    first: int
    entries: np.ndarray
    bits: int

    def grey(self) -> LookupTable:
        """Scale the entries to uint8, white being the greatest number of `bits` bits.

        Many writers give the bits that entries are stored in instead, 8 or 16. So the greatest
        entry is white where its own bits are fewer or more.
        """
        greatest = int(self.entries.max())
        white = 2**self.bits - 1 if greatest.bit_length() == self.bits else greatest
        return replace(self, entries=to_8_bits(self.entries, 0.0, white))

    def __call__(self, values: np.ndarray) -> np.ndarray:
        """Look values of any shape up, rounded."""
        index = np.clip(np.rint(values) - self.first, 0, len(self.entries) - 1)
        return self.entries[index.astype(np.int64)]


def read_tables(
    items: Iterable[Dataset], little: bool, span: Span
) -> tuple[list[LookupTable], str]:
    """Read the tables of a sequence; return why one is broken too, or "".

    Items without a table are passed over.

    little: whether the file is little endian.
    span: of the values that are looked up.
    """
    tables, broken = [], ""
    for item in items:
        if not isinstance(item, Dataset):
            return [], "is no sequence of items"
        if item.get("LUTDescriptor") is None and item.get("LUTData") is None:
            continue
        read = _read(item, little, span)
        if isinstance(read, LookupTable):
            tables.append(read)
        else:
            broken = broken or read
    return tables, broken


def _read(item: Dataset, little: bool, span: Span) -> LookupTable | str:
    descriptor = _words(item, "LUTDescriptor", little)[0].tolist()
    if len(descriptor) != 3:
        return f"has a descriptor of {len(descriptor)} values; wanted 3"
    count, first, bits = descriptor[0] or 65536, descriptor[1], descriptor[2]
    words, size = _words(item, "LUTData", little)
    if len(words) >= count:
        entries = words[:count]
    elif bits <= 8 and size in (count, count + 1):
        # a byte an entry: the first one is the low byte of its word in either byte order
        entries = words.astype("<u2").view(np.uint8)[:count].astype(np.uint16)
    else:
        return f"is cut short: {size} bytes for {count} entries of {bits} bits"
    return LookupTable(_first_value(first, count, span), entries, bits)


def _words(item: Dataset, name: str, little: bool) -> tuple[np.ndarray, int]:
    """Return an element as uint16 `[n]` and its size in bytes, whatever its VR."""
    value = item.get(name)
    if not isinstance(value, bytes):
        numbers = [] if value is None else np.ravel(value).tolist()
        return np.array([int(n) & 0xFFFF for n in numbers], dtype=np.uint16), 2 * len(numbers)
    size = len(value)
    if size % 2:  # the padding is forgotten; the last byte is the low one of its word
        value = value + b"\0" if little else value[:-1] + b"\0" + value[-1:]
    return np.frombuffer(value, "<u2" if little else ">u2").astype(np.uint16), size


def _first_value(word: int, count: int, span: Span) -> int:
    """Read the first mapped value as signed or unsigned, by the values that can come in.

    PS3.3 has it by PixelRepresentation and the rescaled range, but not all writers give it the VR
    that says so. Where both can be, it is the one whose entries are met by more values.
    """
    low, high = span
    signed = word - 65536 if word >= 32768 else word

    def met(first: int) -> float:
        return min(high, first + count - 1) - max(low, first)

    return word if low >= 0 or met(word) > met(signed) else signed
