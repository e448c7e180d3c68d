"""The policy: a backbone, its prompts, report codec and shared-prefix forward."""

from rrgtrain.policy.packed_windows import PACKED_WINDOWS
from rrgtrain.policy.shared_prefix import SharedPrefixLogps, shared_prefix_logps

__all__ = ["PACKED_WINDOWS", "SharedPrefixLogps", "shared_prefix_logps"]
