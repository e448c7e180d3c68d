"""DICOM radiographs as 8-bit grey, upright."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pydicom
from pydicom.dataset import Dataset
from pydicom.errors import InvalidDicomError
from pydicom.pixels import apply_modality_lut, apply_voi

from rrgtrain.data.grey import to_8_bits
from rrgtrain.errors import UserError

PHOTOMETRIC = ("MONOCHROME1", "MONOCHROME2")


def is_dicom(file: Path) -> bool:
    """Tell whether a file has DICOM's magic number, or ends in .dcm or .dicom."""
    with file.open("rb") as stream:
        head = stream.read(132)
    return head[128:] == b"DICM" or file.suffix.lower() in (".dcm", ".dicom")


def read_dicom(file: Path) -> np.ndarray:
    """One grey frame, uint8 `[height, width]`, bone white.

    In the order of DICOM PS3.3 C.11: rescale slope and intercept or the modality table; then the
    value table, else the first window, else the range of the values; then MONOCHROME1 inverted.
    Padding is black. Raises UserError for anything else than one grey frame that decodes.
    """
    try:
        dataset = pydicom.dcmread(file)
        photometric = str(dataset.get("PhotometricInterpretation", "")).strip()
        frames = int(dataset.get("NumberOfFrames") or 1)
        stored = dataset.pixel_array if photometric in PHOTOMETRIC and frames == 1 else None
        shown = None if stored is None else _shown(stored, dataset)
    except UserError as error:
        raise UserError(f"{file}: {error}") from None
    except InvalidDicomError:
        raise UserError(f"{file}: not DICOM, though named so; rename or replace it") from None
    except Exception as error:
        # pydicom and its decoders raise whatever they meet; all of it means an unusable file.
        reason = " ".join(str(error).split())[:160] or type(error).__name__
        raise UserError(
            f"{file}: DICOM pixels cannot be decoded ({reason}); re-export it as "
            "uncompressed DICOM or PNG"
        ) from None
    if shown is None or stored is None:
        seen = f"multi-frame DICOM ({frames} frames) is not supported"
        if frames == 1:
            seen = f"the photometric interpretation is {photometric or 'missing'}"
        raise UserError(f"{file}: {seen}; wanted one frame, {' or '.join(PHOTOMETRIC)}")
    if photometric == "MONOCHROME1":
        shown = 255 - shown
    shown[_padding(stored, dataset)] = 0
    return shown


def _shown(stored: np.ndarray, dataset: Dataset) -> np.ndarray:
    values = np.asarray(apply_modality_lut(stored, dataset), dtype=np.float64)
    if dataset.get("VOILUTSequence"):
        bits = int(dataset.VOILUTSequence[0].LUTDescriptor[2])
        table = np.asarray(apply_voi(values.astype(np.int64), dataset), dtype=np.float64)
        return to_8_bits(table, 0.0, float(2**bits - 1))
    centre, width = _first(dataset.get("WindowCenter")), _first(dataset.get("WindowWidth"))
    if centre is None or width is None:
        kept = values[~_padding(stored, dataset)]
        return to_8_bits(values, *((kept.min(), kept.max()) if kept.size else (0.0, 0.0)))
    function = str(dataset.get("VOILUTFunction") or "LINEAR").strip()
    least = 1.0 if function == "LINEAR" else 0.0
    if width < least or (width == 0 and function != "LINEAR"):
        raise UserError(f"window width {width:g}; wanted at least 1, or no window")
    if function == "SIGMOID":
        return to_8_bits(
            1.0 / (1.0 + np.exp(np.clip(-4.0 * (values - centre) / width, -60, 60))), 0.0, 1.0
        )
    if function == "LINEAR":
        # PS3.3 C.11.2.1.2.1: the window covers width - 1 steps around centre - 0.5.
        centre, width = centre - 0.5, width - 1.0
    elif function != "LINEAR_EXACT":
        raise UserError(f"window function {function!r}; wanted LINEAR, LINEAR_EXACT or SIGMOID")
    low = centre - 0.5 * width
    return (
        to_8_bits(values, low, low + width)
        if width
        else np.where(values > low, 255, 0).astype(np.uint8)
    )


def _first(value: object) -> float | None:
    if value is None or (isinstance(value, str) and not value.strip()):
        return None
    if isinstance(value, Sequence) and not isinstance(value, str):
        return float(value[0]) if len(value) else None
    return float(value)  # type: ignore[arg-type]


def _padding(stored: np.ndarray, dataset: Dataset) -> np.ndarray:
    first = dataset.get("PixelPaddingValue")
    if first is None:
        return np.zeros(stored.shape, dtype=bool)
    last = dataset.get("PixelPaddingRangeLimit", first)
    return (stored >= min(first, last)) & (stored <= max(first, last))
