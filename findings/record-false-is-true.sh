#!/bin/sh
# cattrs 26.2.1, mashumaro 3.23, dataclasses-json 0.6.7: the record {"effusion": "false"} read into a dataclass with a bool says True,
# "no" and "absent" too, and a judge's score of 3.7 read into an int is 3, all without a word: the value is put through `bool` and
# `int` of Python. Guess: False, or refused. pydantic 2.14.4 says False, refuses "absent" and 3.7. Seen: below.
# So: labels that came through a CSV or a form turn positive, and half points are cut off. Read them by a type of your own or
# a reader that refuses.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" cattrs==26.2.1 mashumaro==3.23 dataclasses-json==0.6.7 pydantic==2.14.4
PYTHONPATH="$site" python3 - <<'EOF'
from dataclasses import dataclass

import cattrs
import dataclasses_json
import pydantic
from mashumaro.codecs import BasicDecoder


@dataclass
class Label:
    effusion: bool


@dataclass
class Judged:
    score: int


READERS = {
    "cattrs": lambda record, kind: cattrs.structure(record, kind),
    "mashumaro": lambda record, kind: BasicDecoder(kind).decode(record),
    "dataclasses-json": lambda record, kind: dataclasses_json.dataclass_json(kind).from_dict(record),
}
for name, read in READERS.items():
    labels = [read({"effusion": word}, Label).effusion for word in ("false", "no", "absent", "")]
    score = read({"score": 3.7}, Judged).score
    print(f"{name}: false, no, absent and the empty text are {labels}, 3.7 is {score}")
    assert labels == [True, True, True, False] and score == 3
strict = pydantic.TypeAdapter(Label)
assert strict.validate_python({"effusion": "no"}) == Label(False)
for record, kind in (({"effusion": "absent"}, Label), ({"score": 3.7}, Judged)):
    try:
        raise SystemExit(f"pydantic takes {record}: {pydantic.TypeAdapter(kind).validate_python(record)}")
    except pydantic.ValidationError:
        print(f"pydantic refuses {record}")
EOF
