#!/bin/sh
# SciPy 1.17.1: `ndimage.laplace`, `sobel`, `prewitt` and `gaussian_laplace` of a film in uint16 answer in uint16,
# so what is negative wraps: beside an edge of 1000 and 2000 they have 61,536 and 64,536. Guess: signed, or refused.
# Seen: below.
# So: sharpness by the variance of the Laplacian, edges by Sobel and spots by a Laplacian of Gaussians are of a film
# that is not there, and the strongest edges are the weakest. Hand over floats.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" scipy==1.17.1 numpy==2.4.6
PYTHONPATH="$site" python3 - <<'EOF'
import numpy as np
from scipy import ndimage

film = np.full((9, 9), 1000, np.uint16)
film[:, 5:] = 2000
filters = {
    "laplace": ndimage.laplace,
    "sobel": ndimage.sobel,
    "prewitt": ndimage.prewitt,
    "gaussian_laplace": lambda x: ndimage.gaussian_laplace(x, 1),
}
flipped = film[:, ::-1].copy()
for name, of in filters.items():
    made, right = of(flipped), of(flipped.astype(np.float64))
    print(f"{name}: {made[4].tolist()}, of floats {right[4].round().astype(int).tolist()}")
    assert made.dtype == np.uint16 and made.max() > 60_000 and right.min() < 0
sharp = [ndimage.laplace(x).var() for x in (film, film.astype(np.float64))]
print(f"variance of the Laplacian: {sharp[0]:.3g} in place of {sharp[1]:.3g}")
assert sharp[0] > 100 * sharp[1]
EOF
