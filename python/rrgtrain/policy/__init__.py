"""The policy: a Qwen2.5-VL, its prompts, its report codec and its shared-prefix forward."""

from rrgtrain.policy.shared_prefix import SharedPrefixLogps, shared_prefix_logps

__all__ = ["SharedPrefixLogps", "shared_prefix_logps"]
