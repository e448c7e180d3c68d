"""The policy: a Qwen2.5-VL, its prompts, its report codec and its shared-prefix forward."""
