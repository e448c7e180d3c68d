#!/bin/sh
# pytorch-ignite 0.5.5: `EarlyStopping` takes a score of NaN for an improvement, since "no better" is asked as score <=
# best: behind 0.7 every NaN sets the patience back and becomes the best, so that a run that has diverged never
# stops. `ModelCheckpoint(n_saved=1)` keeps the model whose score was NaN at the first evaluation and none that is
# better later. Guess: NaN is no improvement, as in Lightning and transformers. Seen: below. So: a first F1 without
# a positive, or one NaN loss, decides the run. Give the handlers -inf for NaN.
# PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu brings the small build of torch.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" pytorch-ignite==0.5.5 torch==2.13.0 numpy==2.4.6
cd "$site"
PYTHONPATH="$site" python3 -W ignore - <<'EOF'
import logging
import os
import tempfile

import torch
from ignite.engine import Engine
from ignite.handlers import EarlyStopping, ModelCheckpoint

logging.disable()
NAN = float("nan")


def evaluation(epoch, score):
    """Return an engine in the state behind an evaluation."""
    engine = Engine(lambda *_: None)
    engine.state.epoch, engine.state.score = epoch, score
    return engine


stopped, kept = {}, {}
for name, scores in (("low", [0.7] + [0.1] * 8), ("NaN", [0.7] + [NAN] * 8), ("NaN at times", [0.7, 0.1, NAN] * 3),
                     ("NaN first", [NAN, 0.5, 0.7])):
    trainer = Engine(lambda *_: None)
    patience = EarlyStopping(3, lambda engine: engine.state.score, trainer)
    folder = tempfile.mkdtemp()
    saver = ModelCheckpoint(folder, "best", n_saved=1, score_function=lambda engine: engine.state.score,
                            global_step_transform=lambda engine, _: engine.state.epoch)
    for epoch, score in enumerate(scores):
        engine = evaluation(epoch, score)
        patience(engine)
        saver(engine, {"model": torch.nn.Linear(1, 1)})
    stopped[name], kept[name] = trainer.should_terminate, os.listdir(folder)
    print(f"{name} {scores}: stopped {stopped[name]}, best score {patience.best_score}, kept {kept[name]}")
assert stopped["low"] and not stopped["NaN"] and not stopped["NaN at times"]
assert "nan" in kept["NaN first"][0] and "0.7" in kept["low"][0]
EOF
