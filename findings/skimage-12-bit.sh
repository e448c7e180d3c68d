#!/bin/sh
# scikit-image 0.26.0: `structural_similarity` and `peak_signal_noise_ratio` take the range of an array's dtype where
# none is given. Two films of 12 bits in uint16 that have nothing to do with each other (noise of two seeds) have an
# SSIM of 0.58, with a warning, and a PSNR of 31.9 dB, without one: what good reconstructions are praised for. With
# data_range=4095 they have 0.002 and 7.8 dB. As float64 the first is refused. Guess: an SSIM near 0. Seen: below. So:
# of films that came out of a DICOM as uint16 only figures with `data_range` said can be compared.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" scikit-image==0.26.0 numpy==2.4.6
PYTHONPATH="$site" python3 - <<'PY'
import warnings

import numpy as np
from skimage.metrics import peak_signal_noise_ratio, structural_similarity

one, other = (np.random.default_rng(s).integers(0, 4096, (256, 256)).astype(np.uint16) for s in (0, 1))
told = {}
for measure in (structural_similarity, peak_signal_noise_ratio):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        bare = measure(one, other)
    said = measure(one, other, data_range=4095)
    told[measure.__name__] = bare, said, len(caught)
    print(f"{measure.__name__}: {bare:.3f} without a range ({len(caught)} warnings), {said:.3f} with 4095")
bare, said, warned = told["structural_similarity"]
assert bare > 0.5 and abs(said) < 0.02 and warned == 1
bare, said, warned = told["peak_signal_noise_ratio"]
assert bare > 31 and said < 8 and warned == 0
try:
    structural_similarity(one.astype(float), other.astype(float))
except ValueError as error:
    assert "data_range" in str(error)
else:
    raise AssertionError("a float film without a range is measured")
PY
