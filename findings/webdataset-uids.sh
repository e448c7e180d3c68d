#!/bin/sh
# WebDataset 1.0.2 takes for a sample's key what stands before the FIRST dot of a file's name. Images named by
# their DICOM UIDs all begin with "1.2", so that a shard of them is one sample, "1", and each image a
# field of it. Nothing is said. Guess: three samples. Seen: one.
# So: name images in a shard without dots (the UID with "-" for "."), or an epoch has one study.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" webdataset==1.0.2 numpy==2.4.6
PYTHONPATH="$site" python3 -W ignore - "$site" <<'EOF'
import io
import sys
import tarfile

import webdataset


def samples(names):
    """Return key and fields of each sample of a shard with these files."""
    place = f"{sys.argv[1]}/shard.tar"
    with tarfile.open(place, "w") as shard:
        for name in names:
            entry = tarfile.TarInfo(name)
            entry.size = 1
            shard.addfile(entry, io.BytesIO(b"x"))
    read = webdataset.WebDataset(place, shardshuffle=False)
    return [(one["__key__"], [key for key in one if not key.startswith("__")]) for one in read]


dotted = samples(["1.2.840.1.png", "1.2.840.2.png", "1.2.840.3.png"])
plain = samples(["1-2-840-1.png", "1-2-840-2.png", "1-2-840-3.png"])
print("with dots:", dotted)
print("without:", plain)
assert dotted == [("1", ["2.840.1.png", "2.840.2.png", "2.840.3.png"])]
assert [key for key, _ in plain] == ["1-2-840-1", "1-2-840-2", "1-2-840-3"]
EOF
