"""Reads DICOM radiographs as 8-bit grey, upright.

Compressed pixels: JPEG 2000 by pylibjpeg-openjpeg; JPEG (8 bits) by Pillow; JPEG of 12 bits, JPEG
lossless and JPEG-LS by pylibjpeg-libjpeg, which is GPL-3 and therefore an extra (`rrgkern[dicom]`);
RLE by pydicom. Modalities are the defined terms of DICOM PS3.3 C.7.3.1.1.1; DR is none of them,
but vendors write it for DX. RG, film and screen, is refused as any other modality: its digitised
films have another contrast, and the systems here were made for CR and DX. Body parts are those of
PS3.16 Annex L, as sites spell them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pydicom
from pydicom import uid
from pydicom.dataset import Dataset
from pydicom.encaps import get_frame
from pydicom.errors import InvalidDicomError
from pydicom.pixels import apply_modality_lut, apply_voi, get_decoder

from rrgtrain.data.grey import to_8_bits
from rrgtrain.errors import PassingError, UserError

PHOTOMETRIC = ("MONOCHROME1", "MONOCHROME2")
MODALITIES = ("CR", "DX", "DR")
CHEST = ("CHEST", "THORAX", "TORAX", "PECHO", "LUNG", "LUNGS", "CXR")
"""Words that make a body part the chest: "CHEST", "Port Chest", "CHEST_PA", "T THORAX"."""
VIEWS = {
    **dict.fromkeys(("PA", "AP"), "frontal"),
    **dict.fromkeys(("LL", "RL", "LATERAL", "LAT"), "lateral"),
}
"""Views by ViewPosition, of PS3.3 C.8.1.1 and two in use; decubitus and obliques have none."""
OPENJPEG = (uid.JPEG2000Lossless, uid.JPEG2000)
LIBJPEG = (
    uid.JPEGBaseline8Bit,
    uid.JPEGExtended12Bit,
    uid.JPEGLossless,
    uid.JPEGLosslessSV1,
    uid.JPEGLSLossless,
    uid.JPEGLSNearLossless,
)
JPEG_END = b"\xff\xd9"


@dataclass(frozen=True)
class DicomImage:
    """One decoded radiograph: uint8 `[height, width]`, bone white, and what its header says.

    `modality` and `body_part` are "" where the header has none.
    """

    pixels: np.ndarray
    modality: str
    body_part: str
    bits: int


def is_dicom(file: Path) -> bool:
    """Tell whether a file has DICOM's magic number, or ends in .dcm or .dicom."""
    with file.open("rb") as stream:
        head = stream.read(132)
    return head[128:] == b"DICM" or file.suffix.lower() in (".dcm", ".dicom")


def view_of(file: Path) -> str:
    """Read the view that a file's ViewPosition tells: "frontal", "lateral", or "".

    It is "" too of a file that cannot be read: its reason is given where the image is.
    """
    try:
        dataset = pydicom.dcmread(file, stop_before_pixels=True, specific_tags=["ViewPosition"])
        return VIEWS.get(str(dataset.get("ViewPosition") or "").strip().upper(), "")
    except Exception:  # pydicom documents no list
        return ""


def read_dicom(file: Path) -> DicomImage:
    """Read one grey frame of a chest radiograph.

    In the order of DICOM PS3.3 C.11: rescale slope and intercept or the modality table; then the
    value table, else the first window, else the range of the values; then MONOCHROME1 inverted.
    Padding is black. Raises UserError for anything else than one grey frame that decodes, for
    another modality than CR, DX and DR, and for another body part than the chest; a header
    that tells neither passes.
    """
    try:
        dataset = pydicom.dcmread(file)
        modality, body_part = _chest_radiograph(dataset)
        if "PixelData" not in dataset:
            raise UserError(
                "DICOM pixels cannot be decoded (none are there: no image, or the file breaks off "
                "before them); copy it again"
            )
        photometric = str(dataset.get("PhotometricInterpretation", "")).strip()
        frames = int(dataset.get("NumberOfFrames") or 1)
        stored = _stored(dataset) if photometric in PHOTOMETRIC and frames == 1 else None
        shown = None if stored is None else _shown(stored, dataset)
        if shown is not None and stored is not None:
            shown = 255 - shown if photometric == "MONOCHROME1" else shown
            shown[_padding(stored, dataset)] = 0
    except UserError as error:
        raise type(error)(f"{file}: {error}") from None
    except InvalidDicomError:
        raise UserError(f"{file}: not DICOM, though named so; rename or replace it") from None
    except Exception as error:
        # pydicom and its decoders raise whatever they meet; all of it means an unusable file.
        reason = " ".join(str(error).split())[:160] or type(error).__name__
        raise PassingError.of(error)(
            f"{file}: DICOM pixels cannot be decoded ({reason}); re-export it as "
            "uncompressed DICOM or PNG"
        ) from None
    if shown is None:
        seen = f"multi-frame DICOM ({frames} frames) is not supported"
        if frames == 1:
            seen = f"the photometric interpretation is {photometric or 'missing'}"
        raise UserError(f"{file}: {seen}; wanted one frame, {' or '.join(PHOTOMETRIC)}")
    return DicomImage(shown, modality, body_part, int(dataset.BitsStored))


def _chest_radiograph(dataset: Dataset) -> tuple[str, str]:
    """Return modality and body part of the header; UserError for others than a chest's."""
    modality = str(dataset.get("Modality") or "").strip().upper()
    if modality and modality not in MODALITIES:
        raise UserError(f"the modality is {modality}; wanted {', '.join(MODALITIES)}, or none")
    body_part = str(dataset.get("BodyPartExamined") or "").strip().upper()
    if body_part and not set(re.split(r"[^A-Z]+", body_part)) & set(CHEST):
        raise UserError(
            f"the body part is {body_part}; wanted the chest ({', '.join(CHEST)}), or none"
        )
    return modality, body_part


def _stored(dataset: Dataset) -> np.ndarray:
    """Decode the pixels as they are stored, of any integer type."""
    syntax = dataset.file_meta.TransferSyntaxUID
    if not syntax.is_compressed and dataset.get("BitsStored"):
        # pydicom takes the low bits whatever HighBit says
        bits, high = int(dataset.BitsStored), int(dataset.get("HighBit", dataset.BitsStored - 1))
        if high != bits - 1:
            raise UserError(
                f"the high bit is {high} with {bits} bits stored; wanted {bits - 1} (PS3.5 8.1.1)"
            )
    if syntax in (*OPENJPEG, *LIBJPEG):
        frame = get_frame(dataset.PixelData, 0, number_of_frames=1)
        if not frame.rstrip(b"\0\xff").endswith(JPEG_END):
            # libjpeg fills up what is missing and says nothing
            raise UserError(f"{syntax.name} pixels are truncated; copy the file again")
    needs = "openjpeg" if syntax in OPENJPEG else "libjpeg" if syntax in LIBJPEG else ""
    lacks = bool(needs) and "pylibjpeg" not in get_decoder(syntax).available_plugins
    if needs == "openjpeg" and not lacks:
        # Pillow would be asked first, and scales what has more than 8 bits
        dataset.pixel_array_options(decoding_plugin="pylibjpeg")
    try:
        return dataset.pixel_array
    except RuntimeError:
        if lacks:
            raise PassingError(
                f"this file is {syntax.name}; pip install pylibjpeg-{needs} to read it"
            ) from None
        raise


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
    limit = dataset.get("PixelPaddingRangeLimit")
    ends = [first, first if limit is None else limit]
    if dataset.PixelRepresentation:
        # some writers give the bits of a negative value as an unsigned number
        size = 2 ** int(dataset.BitsAllocated)
        ends = [end - size if end >= size // 2 else end for end in ends]
    return (stored >= min(ends)) & (stored <= max(ends))
