#!/bin/sh
# Pint 0.25.3: "14 Fr", as every report of a chest tube or catheter has it, is a charge of 14 franklin, and "14 F" a
# capacity of 14 farad; neither is refused, and neither converts to mm. "10 G" of a needle is a magnetic field.
# "14 french" and "18 gauge" are refused. Guess: 4.67 mm, or refused. Seen: below.
# So: a reader of sizes by this library drops tubes only where somebody asks for mm. Define the French unit first.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" pint==0.25.3
PYTHONPATH="$site" python3 - <<'EOF'
import pint

units = pint.UnitRegistry()
for text, seen in (("14 Fr", "franklin"), ("14 F", "farad"), ("10 G", "gauss"), ("7 mm", "millimeter")):
    print(text, "->", units(text))
    assert str(units(text).units) == seen
    assert units(text).check("[length]") == (seen == "millimeter")
for text in ("14 french", "18 gauge"):
    try:
        units(text)
    except pint.UndefinedUnitError as error:
        print(text, "->", error)
    else:
        raise SystemExit(f"{text} is read")
EOF
