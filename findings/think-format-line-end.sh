#!/bin/sh
# trl 1.16.0: `think_format_reward` gives 0 to an answer that has a line end before <think>, and to one whose
# <think> the chat template has opened in the prompt, as those of reasoning models do; it gives 1 to an empty block,
# and to a block behind which no report stands. Guess: 1 for the first. Seen: below.
# So: beside a template that opens the block, all members of all groups have 0 and the format is never learned;
# where it is learned, thinking nothing and reporting nothing is enough. Strip the answer, join what the prompt has
# opened, and ask for text in both.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --no-deps --target "$site" trl==1.16.0
python3 - "$site/trl/rewards/format_rewards.py" <<'EOF'
import sys
from importlib.util import module_from_spec, spec_from_file_location

spec = spec_from_file_location("format_rewards", sys.argv[1])
module = module_from_spec(spec)
spec.loader.exec_module(module)

ANSWERS = {
    "as it is asked": "<think>Small effusion.</think>Small left effusion.",
    "a line end before it": "\n<think>Small effusion.</think>Small left effusion.",
    "opened by the prompt": "Small effusion.</think>Small left effusion.",
    "nothing thought": "<think></think>Small left effusion.",
    "nothing reported": "<think>Small effusion.</think>",
}
rewards = module.think_format_reward([[{"role": "assistant", "content": text}] for text in ANSWERS.values()])
for name, reward in zip(ANSWERS, rewards):
    print(f"{name}: {reward:g}")
assert rewards == [1.0, 0.0, 0.0, 1.0, 1.0]
EOF
