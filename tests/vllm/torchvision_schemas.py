"""Lets torchvision from PyPI be imported beside a torch without CUDA.

Its compiled operators want CUDA's libraries, do not load, and the import then fails over the two
schemas it registers fakes for. vLLM imports torchvision and uses none of its operators here, so
the environment of the vLLM tests defines those schemas just before the import.
"""

from __future__ import annotations

import sys
from importlib.abc import MetaPathFinder

SCHEMAS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
)
_kept = []


class BeforeTorchvision(MetaPathFinder):
    """Finds nothing; defines the schemas when torchvision is first looked for."""

    def find_spec(self, fullname, path=None, target=None):
        if fullname == "torchvision":
            sys.meta_path.remove(self)
            import torch

            library = torch.library.Library("torchvision", "DEF")
            for schema in SCHEMAS:
                library.define(schema)
            _kept.append(library)
        return None


sys.meta_path.insert(0, BeforeTorchvision())
