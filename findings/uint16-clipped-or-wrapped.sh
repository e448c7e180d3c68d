#!/bin/sh
# A film behind slope and intercept, int32 from -5 to 70000, put into an array of uint16. h5py 3.16.0 cuts it at 0 and 65535,
# zarr 3.1.6 lets it run over: -5 becomes 65531, white, and 70000 becomes 4464. Neither says a word. Floats go the same
# two ways, their fractions cut off. Guess: refused, or the same by both. Seen: below. So: the one format spoils a film
# in a way that an eye sees and the other in one that it does not; the copy of a set from HDF5 to zarr is no copy where
# the type is narrower. Ask for the least and greatest value before the assignment.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" h5py==3.16.0 zarr==3.1.6 numpy==2.4.6
PYTHONPATH="$site" python3 -W error - "$site" <<'PY'
import sys

import h5py
import numpy as np
import zarr

film = np.array([[-5, 0, 4095, 70000]], np.int32)
with h5py.File(f"{sys.argv[1]}/films.h5", "w") as file:
    films = {"h5py": file.create_dataset("films", film.shape, "uint16"),
             "zarr": zarr.create_array(f"{sys.argv[1]}/films.zarr", shape=film.shape, dtype="uint16")}
    for name, stored in films.items():
        stored[...] = film
        print(f"{name}: {film.tolist()} comes back as {stored[...].tolist()}")
        assert stored[...].tolist() == ([[0, 0, 4095, 65535]] if name == "h5py" else [[65531, 0, 4095, 4464]])
        stored[...] = film + 0.7
        print(f"{name}: with 0.7 added to each as {stored[...].tolist()}")
        assert stored[...][0, 2] == 4095
PY
