#!/bin/sh
# dicom-anonymizer 2.1.0 (pydicom 3.0.2): two patients' films come out with one PatientID, the empty one, and one
# date, 00010101; PatientAge is gone. The StudyInstanceUID is another in each process, so films of one study that
# were treated in two runs have no common key left. Guess: two ids, and another uid in each run. Seen: below.
# So: films made anonymous by its defaults cannot be split by patient, nor priors put in order: keep a table of ids.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" dicom-anonymizer==2.1.0 pydicom==3.0.2
cat > "$site/films.py" <<'EOF'
import sys

from dicomanonymizer import anonymize_dicom_file
from pydicom import dcmread
from pydicom.dataset import Dataset, FileMetaDataset
from pydicom.uid import DigitalXRayImageStorageForPresentation, ExplicitVRLittleEndian

for patient, study, date in (("P1", "1.2.3", "20260301"), ("P2", "1.2.4", "20260305")):
    film, meta = Dataset(), FileMetaDataset()
    meta.TransferSyntaxUID = ExplicitVRLittleEndian
    meta.MediaStorageSOPClassUID = film.SOPClassUID = DigitalXRayImageStorageForPresentation
    meta.MediaStorageSOPInstanceUID = film.SOPInstanceUID = study + ".1"
    film.file_meta, film.PatientID, film.StudyInstanceUID = meta, patient, study
    film.StudyDate, film.PatientAge = date, "070Y"
    film.save_as(sys.argv[1], enforce_file_format=True)
    anonymize_dicom_file(sys.argv[1], sys.argv[2])
    out = dcmread(sys.argv[2])
    print(repr(out.PatientID), out.StudyDate, out.get("PatientAge"), out.StudyInstanceUID)
EOF
for run in 1 2; do
  PYTHONPATH="$site" python3 "$site/films.py" "$site/in.dcm" "$site/out.dcm" | tee "$site/seen.$run"
done
test "$(cut -d ' ' -f 1-3 "$site/seen.1" "$site/seen.2" | sort -u)" = "'' 00010101 None"
test "$(cut -d ' ' -f 4 "$site/seen.1" "$site/seen.2" | sort -u | wc -l)" = 4
