#!/bin/sh
# dicomweb-client 0.61.2: its file client hands a search with a wildcard to SQL's LIKE, so that "_" is any letter and case
# does not count: PatientID "S_1*" finds S_1, S_12, SB1 and s_1. Without a wildcard "S_1" finds itself alone. DICOM knows
# "*" and "?" only. Guess: S_1 and S_12. Seen: below.
# So: pseudonyms with an underscore draw other patients into a cohort. Filter what comes back once more.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" dicomweb-client==0.61.2 pydicom==3.0.2 numpy==2.4.6
PYTHONPATH="$site" python3 -W ignore - <<'EOF'
import tempfile
from pathlib import Path

from dicomweb_client.api import DICOMfileClient
from pydicom import Dataset, dcmwrite
from pydicom.dataset import FileMetaDataset
from pydicom.uid import DigitalXRayImageStorageForPresentation, ExplicitVRLittleEndian

folder = Path(tempfile.mkdtemp())
for number, patient in enumerate(("S_1", "S_12", "SB1", "s_1"), start=1):
    film = Dataset()
    film.file_meta = FileMetaDataset()
    film.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
    film.SOPClassUID = DigitalXRayImageStorageForPresentation
    film.StudyInstanceUID, film.SeriesInstanceUID = f"1.2.{number}", f"1.2.3.{number}"
    film.SOPInstanceUID = f"1.2.3.4.{number}"
    film.PatientID = film.StudyID = patient
    film.PatientName, film.Modality, film.StudyDate, film.StudyTime = "A", "DX", "20200101", "1200"
    film.AccessionNumber = film.PatientBirthDate = film.PatientSex = film.ReferringPhysicianName = ""
    film.SeriesNumber = film.InstanceNumber = film.SamplesPerPixel = film.Rows = 1
    film.Columns, film.BitsAllocated, film.BitsStored, film.HighBit, film.PixelRepresentation = 2, 8, 8, 7, 0
    film.PhotometricInterpretation, film.PixelData = "MONOCHROME2", b"\0\0"
    dcmwrite(folder / f"{number}.dcm", film, enforce_file_format=True)
client = DICOMfileClient(f"file://{folder}", update_db=True, in_memory=True)


def patients(value: str) -> set[str]:
    return {s["00100020"]["Value"][0] for s in client.search_for_studies(search_filters={"PatientID": value})}


for value in ("S_1*", "S_1"):
    print(value, sorted(patients(value)))
assert patients("S_1*") == {"S_1", "S_12", "SB1", "s_1"} and patients("S_1") == {"S_1"}
EOF
