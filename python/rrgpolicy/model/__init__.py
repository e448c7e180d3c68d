"""The policy: a backbone, its prompts, report codec and shared-prefix forward."""

from rrgpolicy.model.packed_windows import PACKED_WINDOWS
from rrgpolicy.model.shared_prefix import (
    SharedPrefixLogps,
    probe_shared_prefix,
    shared_prefix_logps,
)

__all__ = ["PACKED_WINDOWS", "SharedPrefixLogps", "probe_shared_prefix", "shared_prefix_logps"]
