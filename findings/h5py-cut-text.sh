#!/bin/sh
# h5py 3.16.0: a report that is longer than the `string_dtype(length=16)` of its place is cut there, in bytes,
# within a letter where that falls so, and nothing says it. Guess: refused. Seen: below.
# So: "No pneumothorax. Large effusion." is stored as a normal report. Leave the length out, which stores each text
# at its own, or compare what was written.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" h5py==3.16.0 numpy==2.4.6
PYTHONPATH="$site" python3 -W error - "$site/reports.h5" <<'EOF'
import sys

import h5py

REPORT = "No pneumothorax. Large effusion."
with h5py.File(sys.argv[1], "w") as file:
    fixed = file.create_dataset("fixed", (1,), h5py.string_dtype(length=16))
    free = file.create_dataset("free", (1,), h5py.string_dtype())
    fixed[0] = free[0] = REPORT
    print("of length 16:", fixed[0], "of its own:", free[0])
    assert fixed[0] == b"No pneumothorax." and free[0].decode() == REPORT
EOF
