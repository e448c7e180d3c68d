"""Recompute a saved batch whose numbers were not finite: `rrgtrain replay`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rrgdata.sources import every_source
from rrgdata.study import Study
from rrgpolicy.model.forward import head_logps, hidden_states
from rrgpolicy.model.policy import Policy, add_lora
from rrgpolicy.model.template import check_prompt
from rrgpolicy.ranks.sharding import load_weights
from rrgtrain.config import load_config
from rrgtrain.errors import UserError
from rrgtrain.run.checked import check_start
from rrgtrain.run.data import read_studies
from rrgtrain.run.session import start_policy
from rrgtrain.schema import PROMPT_STYLES, Recipe
from rrgtrain.state.rundir import RunDir
from rrgtrain.state.store import load_checkpoint
from rrgtrain.train.loader import PromptLoader


def replay_batch(directory: Path, overrides: Sequence[str] = ()) -> Iterator[str]:
    """Compute the log-probabilities and gradients of a kept batch; yield a line on each.

    directory: RUN/failures/<stage>-<step>. The run's own recipe, with `overrides`, its data and
        policy are opened, with the weights of the step that failed. No reward, engine or algorithm
        is imported, and a loader of one's own only where `overrides` name it: the run may be a
        stranger's.

    Raises UserError for any other directory, and for a loader that only the run names.
    """
    run = RunDir(directory.parent.parent)
    if not run.config.is_file() or not (directory / "manifest.json").is_file():
        what = "holds no batch" if directory.exists() else "does not exist"
        raise UserError(f"{directory} {what}; name a directory RUN/failures/<stage>-<step>")
    try:
        kept = load_checkpoint(directory).state
    except (OSError, ValueError, KeyError) as error:
        raise UserError(f"{directory} cannot be read: {error}") from error
    if "batch" not in kept:
        raise UserError(
            f"{directory} is a checkpoint; name a directory RUN/failures/<stage>-<step>"
        )
    recipe = load_config(Recipe, run.config, list(overrides))
    source = recipe.data.source
    if source not in (*every_source(), "phantom") and f"data.source={source}" not in overrides:
        raise UserError(
            f"{run.config} names code, data.source={source}, which a saved batch must not choose; "
            f"write data.source={source} behind {directory} if you know it to be yours"
        )
    check_prompt(recipe.policy.prompt, PROMPT_STYLES)
    check_start(recipe.policy, recipe.rollout.engine, one_image=recipe.data.one_image)
    studies = read_studies(recipe.data, run.path)
    policy, prompts = start_policy(recipe, studies, run.path, resume=True)
    add_lora(policy, recipe.policy.lora, recipe.policy.seed)
    load_weights(policy, kept["weights"])
    batch = kept["batch"]
    yield f"{kept['stage']}, step {kept['step']}: {len(batch['members'])} reports"
    yield _finite_line("weights", dict(kept["weights"]))
    for name in ("rewards", "advantages"):
        if name in batch:
            yield _finite_line(name, {name: batch[name]})
    by_id = {study.id: study for split in studies.values() for study in split}
    yield from _computed(prompts, by_id, batch["members"], recipe.rl.temperature)


def _computed(
    loader: PromptLoader,
    studies: Mapping[str, Study],
    members: list[dict[str, Any]],
    temperature: float,
) -> Iterator[str]:
    policy = loader.policy
    for m in members:
        if m["study"] not in studies:
            raise UserError(
                f"the batch names study {m['study']}, which the data no longer has; give the run's "
                "data back its studies"
            )
        place = f"a report of study {m['study']} in the batch"
        _check_ids(m["ids"], policy.embedding_shape[0], place)
    prompts = [loader(studies[m["study"]]) for m in members]
    policy.model.train()
    with _first_bad_module(policy) as seen:
        hidden, batch = hidden_states(policy, prompts, [[m["ids"]] for m in members])
    logps = head_logps(policy, hidden, batch.targets, temperature)
    if seen:
        yield f"forward: {seen[0]} is the first module whose output is not finite"
    bounds = batch.offsets.tolist()
    for m, a, b in zip(members, bounds, bounds[1:], strict=False):
        part = logps[a:b]
        if not bool(torch.isfinite(part).all()):
            yield f"log-probabilities: not finite in a report of {m['study']} ({m['origin']})"
    logps.mean().backward()
    grads = {n: p.grad for n, p in policy.model.named_parameters() if p.grad is not None}
    yield _finite_line("log-probabilities", {"log-probabilities": logps.detach()})
    yield _finite_line("gradient of their mean", grads)


def _check_ids(ids: Tensor, vocabulary: int, place: str) -> None:
    """Raise UserError for a token id that the policy has no embedding of."""
    outside = ids[(ids < 0) | (ids >= vocabulary)]
    if len(outside):
        raise UserError(
            f"{place} has the token id {int(outside[0])}, and the policy has {vocabulary} of them; "
            "take the file from a copy, or give the run its policy back"
        )


@contextmanager
def _first_bad_module(policy: Policy) -> Iterator[list[str]]:
    seen: list[str] = []
    handles = []

    def watch(name: str) -> Any:
        def hook(_module: Any, _inputs: Any, output: Any) -> None:
            first = output[0] if isinstance(output, tuple) else output
            if isinstance(first, torch.Tensor) and not bool(torch.isfinite(first).all()):
                seen.append(name)

        return hook

    for name, module in policy.model.named_modules():
        if not any(module.children()):
            handles.append(module.register_forward_hook(watch(name)))
    try:
        yield seen
    finally:
        for handle in handles:
            handle.remove()


def _finite_line(what: str, tensors: dict[str, torch.Tensor]) -> str:
    bad = [n for n, t in tensors.items() if not bool(torch.isfinite(t).all())]
    if bad:
        return f"{what}: not finite in {len(bad)} of {len(tensors)}, first {bad[0]}"
    largest = max((float(t.abs().max()) for t in tensors.values() if t.numel()), default=0.0)
    return f"{what}: finite, at most {largest:.3g}"
