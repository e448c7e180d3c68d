#!/bin/sh
# dicomsdl 0.109.4: of a film of 12 bits whose 16th bit holds an overlay, `pixelData()` gives 32768 and more: the
# bits above BitsStored are left in. pydicom, SimpleITK and gdcm mask them off. Guess: masked off. Seen: below.
# So: a film with its overlay in the unused bits is a white drawing on black, and its brightest value is eight times
# what the film has. Mask with (1 << BitsStored) - 1, which is right for unsigned values alone.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" dicomsdl==0.109.4 pydicom==3.0.2 numpy==2.4.6
PYTHONPATH="$site" python3 - "$site/film.dcm" <<'EOF'
import sys

import dicomsdl
import numpy as np
from pydicom.dataset import Dataset, FileMetaDataset
from pydicom.uid import DigitalXRayImageStorageForPresentation, ExplicitVRLittleEndian

stored = np.arange(16, dtype=np.uint16).reshape(4, 4) * 273
film, meta = Dataset(), FileMetaDataset()
meta.TransferSyntaxUID = ExplicitVRLittleEndian
meta.MediaStorageSOPClassUID = film.SOPClassUID = DigitalXRayImageStorageForPresentation
meta.MediaStorageSOPInstanceUID = film.SOPInstanceUID = "1.2.3.1"
film.file_meta, film.Modality, film.PhotometricInterpretation = meta, "DX", "MONOCHROME2"
film.Rows, film.Columns, film.SamplesPerPixel = 4, 4, 1
film.BitsAllocated, film.BitsStored, film.HighBit, film.PixelRepresentation = 16, 12, 11, 0
overlay = np.zeros_like(stored)
overlay[0] = 0x8000
film.PixelData = (stored | overlay).tobytes()
film.save_as(sys.argv[1], enforce_file_format=True)

by_pydicom, by_dicomsdl = film.pixel_array, dicomsdl.open(sys.argv[1]).pixelData()
print("pydicom:", by_pydicom[0], "dicomsdl:", by_dicomsdl[0])
assert (by_dicomsdl == (stored | overlay)).all() and by_dicomsdl.max() > 4095
print("pydicom masks them:", bool((by_pydicom == stored).all()))
EOF
