"""Import and build in the runs' server what each run forked from it would build for itself.

Nothing here starts a thread, draws a number or says a line that a run says once.
"""

from __future__ import annotations

import gc
import importlib

from transformers.conversion_mapping import get_checkpoint_conversion_mapping

from rrgclinical import build_extractor, build_labeller
from rrgclinical.severity import load_table
from rrgreport.page import environment
from rrgtrain.config import load_config
from rrgtrain.schema import Recipe
from tests import unsynced

LAZY = (
    *("numpy.ma", "peft", "PIL.BmpImagePlugin", "PIL.GifImagePlugin", "PIL.JpegImagePlugin"),
    *("PIL.PngImagePlugin", "PIL.PpmImagePlugin", "rrgdata.check", "rrgdata.sources.iu_xray"),
    *("rrgreport.compare", "rrgtrain.plan", "rrgtrain.run.export", "rrgtrain.run.generate"),
    *("rrgtrain.run.init", "rrgtrain.run.outcome"),
    *("rrgtrain.run.scorecards", "rrgtrain.run.select_studies", "rrgtrain.run.stages"),
    *("torch.utils.serialization", "torch.utils.tensorboard"),
    *("transformers.models.qwen2.tokenization_qwen2", "tvm_ffi"),
)
"""Modules that a run imports on its way."""

for name in LAZY:
    importlib.import_module(name)
# a misspelt word: the index of spellings is built where one is met
build_labeller("rules").label(["no pleural effusionn"])
build_extractor("rules").extract(["no pleural effusionn"])
load_table()
load_config(Recipe, None, [])
get_checkpoint_conversion_mapping("qwen2_5_vl")
for name in environment().list_templates(extensions=["j2"]):
    environment().get_template(name)
unsynced.patch_once()
# What stands here is no garbage of a child, which would walk through it all.
gc.freeze()
