"""Rewards of reports as OpenRLHF's reward function.

    python3 -m openrlhf.cli.train_ppo_ray --reward.remote_url examples/openrlhf_reward.py \
        --data.label_key report ...

OpenRLHF calls it for one report at a time, from many threads: the calls queue up in the service,
which reads every text once. An exception here is only logged there, and the run goes on without
that reward; so this file writes the cause on standard error, where it cannot be overlooked.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from typing import Any

import torch

from rrgtrain.rewards import RewardService
from rrgtrain.schema import RewardSettings

SERVICE = RewardService(RewardSettings(terms={"label_f1": 1.0, "match": 1.0}))
TURN = "<|im_start|>assistant\n"  # begins the answer in the chat template of Qwen
# marks of templates: <|im_end|>, Gemma's <end_of_turn>, Llama's </s>; "<5 mm" in a report is none
SPECIAL = re.compile(r"<\|[^|<>]*\|>|</?(?:s|bos|eos|pad|end|(?:start|end)_of_turn|turn\|)>")


def report_of(query: str, prompt: str) -> str:
    """Cut the report from a query, whose prompt may have its image tokens expanded."""
    if not isinstance(query, str) or not isinstance(prompt, str):
        kinds = f"{type(query).__name__}, of a prompt that is {type(prompt).__name__}"
        raise TypeError(f"a query is {kinds}; wanted two texts")
    if prompt and query.startswith(prompt):
        answer = query[len(prompt) :]
    elif (turns := prompt.count(TURN)) and query.count(TURN) >= turns:
        answer = query.split(TURN, turns)[-1]
    else:
        raise ValueError(f"no {TURN!r} in the prompt: set TURN to what begins an answer")
    return SPECIAL.sub("", answer).strip()


def reward_func(
    queries: Sequence[str], prompts: Sequence[str], labels: Sequence[str], **kwargs: Any
) -> dict[str, Any]:
    """Score reports [R] beside their references; "scores" is the reward too, for its filter."""
    try:
        if not isinstance(queries, list | tuple) or not isinstance(prompts, list | tuple):
            raise TypeError("queries or prompts are no list; wanted one text a report in each")
        if len(queries) != len(prompts):
            raise ValueError(f"{len(queries)} queries and {len(prompts)} prompts; wanted one each")
        if any(label == "" for label in labels):  # what OpenRLHF hands over without the option
            raise ValueError("a label is empty; wanted the reference: --data.label_key report")
        reports = [report_of(q, p) for q, p in zip(queries, prompts, strict=True)]
        scores = SERVICE.submit(reports, labels).result()
    except Exception as error:
        print(f"reward failed, and OpenRLHF goes on without it: {error}", file=sys.stderr)
        raise
    values = {name: torch.tensor(value, dtype=torch.float32) for name, value in scores.items()}
    total = values.pop("total")
    return {"rewards": total, "scores": total, "extra_logs": values}


if __name__ == "__main__":
    prompt = f"<|im_start|>user\nReport.<|im_end|>\n{TURN}"
    print(reward_func([f"{prompt}Clear lungs.<|im_end|>"], [prompt], ["No acute disease."]))
