"""Prompts of studies, encoded once and kept."""

from __future__ import annotations

from rrgtrain.data.images import read_image
from rrgtrain.data.study import Study
from rrgtrain.policy.policy import Policy
from rrgtrain.policy.prompt import EncodedPrompt, encode_prompt


class PromptCache:
    """`cache(study)` is the study's encoded prompt; images are read at the first call only."""

    def __init__(self, policy: Policy, style: str, capacity: int = 4096) -> None:
        self.policy, self.style, self.capacity = policy, style, capacity
        self._kept: dict[str, EncodedPrompt] = {}

    def __call__(self, study: Study) -> EncodedPrompt:
        found = self._kept.get(study.id)
        if found is None:
            images = [read_image(image.path) for image in study.images]
            found = encode_prompt(self.policy, study, images, style=self.style)
            if len(self._kept) < self.capacity:
                self._kept[study.id] = found
        return found
