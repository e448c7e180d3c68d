#!/bin/sh
# SimpleITK 2.5.7 takes the spacing of a radiograph (DX, CR, mammography) from Imager Pixel Spacing and does not
# look at Pixel Spacing, where the calibrated value stands: 0.15 for 0.2 where both are there, 1.0 without a word
# where Pixel Spacing is alone. For secondary captures it is the other way round. Guess: Pixel Spacing. Seen:
# below. So: sizes in mm, and resampling to a spacing, are wrong by the magnification or meaningless; read the two
# elements by pydicom.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" SimpleITK==2.5.7 pydicom==3.0.2 numpy==2.4.6
PYTHONPATH="$site" python3 -W ignore - "$site" <<'EOF'
import sys

import numpy as np
import pydicom
import SimpleITK
from pydicom import uid

PLACE = sys.argv[1] + "/film.dcm"
CLASSES = {"DX": uid.DigitalXRayImageStorageForPresentation, "CR": uid.ComputedRadiographyImageStorage,
           "secondary capture": uid.SecondaryCaptureImageStorage}
BOTH = {"PixelSpacing": [0.2, 0.2], "ImagerPixelSpacing": [0.15, 0.15]}
spacing = {}
for name, storage in CLASSES.items():
    for elements in (("PixelSpacing", "ImagerPixelSpacing"), ("PixelSpacing",), ("ImagerPixelSpacing",)):
        film = pydicom.Dataset()
        film.file_meta = pydicom.dataset.FileMetaDataset()
        film.file_meta.TransferSyntaxUID = uid.ExplicitVRLittleEndian
        film.file_meta.MediaStorageSOPClassUID = film.SOPClassUID = storage
        film.file_meta.MediaStorageSOPInstanceUID = film.SOPInstanceUID = "1.2.3"
        film.StudyInstanceUID = film.SeriesInstanceUID = "1.2.3"
        film.Rows, film.Columns, film.SamplesPerPixel = 4, 4, 1
        film.PhotometricInterpretation, film.PixelRepresentation = "MONOCHROME2", 0
        film.BitsAllocated, film.BitsStored, film.HighBit = 16, 12, 11
        film.PixelData = np.zeros((4, 4), np.uint16).tobytes()
        for element in elements:
            setattr(film, element, BOTH[element])
        film.save_as(PLACE, enforce_file_format=True)
        spacing[name, elements] = SimpleITK.ReadImage(PLACE).GetSpacing()[0]
        print(f"{name} with {' and '.join(elements)}: {spacing[name, elements]}")
both, pixel, imager = list(spacing)[0][1], ("PixelSpacing",), ("ImagerPixelSpacing",)
for name in ("DX", "CR"):
    assert [spacing[name, elements] for elements in (both, pixel, imager)] == [0.15, 1.0, 0.15], name
assert [spacing["secondary capture", elements] for elements in (both, pixel, imager)] == [0.2, 0.2, 1.0]
EOF
