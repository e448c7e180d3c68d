"""Load checkpoints on two ranks, whole and by shards, for `test_loading`."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from rrgclinical.common.errors import UserError
from rrgpolicy.model.load import Policy, load_policy
from rrgpolicy.ranks import gathered, ranks, sharding
from rrgtrain.train.reference import reference_of
from tests.rrgpolicy.ranks.tracker import LiveBytes

OPTIONS: dict[str, dict[str, Any]] = {
    "fp32": {"masters": True},
    "frozen tower": {"masters": True, "dtype": "bfloat16", "freeze_vision": True},
}


@dataclass
class Loaded:
    """The differences between a rank's shards loaded both ways, and bytes of the loading.

    held: of its shards. largest: of the largest tensor. filled: the peak until all are filled.
    ready: the peak until the policy can be used.
    """

    differences: list[str] = field(default_factory=list)
    held: int = 0
    largest: int = 0
    whole: int = 0
    filled: int = 0
    ready: int = 0
    reads: int = 0


class Allocated(LiveBytes):
    """Leave out tensors that view a checkpoint's file: the kernel drops its pages when it likes."""

    def _add(self, tensor: Any) -> None:
        # memory of PyTorch's own can be resized, a mapped file cannot
        if getattr(tensor, "_local_tensor", tensor).untyped_storage().resizable():
            super()._add(tensor)


def shards(policy: Policy) -> dict[str, tuple[Any, ...]]:
    """Return what a rank holds under each name, buffers included."""
    found: dict[str, tuple[Any, ...]] = {}
    for name, p in policy.model.named_parameters(remove_duplicate=False):
        local: Any = p.detach()
        found[name] = (local.to_local(), p.shape, p.requires_grad, local.placements)
    for name, b in policy.model.named_buffers(remove_duplicate=False):
        found[name] = (b, b.shape)
    return found


def differences(one: Policy, two: Policy) -> list[str]:
    left, right = shards(one), shards(two)
    wrong = [name for name in left.keys() ^ right.keys()]
    for name in left.keys() & right.keys():
        (a, *about), (b, *other) = left[name], right[name]
        if about != other or a.dtype != b.dtype or a.device != b.device or not torch.equal(a, b):
            wrong.append(name)
    tied = [p.backbone.lm_head.weight is p.language_model.embed_tokens.weight for p in (one, two)]
    wrong += ["ties"] * (tied[0] != tied[1])
    for name in ("eos_ids", "dtype", "vision_frozen"):
        wrong += [name] * (getattr(one, name) != getattr(two, name))
    for name in ("name_or_path", "training"):
        wrong += [name] * (getattr(one.model, name) != getattr(two.model, name))
    for name in ("generation_config", "config"):
        a, b = (getattr(p.model, name).to_dict() for p in (one, two))
        wrong += [name] * (a != b)
    return wrong


def loaded(path: str, options: dict[str, Any]) -> Loaded:
    whole = load_policy(path, **options)
    sharding.setup("fsdp2", whole)
    tracker, found = Allocated(), Loaded()
    fill_shards, from_main = gathered.fill_shards, gathered.from_main

    def filled(*words: Any) -> None:
        fill_shards(*words)
        found.filled = tracker.peak

    def counted(read: Callable[[str, torch.Tensor], None]) -> Any:
        def counting(name: str, out: torch.Tensor) -> None:
            found.reads += 1
            read(name, out)

        return from_main(counting)

    gathered.fill_shards, gathered.from_main = filled, counted
    try:
        with tracker.measured():
            streamed = load_policy(path, unread=True, **options)
            sharding.setup("fsdp2", streamed)
    finally:
        gathered.fill_shards, gathered.from_main = fill_shards, from_main
    found.ready = tracker.peak
    found.differences = differences(whole, streamed)
    parameters: list[Any] = list(streamed.model.parameters())
    found.held = sum(p.to_local().nbytes for p in parameters)
    found.held += sum(b.nbytes for b in streamed.model.buffers())
    found.largest = max(p.nbytes for p in parameters)
    found.whole = sum(p.nbytes for p in parameters)
    return found


def reference(path: str) -> list[str]:
    """The names in which a reference of shards differs from one of whole weights."""
    options: dict[str, Any] = {"masters": True, "dtype": "bfloat16"}
    whole, streamed = load_policy(path, **options), load_policy(path, unread=True, **options)
    sharding.setup("fsdp2", streamed)
    pair = reference_of(whole, shares=False), reference_of(streamed)
    sharding.setup("fsdp2", *pair)
    return differences(replace(pair[0]), replace(pair[1]))


def refused(path: str) -> str:
    try:
        with ranks.propagate_errors():
            sharding.setup("fsdp2", load_policy(path, masters=True, unread=True))
    except UserError as error:
        return str(error)
    return "loaded"


def main(words: list[str]) -> int:
    """words: out; paths of good checkpoints, "--", and of spoilt ones. A file for each rank."""
    out, *paths = words
    good, spoilt = paths[: paths.index("--")], paths[paths.index("--") + 1 :]
    found: dict[str, Any] = {}
    with ranks.opened("fsdp2", 300.0, cuda=False), ranks.propagate_errors():
        for path in good:
            for name, options in OPTIONS.items():
                found[f"{Path(path).name}, {name}"] = loaded(path, options)
        found["reference"] = reference(good[0])
        found |= {f"spoilt, {Path(path).name}": refused(path) for path in spoilt}
        Path(f"{out}-{ranks.rank()}").write_bytes(pickle.dumps(found))
    ranks.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
