"""Counts that callers hand over."""

from __future__ import annotations

import math

import numpy as np
import pytest

from rrgclinical.common.arguments import whole_number
from rrgclinical.common.errors import UserError


@pytest.mark.parametrize("value", ["1", 1.0, 1.5, True, None, math.nan, [1], -1, 0], ids=repr)
def test_a_count_is_a_whole_number(value) -> None:
    with pytest.raises(UserError, match="^edited is .*; wanted a whole number of at least 1$"):
        whole_number(value, "edited", 1)
    assert whole_number(np.int64(2), "edited", 1) == 2
