#!/bin/sh
# pydicom 3.0.2, SimpleITK 2.5.7, dicomsdl 0.109.4: a film of 12 bits that lie in the high end of 16 (HighBit 15, as
# old files have). The first two keep the low 12 bits, so that 2000 and 4095 become 3328 and 4080 and every 256th
# grey repeats; the third hands over 16 times the value. Nobody shifts, and nobody says a word. Guess: 0 to 4095 by
# all. Seen: below.
# So: such a film looks like contour lines. Shift by HighBit + 1 - BitsStored before masking, or refuse: since 2014
# the standard wants 11.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" pydicom==3.0.2 simpleitk==2.5.7 dicomsdl==0.109.4 numpy==2.4.6
PYTHONPATH="$site" python3 -W error - "$site/film.dcm" <<'EOF'
import sys

import dicomsdl
import numpy as np
import SimpleITK
from pydicom import dcmread
from pydicom.dataset import Dataset, FileMetaDataset
from pydicom.uid import DigitalXRayImageStorageForPresentation, ExplicitVRLittleEndian

greys = np.array([[1, 100], [2000, 4095]], np.uint16)
film, meta = Dataset(), FileMetaDataset()
meta.TransferSyntaxUID = ExplicitVRLittleEndian
meta.MediaStorageSOPClassUID = film.SOPClassUID = DigitalXRayImageStorageForPresentation
meta.MediaStorageSOPInstanceUID = film.SOPInstanceUID = "1.2.3.1"
film.file_meta, film.Modality, film.PhotometricInterpretation = meta, "DX", "MONOCHROME2"
film.Rows, film.Columns, film.SamplesPerPixel = 2, 2, 1
film.BitsAllocated, film.BitsStored, film.HighBit, film.PixelRepresentation = 16, 12, 15, 0
film.PixelData = (greys << 4).tobytes()
film["PixelData"].VR = "OW"
film.save_as(sys.argv[1], enforce_file_format=True)

by_pydicom = dcmread(sys.argv[1]).pixel_array
by_simpleitk = SimpleITK.GetArrayFromImage(SimpleITK.ReadImage(sys.argv[1]))[0]
by_dicomsdl = dicomsdl.open(sys.argv[1]).pixelData(storedvalue=True)
for name, made in (("pydicom", by_pydicom), ("SimpleITK", by_simpleitk), ("dicomsdl", by_dicomsdl)):
    print(f"{name}: {made.tolist()} of {greys.tolist()}")
assert (by_pydicom == (greys << 4 & 0xFFF)).all() and (by_simpleitk == by_pydicom).all()
assert (by_dicomsdl == greys << 4).all()
EOF
