"""Policies of any family of transformers, their shared prompts, ranks and samplers.

For a training loop of your own: nothing here knows a recipe. `model` loads a checkpoint, encodes
prompts and computes the log-probs of groups that share them; `rollout` samples by transformers or
vLLM; `ranks` shards weights over processes; `sampler_alarm` names the fault between a sampler and a
trainer. `vllm_worker` runs in vLLM's own processes: importing this package loads nothing.
"""
