"""Makes grey of a DICOM image's stored values: modality, value table or window, polarity.

The tables are those of PS3.3 C.11.1 (values) and C.11.2 (window).
A window or table that shows nothing, every pixel being of one grey behind it, is a fact of the
header and not of the picture; so is a value table that is cut short. The next one is used, at last
the range of the values, and a note says so. A window of no width is none, with a note, and one of
centre 0 and width 0 or 1 stands for none.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from pydicom.dataset import Dataset

from rrgclinical.common.errors import UserError

SHOWS_NOTHING = (
    "have a window or value table that shows nothing of the pixels; the next one is used, at last "
    "the range of the values"
)
TRIED = 8
"""Tables, and windows, that are tried: each of them is a pass over all pixels."""
CUT_SHORT = "have a value table (VOI LUT) that cannot be read; the window is used"
INVERTED = "are MONOCHROME1 or INVERSE and were inverted; a PNG of their stored values is not"

Grey = Callable[[np.ndarray], np.ndarray]
"""Values of any shape to uint8 of the same."""
Span = tuple[float, float]
"""The least and the greatest value that can come in."""
AT_ONCE = 1 << 20
"""Values that are float64 at once."""


def grey_of(stored: np.ndarray, dataset: Dataset) -> tuple[np.ndarray, tuple[str, ...]]:
    """Return uint8 of the shape of `stored`, bone white and padding black, and notes.

    In the order of PS3.3 C.11: rescale slope and intercept or the modality table; then the value
    table, else the window, the first of several (TRIED) that shows something, else the range of the
    values; then inverted once, where PhotometricInterpretation is MONOCHROME1 or
    PresentationLUTShape is INVERSE (C.11.6). Raises UserError, which does not name the file, for a
    header by which no picture can be made.
    """
    little = dataset.original_encoding[1] is not False
    padding = _padding(stored, dataset)
    values, span = _values(stored, dataset, little)
    inside = values[~padding] if padding.any() else values
    low, high = (inside.min(), inside.max()) if inside.size else (0.0, 0.0)
    del inside
    if low == high and not padding.all() and np.ptp(stored[~padding]):
        raise UserError(
            "the rescale slope or the modality table gives every pixel the same value, though "
            "stored values differ; correct the header"
        )
    notes: list[str] = []
    for grey in _asked(dataset, little, span, notes):
        shown = np.empty(values.shape, dtype=np.uint8)
        for rows in row_blocks(values):
            shown[rows] = grey(values[rows])
        if low == high or np.ptp(shown[~padding]):
            break
        notes.append(SHOWS_NOTHING)
    else:
        shown = to_8_bits(values, low, high)
    shape = str(dataset.get("PresentationLUTShape") or "").strip().upper()
    if shape == "INVERSE" or str(dataset.PhotometricInterpretation).strip() == "MONOCHROME1":
        shown = 255 - shown
        notes.append(INVERTED)
    shown[padding] = 0
    return shown, tuple(dict.fromkeys(notes))


def _values(stored: np.ndarray, dataset: Dataset, little: bool) -> tuple[np.ndarray, Span]:
    """Apply the modality table, else slope and intercept; float64, and the span there can be."""
    bits = int(dataset.BitsStored)
    least = -(2 ** (bits - 1)) if dataset.PixelRepresentation else 0
    ends = (float(least), float(least + 2**bits - 1))
    tables, broken = read_tables(dataset.get("ModalityLUTSequence") or (), little, ends)
    if tables:
        return tables[0](stored).astype(np.float64), (0.0, 65535.0)
    if broken:
        # windows are in its units, so that nothing can stand for it
        raise UserError(f"the modality table (Modality LUT) {broken}; export the file again")
    slope, intercept = _one(dataset, "RescaleSlope", 1.0), _one(dataset, "RescaleIntercept", 0.0)
    low, high = sorted(slope * end + intercept for end in ends)
    if not math.isfinite(high - low):
        raise UserError(
            f"the rescale slope is {slope:g}, the intercept {intercept:g}; wanted numbers that "
            "leave the values finite: correct the header"
        )
    values = stored.astype(np.float64)
    values *= slope
    values += intercept
    return values, (low, high)


def _asked(dataset: Dataset, little: bool, span: Span, notes: list[str]) -> Iterator[Grey]:
    """Yield what the header asks for, the first choice first: value tables, then windows."""
    tables, broken = read_tables(dataset.get("VOILUTSequence") or (), little, span)
    yield from (table.grey() for table in tables[:TRIED])
    centres, widths = _numbers(dataset, "WindowCenter"), _numbers(dataset, "WindowWidth")
    windows = [
        (centre, width)
        for centre, width in zip(centres, widths, strict=False)
        if not (centre == 0.0 and width in (0.0, 1.0))
    ]
    if broken and not tables:
        if not windows:
            raise UserError(
                f"the value table (VOI LUT) {broken}, and no window is there; export the file "
                "again, or remove VOILUTSequence"
            )
        notes.append(CUT_SHORT)
    if any(width == 0.0 for _, width in windows):
        notes.append(SHOWS_NOTHING)
        windows = [(centre, width) for centre, width in windows if width]
    function = str(dataset.get("VOILUTFunction") or "LINEAR").strip().upper()
    for centre, width in windows[:TRIED]:
        yield _window(centre, width, function)


def _window(centre: float, width: float, function: str) -> Grey:
    if function not in ("LINEAR", "LINEAR_EXACT", "SIGMOID"):
        raise UserError(f"window function {function!r}; wanted LINEAR, LINEAR_EXACT or SIGMOID")
    least = 1.0 if function == "LINEAR" else 0.0
    if not (math.isfinite(centre) and least <= width < math.inf):
        raise UserError(
            f"window width {width:g}, centre {centre:g}; wanted a width of at least 1, or no window"
        )
    if function == "SIGMOID":
        return lambda values: to_8_bits(
            1.0 / (1.0 + np.exp(np.clip(-4.0 * (values - centre) / width, -60, 60))), 0.0, 1.0
        )
    if function == "LINEAR":
        # PS3.3 C.11.2.1.2.1: the window covers width - 1 steps around centre - 0.5.
        centre, width = centre - 0.5, width - 1.0
    low = centre - 0.5 * width
    if width == 0:
        return lambda values: np.where(values > low, 255, 0).astype(np.uint8)
    return lambda values: to_8_bits(values, low, low + width)


def _numbers(dataset: Dataset, name: str) -> list[float]:
    value: Any = None
    try:
        # pydicom reads a number when it is asked for, and raises there
        value = dataset.get(name)
        if value is None or (isinstance(value, str) and not value.strip()):
            return []
        return [float(number) for number in np.ravel(value)]
    except (TypeError, ValueError) as error:
        shown = " ".join(str(error).split()) if value is None else repr(str(value))
        raise UserError(
            f"{name} is {shown[:60]}; wanted a number: correct it, or leave it out"
        ) from None


def _one(dataset: Dataset, name: str, default: float) -> float:
    """Return the number of an element that has one; UserError for several that differ."""
    numbers = _numbers(dataset, name)
    if len(set(numbers)) > 1:
        listed = ", ".join(f"{number:g}" for number in numbers[:3])
        raise UserError(f"{name} has {len(numbers)} values ({listed}); wanted one")
    return numbers[0] if numbers else default


def _padding(stored: np.ndarray, dataset: Dataset) -> np.ndarray:
    """Find the pixels that are no picture; UserError where that would be all of several values."""
    if not _numbers(dataset, "PixelPaddingValue"):
        return np.zeros(stored.shape, dtype=bool)
    first = _one(dataset, "PixelPaddingValue", 0.0)
    ends = [first, _one(dataset, "PixelPaddingRangeLimit", first)]
    if dataset.PixelRepresentation:
        # some writers give the bits of a negative value as an unsigned number
        size = 2 ** int(dataset.BitsAllocated)
        ends = [end - size if end >= size // 2 else end for end in ends]
    padding = (stored >= min(ends)) & (stored <= max(ends))
    if padding.all() and np.ptp(stored):
        raise UserError(
            f"PixelPaddingValue {ends[0]:g} to {ends[1]:g} takes every pixel for padding; correct "
            "PixelPaddingRangeLimit, or leave it out"
        )
    return padding


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


def to_8_bits(values: np.ndarray, low: float, high: float) -> np.ndarray:
    """Map values to uint8 of the same shape.

    `low` and less become 0, `high` and more 255, linear and rounded between. An
    empty range gives zeros.
    """
    if high <= low:
        return np.zeros(values.shape, dtype=np.uint8)
    shown = np.empty(values.shape, dtype=np.uint8)
    for rows in row_blocks(values):
        scaled = (values[rows].astype(np.float64) - low) * (255.0 / (high - low))
        shown[rows] = (np.clip(scaled, 0.0, 255.0) + 0.5).astype(np.uint8)
    return shown


def row_blocks(values: np.ndarray) -> Iterator[slice]:
    """Yield slices of the first dimension that hold about AT_ONCE values each."""
    step = max(1, AT_ONCE * len(values) // max(1, values.size))
    yield from (slice(begin, begin + step) for begin in range(0, len(values), step))
