#!/bin/sh
# albumentations 2.0.8 takes a uint16 film for one of 16 bits, whatever its greatest value: of a film of 12 bits from 100
# to 4000 `RandomBrightnessContrast` at a brightness of 0.2 makes 13207 to 17107, three films brighter than white,
# and `InvertImg` 61535 to 65435. `ToFloat` ends at 0.06, and `RandomGamma` gives float64. With
# brightness_by_max=False it stays within a fifth. Guess: within a fifth of the film's range. Seen: below. So: behind a
# fixed window or a division by 4095 every brightened film is white. Scale to [0, 1] first.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" albumentations==2.0.8 opencv-python-headless==5.0.0.93 numpy==2.4.6
NO_ALBUMENTATIONS_UPDATE=1 PYTHONPATH="$site" python3 -W ignore - <<'EOF'
import albumentations
import numpy as np

film = np.linspace(100, 4000, 256 * 256).reshape(256, 256).astype(np.uint16)
bright = {"brightness_limit": (0.2, 0.2), "contrast_limit": (0, 0), "p": 1}
CASES = {"brightness 0.2": (albumentations.RandomBrightnessContrast(**bright), np.uint16, 13207, 17107),
         "by the mean": (albumentations.RandomBrightnessContrast(**bright, brightness_by_max=False), np.uint16, 509, 4409),
         "inverted": (albumentations.InvertImg(p=1), np.uint16, 61535, 65435),
         "to float": (albumentations.ToFloat(p=1), np.float32, 100 / 65535, 4000 / 65535),
         "gamma 0.8": (albumentations.RandomGamma((80, 80), p=1), np.float64, 39.81, 761.46)}
for name, (change, kind, low, high) in CASES.items():
    changed = change(image=film)["image"]
    print(f"{name}: {changed.dtype}, {changed.min():.4f} to {changed.max():.4f}")
    assert changed.dtype == kind
    assert np.allclose([changed.min(), changed.max()], [low, high], rtol=1e-3, atol=1e-5)
EOF
