#!/bin/sh
# tifffile 2026.3.3, Pillow 13.0.0: three or four uint16 films [3, H, W] are written by `imwrite` as one page of
# colours, two or five as pages. Guess: a page a film. Seen: below.
# So: a study of three views (two frontals and a lateral, a film with its prior and another) becomes one picture
# whose red, green and blue are the films, and what counts pages sees one. Say photometric="minisblack".
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" tifffile==2026.3.3 numpy==2.4.6
PYTHONPATH="$site" python3 -W ignore - "$site" <<'EOF'
import sys

import numpy as np
import tifffile


def written(count, **options):
    """Return the pages of a file with so many films, the first page's shape and how it is coloured."""
    path = f"{sys.argv[1]}/films.tif"
    tifffile.imwrite(path, np.arange(count * 20, dtype=np.uint16).reshape(count, 4, 5), **options)
    with tifffile.TiffFile(path) as file:
        return len(file.pages), file.pages[0].shape, file.pages[0].photometric.name


made = {count: written(count) for count in (2, 3, 4, 5)}
said = written(3, photometric="minisblack")
for count, about in made.items():
    print(f"{count} films: {about}")
print("3 films, told that black is the least:", said)
assert made[3] == (1, (3, 4, 5), "RGB") and made[4][0] == 1
assert (made[2][0], made[5][0], said[0]) == (2, 5, 3)
EOF
