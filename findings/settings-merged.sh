#!/bin/sh
# pydantic-settings 2.16.3: a record given to the constructor as a dictionary is merged with what the environment says of its
# other fields; given as the record's own class it stands alone. A model of {"lr": 2} has seed 3 where OPTIM__SEED is 3,
# Optim(lr=2) has the default seed. Guess: the constructor's alone. Seen: below.
# So: a run described in full in a script has other settings on a machine where an earlier run left a variable, and a
# rewrite from dictionaries to classes changes them back. Print the settings of each run.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" pydantic-settings==2.16.3 pydantic==2.14.4
PYTHONPATH="$site" python3 - <<'EOF'
import os

from pydantic import BaseModel
from pydantic_settings import BaseSettings, SettingsConfigDict


class Optim(BaseModel):
    lr: float = 1
    seed: int = 0


class Run(BaseSettings):
    model_config = SettingsConfigDict(env_nested_delimiter="__")
    optim: Optim = Optim()


os.environ["OPTIM__SEED"] = "3"
by_dictionary, by_class = Run(optim={"lr": 2}).optim, Run(optim=Optim(lr=2)).optim
print("dictionary:", by_dictionary)
print("class:", by_class)
assert (by_dictionary.lr, by_dictionary.seed) == (2, 3)
assert (by_class.lr, by_class.seed) == (2, 0)
EOF
