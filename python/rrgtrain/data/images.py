"""Radiographs from PNG, JPEG, TIFF and DICOM, as upright 8-bit RGB.

Upright polarity means bone white, as films are read. What each file may hold, and what becomes
of it:

- 8-bit grey or RGB: kept; grey is replicated. Palettes and CMYK are converted.
- Alpha: dropped where it is opaque everywhere; a transparent pixel is refused, because what
  should show through is nowhere said.
- More than 8 bits: scaled linearly from the values present, minimum to 0 and maximum to 255.
  Detectors use 10 to 14 of 16 bits, so shifting or clipping would leave black or white.
- DICOM: rescale slope and intercept, then the first window (or the whole range where there is
  none), then MONOCHROME1 inverted.
- A TIFF whose photometric interpretation is WhiteIsZero, and a PNG or TIFF with a text entry
  PhotometricInterpretation of MONOCHROME1 or WhiteIsZero, are inverted too.

A file that is missing, empty, truncated, undecodable, of several frames or constant is refused.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image, UnidentifiedImageError

from rrgtrain.data.dicom import is_dicom, read_dicom
from rrgtrain.errors import UserError

PHOTOMETRIC_TAG = 262
INVERTED = ("monochrome1", "whiteiszero", "miniswhite")


def read_image(path: str | Path) -> Image.Image:
    """The radiograph at `path`, mode "RGB", 8 bits, upright polarity.

    Raises UserError, one line naming the file and the fix, for a file that is not one image.
    """
    file = Path(path)
    if not file.is_file():
        raise UserError(f"{file}: no such image file; check the path")
    if file.stat().st_size == 0:
        raise UserError(f"{file}: the image file is empty; copy it again")
    grey = read_dicom(file) if is_dicom(file) else None
    image = Image.fromarray(grey).convert("RGB") if grey is not None else _read_pillow(file)
    if all(low == high for low, high in image.getextrema()):
        raise UserError(f"{file}: every pixel has the same value; replace the image")
    return image


def _read_pillow(file: Path) -> Image.Image:
    try:
        with Image.open(file) as image:
            if getattr(image, "n_frames", 1) != 1:
                raise UserError(f"{file}: {image.n_frames} frames; wanted a single image")
            image.load()
            inverted = _declared_inverted(image)
            return _to_rgb(file, image, inverted)
    except UnidentifiedImageError:
        raise UserError(
            f"{file}: not an image this reads; wanted PNG, JPEG, TIFF or DICOM"
        ) from None
    except (OSError, SyntaxError, ValueError, EOFError) as error:
        raise UserError(f"{file}: cannot be decoded ({_line(error)}); copy it again") from None
    except Image.DecompressionBombError as error:
        raise UserError(f"{file}: too large ({_line(error)}); scale it down first") from None


def _line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def _to_rgb(file: Path, image: Image.Image, inverted: bool) -> Image.Image:
    if image.mode in ("I", "F") or image.mode.startswith("I;16"):
        values = np.asarray(image)
        if image.mode == "F" and not np.isfinite(values).all():
            raise UserError(f"{file}: pixels that are not finite; write them as integers")
        image = Image.fromarray(scale_to_8_bits(values))
    elif image.mode in ("RGBA", "LA", "PA", "La", "RGBa") or "transparency" in image.info:
        image = image.convert("RGBA")
        lowest = image.getchannel("A").getextrema()[0]
        if lowest < 255:
            raise UserError(f"{file}: transparent pixels (alpha down to {lowest}); flatten it on "
                            "its background first")
    image = image.convert("RGB")
    return Image.eval(image, lambda value: 255 - value) if inverted else image


def _declared_inverted(image: Image.Image) -> bool:
    if image.format == "TIFF" and image.mode != "1":
        # Pillow itself turns 1- and 8-bit WhiteIsZero upright; wider ones it leaves as stored.
        stored = getattr(image, "tag_v2", {}).get(PHOTOMETRIC_TAG)
        if stored == 0 and image.mode not in ("L", "LA", "P"):
            return True
    said = [str(value) for key, value in image.info.items()
            if isinstance(key, str) and key.replace(" ", "").lower() == "photometricinterpretation"]
    return any(value.replace(" ", "").strip("\0").lower() in INVERTED for value in said)


def scale_to_8_bits(values: np.ndarray) -> np.ndarray:
    """Any finite numbers as uint8 of the same shape: minimum to 0, maximum to 255, rounded.

    A constant array gives zeros.
    """
    values = values.astype(np.float64)
    low, high = float(values.min()), float(values.max())
    if high == low:
        return np.zeros(values.shape, dtype=np.uint8)
    return ((values - low) * (255.0 / (high - low)) + 0.5).astype(np.uint8)
