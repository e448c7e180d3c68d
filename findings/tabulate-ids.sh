#!/bin/sh
# tabulate 0.10.0: texts that look like numbers are printed as numbers once one of their column has a point or an exponent.
# The accession number "0012" becomes 12, "12E34" 1.2e+35, "3.50" 3.5 and "0012345678.10" 1.23457e+07; a column of
# "0012" and "0345" alone stays. Guess: texts stay texts. Seen: below. Its page names `disable_numparse`.
# So: a table of the worst studies of an evaluation names studies that nobody can look up. Set `disable_numparse=True`.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" tabulate==0.10.0
PYTHONPATH="$site" python3 - <<'EOF'
from tabulate import tabulate


def column(*texts, **options):
    return [line.strip() for line in tabulate([[t] for t in texts], tablefmt="plain", **options).splitlines()]


mixed = ("0012", "3.50", "12E34")
print(mixed, "->", column(*mixed))
print("0012345678.10 ->", column("0012345678.10"))
assert column(*mixed) == ["12", "3.5", "1.2e+35"] and column("0012345678.10") == ["1.23457e+07"]
assert column("0012", "0345") == ["0012", "0345"]
assert column(*mixed, disable_numparse=True) == list(mixed)
EOF
