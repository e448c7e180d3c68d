"""FlexAttention where nothing compiles it: PyTorch's own definition of it, backward included.

PyTorch refuses gradients on a CPU, since the compiled backward has no kernel there; the uncompiled
one, which writes the scores out, computes on any device.
"""

from __future__ import annotations

import pytest
import torch.nn.attention.flex_attention as flex_attention

from rrgkern.shared_prefix import flex


def uncompiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flex, "compiled", lambda: flex_attention.flex_attention)
    monkeypatch.setattr(flex_attention, "_validate_device", lambda *_: None)
    monkeypatch.setattr(flex_attention, "_warn_once", lambda *_, **__: None, raising=False)
