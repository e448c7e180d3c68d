"""The policy: a Qwen2.5-VL or Qwen2, its prompts, report codec and shared-prefix forward."""

from rrgtrain.policy.shared_prefix import SharedPrefixLogps, shared_prefix_logps

__all__ = ["SharedPrefixLogps", "shared_prefix_logps"]
