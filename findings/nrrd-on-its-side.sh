#!/bin/sh
# pynrrd 1.1.3 and SimpleITK 2.5.7: a film of 3 rows and 5 columns written by `nrrd.write` has 5 rows and 3 columns for SimpleITK:
# it lies on its side, mirrored. pynrrd takes the first axis of an array as the fastest (index_order "F"), SimpleITK the last.
# pynrrd reads its own file back as it was. Guess: 3 rows. Seen: below. Its page explains the two orders.
# So: masks by one and films by the other are transposed, and a square film shows nothing of it but left upper lobes that
# are right lower ones. Write and read with index_order="C".
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" pynrrd==1.1.3 SimpleITK==2.5.7 numpy==2.4.6
PYTHONPATH="$site" python3 - <<'EOF'
import os
import tempfile

import nrrd
import numpy as np
import SimpleITK as sitk

film = np.arange(15, dtype=np.uint16).reshape(3, 5)
with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "film.nrrd")
    nrrd.write(path, film)
    own, other = nrrd.read(path)[0], sitk.GetArrayFromImage(sitk.ReadImage(path))
    nrrd.write(path, film, index_order="C")
    mended = sitk.GetArrayFromImage(sitk.ReadImage(path))
print("pynrrd:", own.shape, "SimpleITK:", other.shape, 'with index_order="C":', mended.shape)
assert (own == film).all() and own.shape == (3, 5)
assert other.shape == (5, 3) and (other == film.T).all()
assert mended.shape == film.shape and (mended == film).all()
EOF
