"""Radiographs from PNG, JPEG, TIFF and DICOM, as upright 8-bit RGB.

Upright polarity means bone white, as films are read. What a file may hold, and what becomes of it:

- 8-bit grey or RGB: kept; grey is replicated. Palettes and CMYK are converted. An EXIF orientation
  is applied.
- Alpha: dropped where it is opaque everywhere. A transparent pixel is refused: what should show
  through is nowhere said.
- Grey of more than 8 bits: scaled linearly, the least value present to 0 and the greatest to 255.
  Detectors use 10 to 14 of 16 bits, so clipping or keeping the high byte would leave white or
  black. Colour of 16 bits a channel is refused: the decoder would keep the high byte.
- DICOM: see `read_dicom`.
- A TIFF whose photometric interpretation is WhiteIsZero is inverted, and so is a PNG or TIFF whose
  text says so: an entry PhotometricInterpretation (or "PhotometricInterpretation=..." in the
  description) of MONOCHROME1 or WhiteIsZero.

A file that is missing, empty, truncated, undecodable, of several frames or constant is refused, and
so is one of more than 64 MP, before it is decoded (`in_flight`).
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError
from PIL.TiffImagePlugin import ImageFileDirectory_v2

from rrgclinical.common.errors import PassingError, Stopped, UserError
from rrgdata.images.dicom import dicom_area, is_dicom, read_dicom
from rrgdata.images.dicom_grey import to_8_bits
from rrgdata.images.endings import check_beginning, jpeg_ends, png_ends
from rrgdata.images.in_flight import check_area

PHOTOMETRIC_TAG = 262
BITS_TAG, COMPRESSION_TAG, FORMAT_TAG = 258, 259, 339
NUMBERS = {1: "unsigned", 2: "signed", 3: "floating"}
"""Kinds of numbers by a TIFF's SampleFormat."""
TILE_TAGS = (322, 323)
DESCRIPTION_TAG = 270
ORIENTATION_TAG = 274
TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
"""How a picture is turned upright, by its EXIF orientation."""
INVERTED = re.compile(
    r"photometric[ _]?(interpretation)?[\s:='\"]+(monochrome1|white[ _]?is[ _]?zero)", re.I
)
FORMATS = ("PNG", "JPEG", "TIFF")
BYTES_A_PIXEL, BESIDE_PIXELS = 4, 64 << 20
"""Bytes of a JPEG, which is read whole: of a pixel, more than any coding takes; and of the rest."""


@dataclass(frozen=True)
class ImageFacts:
    """State kind and size in pixels of an image file.

    The kind is as in "PNG 8 bits", "DICOM DX 12 bits" and "DICOM without modality 16 bits".
    """

    kind: str
    width: int
    height: int
    absent: tuple[str, ...] = ()
    """Tags that a DICOM header lacks, of Modality and BodyPartExamined."""
    notes: tuple[str, ...] = ()
    """What was done about a DICOM header; each goes on from "DICOM files"."""
    pixels: str = ""
    """Digest of the pixels, where all images of a data set are looked at."""


def read_image(
    path: str | Path, area: int | None = None, body_parts: Collection[str] = ()
) -> Image.Image:
    """The radiograph at `path`, mode "RGB", 8 bits, upright polarity.

    area: pixels to which the caller scales a larger image down. A JPEG of 16 times that area or
        more is decoded at a half, a quarter or an eighth of its sides, at least twice the
        caller's, which saves most of the time.
    body_parts: further values of a DICOM's BodyPartExamined that pass, `data.body_parts`.

    Raises UserError, one line naming the file and the fix, for a file that is not one image.
    """
    return read_with_facts(path, area, body_parts)[0]


def read_with_facts(
    path: str | Path, area: int | None = None, body_parts: Collection[str] = ()
) -> tuple[Image.Image, ImageFacts]:
    """Read a radiograph as `read_image` does, and say what its file is.

    The size is that of the upright image. Raises PassingError where the file is not at fault.
    """
    file = Path(path)
    try:
        if not file.is_file():
            raise UserError(f"{file}: no such image file; check the path")
        if file.stat().st_size == 0:
            raise UserError(f"{file}: the image file is empty; copy it again")
        if is_dicom(file):
            image, facts = _read_dicom(file, body_parts)
        else:
            try:
                image, facts = _read_pillow(file, area)
            except Stopped:
                raise
            except UserError as error:
                raise UserError(f"{file}: {error}") from None
    except UnidentifiedImageError:
        if kind := _tiff_kind(file):
            line = f"{file}: TIFF of {kind} is not read; write it as uint16, plain"
        else:
            line = f"{file}: not an image this reads; wanted PNG, JPEG, TIFF or DICOM"
        raise UserError(line) from None
    except Image.DecompressionBombError as error:
        raise UserError(f"{file}: too large ({error}); scale it down first") from None
    except (OSError, SyntaxError, ValueError, EOFError, TypeError, struct.error) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise PassingError.of(error)(
            f"{file}: cannot be decoded ({reason}); copy it again"
        ) from None
    pixels = np.asarray(image)
    if (pixels == pixels[0, 0]).all():
        raise UserError(f"{file}: every pixel has the same value; replace the image")
    return image, facts


def _read_dicom(file: Path, body_parts: Collection[str]) -> tuple[Image.Image, ImageFacts]:
    dicom = read_dicom(file, body_parts)
    tags = {"Modality": dicom.modality, "BodyPartExamined": dicom.body_part}
    absent = tuple(tag for tag, value in tags.items() if not value)
    kind = f"DICOM {dicom.modality or 'without modality'} {dicom.bits} bits"
    image = Image.fromarray(dicom.pixels).convert("RGB")
    return image, ImageFacts(kind, image.width, image.height, absent, dicom.notes)


def _read_pillow(file: Path, area: int | None) -> tuple[Image.Image, ImageFacts]:
    """Read a file by Pillow; UserError, without the file's name, for one that cannot be shown."""
    check_beginning(file)
    # Pillow would try all that it knows, whatever the name: PostScript goes to Ghostscript.
    with Image.open(file, formats=FORMATS) as image:
        _check_size(image)
        deep = any(";16" in str(tile[3]) for tile in image.tile) and len(image.getbands()) > 1
        if deep:
            raise UserError(f"{image.mode} of 16 bits a channel; save it as 16-bit grey")
        if not _is_whole(file, image):
            raise UserError(f"the {image.format} is truncated, its end is missing; copy it again")
        if image.format == "JPEG" and area is not None:
            _decode_smaller(image, area)
        image.load()
        inverted = _says_inverted(image)
        kind = f"{image.format} {'of more than 8' if _is_deep(image) else '8'} bits"
        turned = _turned(image)
        if kind == "TIFF 8 bits" and getattr(image, "tag_v2", {}).get(FORMAT_TAG, (1,))[0] == 2:
            # Pillow takes signed bytes for unsigned ones
            turned = turned.point([value ^ 128 for value in range(256)])
        upright = _to_rgb(turned)
    facts = ImageFacts(kind, upright.width, upright.height)
    return (ImageOps.invert(upright) if inverted else upright), facts


def area_of(path: Path) -> int:
    """Read how many pixels an image file says it has; 0 where none."""
    try:
        if is_dicom(path):
            return dicom_area(path)
        check_beginning(path)
        with Image.open(path, formats=FORMATS) as image:
            return image.width * image.height
    except Stopped:
        raise
    except Exception:  # whatever it is, `read_image` meets it again
        return 0


def _check_size(image: Image.Image) -> None:
    frames = getattr(image, "n_frames", 1) if image.format != "TIFF" else 1
    if image.format == "TIFF":
        # not counted: every frame of a chain of a million would be looked at
        with suppress(EOFError):
            image.seek(1)
            frames = 2
    if frames != 1:
        raise UserError(f"{frames} frames or more; wanted a single image")
    tags = getattr(image, "tag_v2", {})
    tile = [int(tags.get(tag, 1)) for tag in TILE_TAGS]
    for width, height in (image.size, tile):
        check_area(width, height)


def _tiff_kind(file: Path) -> str:
    """Say of which numbers a TIFF is that Pillow does not know; "" of any other file."""
    odd = (OSError, SyntaxError, ValueError, LookupError, TypeError, struct.error)
    with suppress(*odd), file.open("rb") as stream:
        tags = ImageFileDirectory_v2(stream.read(8))
        stream.seek(tags.next)
        tags.load(stream)
        numbers = NUMBERS.get(tags.get(FORMAT_TAG, (1,))[0], "other")
        shown = "WhiteIsZero" if tags.get(PHOTOMETRIC_TAG) == 0 else "BlackIsZero"
        packed = tags.get(COMPRESSION_TAG, 1)
        return f"{numbers} numbers of {tags[BITS_TAG][0]} bits, {shown}, compression {packed},"
    return ""


def _is_whole(file: Path, image: Image.Image) -> bool:
    if image.format not in ("PNG", "JPEG"):
        return True
    size, most = file.stat().st_size, BYTES_A_PIXEL * image.width * image.height + BESIDE_PIXELS
    if image.format == "JPEG" and size > most:
        raise UserError(
            f"the file has {size} bytes, and a JPEG of {image.width} x {image.height} "
            f"pixels at most {most}; copy it again"
        )
    return png_ends(file) if image.format == "PNG" else jpeg_ends(file.read_bytes())


def _is_deep(image: Image.Image) -> bool:
    """Tell whether a pixel has more than 8 bits."""
    return image.mode in ("I", "F") or image.mode.startswith("I;16")


def _decode_smaller(image: Image.Image, area: int) -> None:
    """Let libjpeg decode at 1/2, 1/4 or 1/8 of the sides, at least twice those of the area."""
    width, height = image.size
    scale = 2.0 * math.sqrt(area / (width * height))
    if scale <= 0.5:
        # Pillow takes the least of these scales that gives at least this size.
        image.draft(image.mode, (math.ceil(width * scale), math.ceil(height * scale)))


def _to_rgb(image: Image.Image) -> Image.Image:
    if _is_deep(image):
        values = np.asarray(image)
        if not np.isfinite(values).all():
            raise UserError("pixels that are not finite; write them as integers")
        if np.any(values == image.info.get("transparency", np.nan)):
            raise UserError("transparent pixels; flatten it on its background first")
        image = Image.fromarray(to_8_bits(values, float(values.min()), float(values.max())))
    elif "A" in image.getbands() or "a" in image.getbands() or "transparency" in image.info:
        image = image.convert("RGBA")
        lowest = int(np.asarray(image.getchannel("A")).min())
        if lowest < 255:
            raise UserError(
                f"transparent pixels (alpha down to {lowest}); flatten it on its background first"
            )
    return image.convert("RGB")


def _turned(image: Image.Image) -> Image.Image:
    """Turn a picture upright by its EXIF orientation; no other entry is looked at.

    Pillow's `exif_transpose` writes all entries anew, and fails at one that is damaged.
    """
    turn = TURNS.get(image.getexif().get(ORIENTATION_TAG, 1))
    return image if turn is None else image.transpose(turn)


def _says_inverted(image: Image.Image) -> bool:
    tags = getattr(image, "tag_v2", {})
    if image.format == "TIFF" and tags.get(PHOTOMETRIC_TAG) == 0:
        # Pillow turns WhiteIsZero of up to 8 bits upright itself and leaves deeper ones as stored.
        return image.mode not in ("1", "L", "LA", "P")
    texts = [f"{key}={value}" for key, value in image.info.items() if isinstance(value, str)]
    texts.append(str(tags.get(DESCRIPTION_TAG, "")))
    return any(INVERTED.search(text) for text in texts)
