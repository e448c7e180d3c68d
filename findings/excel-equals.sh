#!/bin/sh
# pandas 3.1.1 with openpyxl 3.1.5: a report that begins with "=" ("=== FINDINGS ===", "= unchanged effusion") is
# written by `to_excel` as a formula, which has no value until Excel has run it, and `read_excel` gives NaN. Lines
# that begin with "-" or "+" come back. Guess: the same text. Seen: below. So: a sheet for a reader study loses the
# reports whose headings are drawn with "=", in silence; write such a cell with data_type "s", or write CSV.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" pandas==3.1.1 openpyxl==3.1.5 numpy==2.4.6
cd "$site"
PYTHONPATH="$site" python3 - <<'EOF'
import pandas as pd

REPORTS = ["=== FINDINGS ===\nClear lungs.", "= unchanged effusion", "- no edema", "+ edema"]
pd.DataFrame({"study": range(4), "report": REPORTS}).to_excel("a.xlsx", index=False)
back = pd.read_excel("a.xlsx")["report"].tolist()
for report, text in zip(REPORTS, back):
    print(f"{report!r} comes back as {text!r}")
assert back[2:] == REPORTS[2:] and all(pd.isna(text) for text in back[:2])
EOF
