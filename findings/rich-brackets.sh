#!/bin/sh
# rich 15.0.0: `print` reads small letters in brackets as the name of a style, and a name that it does not know is dropped
# without a word. "There is [no] effusion" becomes "There is  effusion", in the cells of a table too; "[No]" and "[3]" stay.
# Guess: as it is, or refused. Seen: below. Its page says that brackets are markup.
# So: a dictated or an edited report that a command line shows through rich may say the opposite. Use `markup=False`
# or `rich.markup.escape`, for cells too.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" rich==15.0.0
PYTHONPATH="$site" python3 - <<'EOF'
import io

from rich.console import Console
from rich.markup import escape
from rich.table import Table

report = "There is [no] effusion. [No] edema. Image [3]."


def shown(thing, **options):
    out = io.StringIO()
    Console(file=out, width=80).print(thing, **options)
    return out.getvalue()


table = Table("report")
table.add_row(report)
lines = {"print": shown(report), "table": shown(table).splitlines()[3],
         "markup=False": shown(report, markup=False), "escape": shown(escape(report))}
for name, line in lines.items():
    print(f"{name}: {line.strip()}")
for name in ("print", "table"):
    assert "There is  effusion. [No] edema. Image [3]." in lines[name]
assert lines["markup=False"].strip() == lines["escape"].strip() == report
EOF
