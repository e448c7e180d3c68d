"""DICOM radiographs as 8-bit grey, upright."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pydicom
from pydicom.errors import InvalidDicomError
from pydicom.pixels import apply_modality_lut, apply_voi_lut

from rrgtrain.errors import UserError

GREY = ("MONOCHROME1", "MONOCHROME2")


def is_dicom(file: Path) -> bool:
    """Whether the file carries DICOM's magic number, or is called .dcm or .dicom."""
    with file.open("rb") as stream:
        head = stream.read(132)
    return head[128:] == b"DICM" or file.suffix.lower() in (".dcm", ".dicom")


def read_dicom(file: Path) -> np.ndarray:
    """One grey frame, uint8 `[height, width]`, bone white.

    Rescale (or modality table) and the first window (or value table) are applied in the order the
    standard gives, PS3.3 C.11; the windowed values are stretched to 0..255, from the window's own
    range where it says what black and white are. Raises UserError for anything else than one grey
    frame that decodes.
    """
    try:
        dataset = pydicom.dcmread(file)
        photometric = str(dataset.get("PhotometricInterpretation", "")).strip()
        frames = int(dataset.get("NumberOfFrames") or 1)
        if photometric not in GREY:
            raise UserError(f"{file}: photometric interpretation {photometric!r}; wanted "
                            f"{' or '.join(GREY)}")
        if frames != 1:
            raise UserError(f"{file}: {frames} frames; wanted a single radiograph")
        values = apply_modality_lut(dataset.pixel_array, dataset)
        values = apply_voi_lut(values, dataset, index=0)
    except UserError:
        raise
    except InvalidDicomError:
        raise UserError(f"{file}: not DICOM, though named so; rename or replace it") from None
    except Exception as error:
        # pydicom raises whatever its decoders raise; all of it means the file is unusable.
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise UserError(f"{file}: DICOM pixels cannot be decoded ({reason}); re-export it as "
                        "uncompressed DICOM or PNG") from None
    values = values.astype(np.float64)
    low, high = float(values.min()), float(values.max())
    if high == low:
        return np.zeros(values.shape, dtype=np.uint8)
    grey = ((values - low) * (255.0 / (high - low)) + 0.5).astype(np.uint8)
    return 255 - grey if photometric == "MONOCHROME1" else grey
