"""The policy: a backbone, its prompts, report codec and shared-prefix forward."""

from rrgpolicy.model.packed_windows import PACKED_WINDOWS
from rrgpolicy.model.shared_prefix import SharedPrefixLogps, shared_prefix_logps

__all__ = ["PACKED_WINDOWS", "SharedPrefixLogps", "shared_prefix_logps"]
