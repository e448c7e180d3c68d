#!/bin/sh
# OmegaConf 2.4.0: a field that is declared as str gets what YAML made of the value, turned to text: 0123 is "83",
# for a leading zero means octal, 1e5 is "100000.0", 1:30 is "90", no is "False". Guess: as it is written, since
# the field is text. Seen: below. So: an id, a time or a label of one word in a recipe changes where it is not
# quoted, and the schema does not help; two patients, 0123 and 83, are one. Quote it, on the command line twice:
# 'id="0123"'.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" omegaconf==2.4.0
PYTHONPATH="$site" python3 -W ignore - <<'EOF'
from dataclasses import dataclass

from omegaconf import OmegaConf


@dataclass
class Study:
    """Hold the one field of this recipe."""

    patient: str = ""


SEEN = {"0123": "83", "00123": "83", "1e5": "100000.0", "12E5": "1200000.0", "1_000": "1000", "1:30": "90",
        "no": "False", "0x1f": "31", "0129": "0129", "2101-03-04": "2101-03-04", '"0123"': "0123"}
for written, expected in SEEN.items():
    file = OmegaConf.create(f"patient: {written}")
    values = [OmegaConf.merge(OmegaConf.structured(Study), file).patient,
              OmegaConf.merge(OmegaConf.structured(Study), OmegaConf.from_dotlist([f"patient={written}"])).patient]
    print(f"patient: {written} is {values[0]!r}")
    assert values == [expected] * 2, (written, values)
EOF
