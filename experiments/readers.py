"""Put one film through every reader: `python -m experiments.readers`.

It is the table of docs/data.md (`experiments.page_table`): a made film of three greys, air, lung
and metal, written as DICOM in three ways that mean one picture, and as PNGs of 16 bits with the
values of two of these. A cell has what a reader makes of the three greys; where they fall, air is
white. Beside the library's own packages it asks SimpleITK 2.5.7, highdicom 0.28.2 and
opencv-python-headless 5.0.0.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pydicom
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from experiments.page_table import PageTable
from rrgdata.images.read import read_image

GREYS = (100, 200, 3000)
MOST = 4095
ROWS = 16
"""Rows of the film, and columns of each grey."""

INVERTED = tuple(MOST - grey for grey in GREYS)

FILMS = {
    "MONOCHROME2": ("MONOCHROME2", "IDENTITY", GREYS),
    "MONOCHROME1": ("MONOCHROME1", "INVERSE", INVERTED),
    "MONOCHROME2, INVERSE": ("MONOCHROME2", "INVERSE", INVERTED),
}
"""Photometric interpretation, presentation LUT shape, and what is stored, by column."""
PICTURES = {
    "PNG of MONOCHROME2": (GREYS, ""),
    "PNG of MONOCHROME1": (INVERTED, ""),
    "PNG that says MONOCHROME1": (INVERTED, "MONOCHROME1"),
}
"""Values, and its text PhotometricInterpretation."""


def pixels(greys: tuple[int, ...]) -> np.ndarray:
    """Draw a band for each grey; uint16 [ROWS, 3 ROWS]."""
    return np.repeat(np.array([greys], np.uint16), ROWS, 1).repeat(ROWS, 0)


def write_film(path: Path, photometric: str, shape: str, greys: tuple[int, ...]) -> None:
    """Write a radiograph of 12 bits with the window that shows its greys."""
    film = pydicom.Dataset()
    film.file_meta = pydicom.dataset.FileMetaDataset()
    film.file_meta.TransferSyntaxUID = pydicom.uid.ExplicitVRLittleEndian
    film.SOPClassUID = pydicom.uid.DigitalXRayImageStorageForPresentation
    film.SOPInstanceUID = film.StudyInstanceUID = film.SeriesInstanceUID = "1.2.3"
    film.file_meta.MediaStorageSOPClassUID = film.SOPClassUID
    film.file_meta.MediaStorageSOPInstanceUID = film.SOPInstanceUID
    film.PatientID, film.PatientName = "1", "Phantom"
    film.Modality, film.BodyPartExamined = "DX", "CHEST"
    film.SamplesPerPixel, film.PixelRepresentation = 1, 0
    film.BitsAllocated, film.BitsStored, film.HighBit = 16, 12, 11
    film.PhotometricInterpretation, film.PresentationLUTShape = photometric, shape
    film.RescaleSlope, film.RescaleIntercept, film.RescaleType = 1, 0, "US"
    film.WindowCenter, film.WindowWidth = (min(greys) + max(greys)) / 2, max(greys) - min(greys)
    stored = pixels(greys)
    film.Rows, film.Columns = stored.shape
    film.PixelData = stored.tobytes()
    film.save_as(path, enforce_file_format=True)


Reader = Callable[[Path], Any]
"""Reads a file as an array, whose first two axes, once single ones are gone, are its own."""


def of_pydicom() -> Iterator[tuple[str, Reader]]:
    """Yield pydicom's pixels as stored, behind the window, and behind all of the header."""
    from pydicom.pixels import apply_presentation_lut, apply_voi_lut

    def behind_all(path: Path) -> np.ndarray:
        film = pydicom.dcmread(path)
        return apply_presentation_lut(apply_voi_lut(film.pixel_array, film), film)

    def behind_window(path: Path) -> np.ndarray:
        film = pydicom.dcmread(path)
        return apply_voi_lut(film.pixel_array, film)

    yield "pixel_array", lambda path: pydicom.dcmread(path).pixel_array
    yield "apply_voi_lut", behind_window
    yield "apply_voi_lut, then apply_presentation_lut", behind_all


def of_simpleitk() -> Iterator[tuple[str, Reader]]:
    """Yield SimpleITK's pixels."""
    import SimpleITK

    yield "ReadImage", lambda path: SimpleITK.GetArrayFromImage(SimpleITK.ReadImage(path))


def of_highdicom() -> Iterator[tuple[str, Reader]]:
    """Yield highdicom's frame, as it comes and behind the window."""
    import highdicom

    def frame(path: Path, **options: Any) -> np.ndarray:
        return highdicom.imread(path).get_frame(1, **options)

    yield "get_frame", frame
    yield "get_frame(apply_voi_transform=True)", partial(frame, apply_voi_transform=True)


def of_opencv() -> Iterator[tuple[str, Reader]]:
    """Yield OpenCV's picture, in the two usual ways."""
    import cv2

    yield "imread", cv2.imread
    yield "imread(IMREAD_UNCHANGED)", lambda path: cv2.imread(path, cv2.IMREAD_UNCHANGED)


def of_pillow() -> Iterator[tuple[str, Reader]]:
    """Yield Pillow's picture, and its conversions."""

    def converted(mode: str, path: Path) -> Image.Image:
        return Image.open(path).convert(mode)

    yield "open", Image.open
    for mode in ("L", "RGB"):
        yield f'convert("{mode}")', partial(converted, mode)


def of_ours() -> Iterator[tuple[str, Reader]]:
    """Yield what training sees."""
    yield "read_image", read_image


def shown(reader: Reader, path: Path) -> str:
    """Say what a reader makes of the three greys, or that it refuses the file."""
    try:
        made = reader(path)
    except Exception:  # whatever another package raises
        made = None
    if made is None:
        return "refused"
    values = np.squeeze(np.asarray(made))
    greys = [values[ROWS // 2, ROWS * k + ROWS // 2] for k in range(len(GREYS))]
    return ", ".join(f"{np.max(grey):.6g}" for grey in greys)


def cells(readers: Callable[[], Iterator[tuple[str, Reader]]]) -> Iterator[list[str]]:
    """Yield the cells of a package's rows: what each call makes of the files."""
    with TemporaryDirectory() as folder:
        places = {name: Path(folder, f"{k}.dcm") for k, name in enumerate(FILMS)}
        for name, film in FILMS.items():
            write_film(places[name], *film)
        for k, (name, (greys, text)) in enumerate(PICTURES.items()):
            places[name], note = Path(folder, f"{k}.png"), PngInfo()
            if text:
                note.add_text("PhotometricInterpretation", text)
            Image.fromarray(pixels(greys)).save(places[name], pnginfo=note)
        for name, reader in readers():
            yield [f"`{name}`", *(shown(reader, path) for path in places.values())]


PACKAGES: Mapping[str, Callable[[], Iterator[tuple[str, Reader]]]] = {
    "rrgkern": of_ours,
    "pydicom": of_pydicom,
    "SimpleITK": of_simpleitk,
    "highdicom": of_highdicom,
    "opencv-python-headless": of_opencv,
    "pillow": of_pillow,
}
TABLE = PageTable(
    "experiments.readers",
    "data.md",
    ("call", *FILMS, *PICTURES),
    {package: partial(cells, readers) for package, readers in PACKAGES.items()},
)


if __name__ == "__main__":
    sys.exit(TABLE.main(sys.argv[1:]))
