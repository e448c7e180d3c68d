#!/bin/sh
# MONAI 1.6.1's `LoadImage` reads DICOM by ITK where the package itk is installed, else by pydicom, and the two
# differ on a MONOCHROME1 film: ITK inverts it over its 12 bits, 4095 - x, pydicom leaves it as it is stored.
# Shape and affine differ too. Guess: the same values. Seen: below. So: `pip install itk-io`, by whatever wants
# it, inverts part of the films of a training that does not name its reader. Name it:
# LoadImage(reader="PydicomReader") or "ITKReader".
# PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu brings the small build of torch.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" monai==1.6.1 torch==2.13.0 pydicom==3.0.2 numpy==2.4.6
for kind in "without itk" "with itk"; do
if [ "$kind" = "with itk" ]; then python3 -m pip install -qq --target "$site" itk-io==5.4.7 numpy==2.4.6; fi
PYTHONPATH="$site" python3 -W ignore - "$site" "$kind" <<'EOF'
import sys

import numpy as np
import pydicom
from monai.transforms import LoadImage
from pydicom.uid import DigitalXRayImageStorageForPresentation, ExplicitVRLittleEndian

PLACE = sys.argv[1] + "/film.dcm"
stored = np.array([[100, 200, 3000], [0, 4095, 7]], np.uint16)
read = {}
for kind in ("MONOCHROME1", "MONOCHROME2"):
    film = pydicom.Dataset()
    film.file_meta = pydicom.dataset.FileMetaDataset()
    film.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
    film.file_meta.MediaStorageSOPClassUID = film.SOPClassUID = DigitalXRayImageStorageForPresentation
    film.file_meta.MediaStorageSOPInstanceUID = film.SOPInstanceUID = "1.2.3"
    film.StudyInstanceUID = film.SeriesInstanceUID = "1.2.3"
    film.Modality, film.PatientID = "DX", "1"
    film.Rows, film.Columns = stored.shape
    film.SamplesPerPixel, film.PhotometricInterpretation, film.PixelRepresentation = 1, kind, 0
    film.BitsAllocated, film.BitsStored, film.HighBit = 16, 12, 11
    film.PixelData = stored.tobytes()
    film.save_as(PLACE, enforce_file_format=True)
    image = LoadImage(image_only=True)(PLACE)
    read[kind] = np.asarray(image).reshape(3, 2).T.astype(int).tolist()
    print(f"{sys.argv[2]}, {kind}: {read[kind]}, shape {tuple(image.shape)}")
inverted = (4095 - stored.astype(int)).tolist()
assert read["MONOCHROME2"] == stored.tolist()
assert read["MONOCHROME1"] == (inverted if sys.argv[2] == "with itk" else stored.tolist())
EOF
done
