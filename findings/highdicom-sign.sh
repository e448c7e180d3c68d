#!/bin/sh
# highdicom 0.28.2 takes pixels as they lie in 16 bits and does not look at BitsStored: a film of 12 signed
# bits has 4095 where pydicom 3.0.2 and SimpleITK 2.5.7 have -1, and bits above the stored ones count.
# DICOM PS3.5 8.1.1 puts the sign into High Bit, here bit 11. Guess: pydicom 4095, SimpleITK -1. Seen: both -1.
# So: a film that was cut by highdicom and one by pydicom differ by 4096 in their dark half.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" highdicom==0.28.2 pydicom==3.0.2 SimpleITK==2.5.7
PYTHONPATH="$site" python3 - "$site/film.dcm" <<'EOF'
import sys

import highdicom
import numpy as np
import pydicom
import SimpleITK

PLACE = sys.argv[1]


def values(stored, signed):
    """Return what each reader makes of one row of 12 bits in words of 16."""
    film = pydicom.Dataset()
    film.file_meta = pydicom.dataset.FileMetaDataset()
    film.file_meta.TransferSyntaxUID = pydicom.uid.ExplicitVRLittleEndian
    film.SOPClassUID = pydicom.uid.DigitalXRayImageStorageForPresentation
    film.SOPInstanceUID = film.StudyInstanceUID = film.SeriesInstanceUID = "1.2.3"
    film.file_meta.MediaStorageSOPClassUID = film.SOPClassUID
    film.file_meta.MediaStorageSOPInstanceUID = film.SOPInstanceUID
    film.PatientID, film.PatientName, film.Modality = "1", "Phantom", "DX"
    film.Rows, film.Columns, film.SamplesPerPixel = 1, len(stored), 1
    film.PhotometricInterpretation, film.PixelRepresentation = "MONOCHROME2", signed
    film.BitsAllocated, film.BitsStored, film.HighBit = 16, 12, 11
    film.PixelData = np.array(stored, "<u2").tobytes()
    film.save_as(PLACE, enforce_file_format=True)
    return {
        "highdicom": highdicom.imread(PLACE).get_frame(1, dtype=np.float64).ravel().tolist(),
        "pydicom": pydicom.dcmread(PLACE).pixel_array.ravel().tolist(),
        "SimpleITK": SimpleITK.GetArrayFromImage(SimpleITK.ReadImage(PLACE)).ravel().tolist(),
    }


signed = values([0x0FFF, 0x0800, 5, 0], 1)
unused = values([0xF005, 0x1000, 0x0FFF, 0], 0)
print("12 signed bits:", signed)
print("bits above the stored ones:", unused)
for reader in ("pydicom", "SimpleITK"):
    assert signed[reader] == [-1, -2048, 5, 0] and unused[reader] == [5, 0, 4095, 0], reader
assert signed["highdicom"] == [4095, 2048, 5, 0] and unused["highdicom"] == [61445, 4096, 4095, 0]
EOF
