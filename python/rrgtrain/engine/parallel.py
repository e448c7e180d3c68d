"""Weights and gradients over the ranks: a copy on each (`ddp`), or a part of all (`fsdp2`).

`ddp` sums the gradients after the last micro-batch of an update. No collective runs inside a
backward: a rank may have no group at all, and one that fails tells the others instead of leaving
them in a collective. That is why it is not PyTorch's DistributedDataParallel, whose overlap of
the last backward with communication is what this gives up.

`fsdp2` is PyTorch's `fully_shard`: a decoder layer is a unit, and all that is outside the layers
(embedding, head, vision tower) another, the root, which stays gathered during an update. Text of
unequal length is no matter, but every rank runs as many forwards as the others (`in_step`), and
none of a vision tower of its own: ranks whose groups have no images would wait for ever. Rollouts
gather all weights first (`gathered`), once for a batch, since sequences of unequal length decode
in unequal numbers of steps; for that time every rank holds the whole model, without gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from rrgtrain.engine import ranks
from rrgtrain.engine.remembered import remember
from rrgtrain.engine.rundir import atomic_directory
from rrgtrain.errors import UserError
from rrgtrain.policy.policy import Policy
from rrgtrain.schema import Recipe

T = TypeVar("T")

VERBS = ("demo", "sft", "rl", "eval")
BUCKET = 64 << 20
_ROOT = "_rrgtrain_root"


class _Root(nn.Module):
    """The model as one module whose forward is any computation with it."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, compute: Callable[[], Any], idle: Callable[[], list[nn.Parameter]]) -> Any:
        out = compute()
        return _Touched.apply(out, *idle()) if torch.is_grad_enabled() else out


class _Touched(torch.autograd.Function):
    """A copy of its first argument; the parameters behind it get a gradient of 0.

    FSDP2 reduces what has a gradient, and ranks must reduce the same. The module's result may be no
    view: its hook would be lost with a change in place.
    """

    @staticmethod
    def forward(ctx: Any, out: Tensor, *unused: nn.Parameter) -> Tensor:
        ctx.like = [(p.shape, p.dtype, p.device) for p in unused]
        return out.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, ...]:
        zeros = (torch.zeros(s, dtype=d, device=at) for s, d, at in ctx.like)
        return gradients[0], *zeros


def check(recipe: Recipe, verb: str) -> None:
    """UserError for what several ranks cannot do."""
    mode = recipe.scale.mode
    if mode == "none" or verb not in VERBS:
        return
    if verb == "demo" and mode == "fsdp2":
        raise UserError(
            "rrgtrain demo fine-tunes and goes on with the same model, which scale.mode=fsdp2 has "
            "in parts by then; use `rrgtrain sft` and `rrgtrain rl --from`, or scale.mode=ddp"
        )
    if verb != "rl" and verb != "demo":
        return
    engine = recipe.rollout.engine
    if engine == "vllm" or (engine == "vllm_server" and mode == "fsdp2"):
        other = "transformers" if mode == "fsdp2" else "transformers or vllm_server"
        raise UserError(
            f"rollout.engine={engine} does not work with scale.mode={mode}; use "
            f"rollout.engine={other}"
        )
    if recipe.rl.optimizer == "adamw_8bit" and mode == "fsdp2":
        raise UserError(
            "rl.optimizer=adamw_8bit works on whole weights, which scale.mode=fsdp2 has in parts; "
            "use rl.optimizer=adamw, or scale.mode=ddp"
        )


def place(mode: str, *policies: Policy | None) -> None:
    """Lays the policies over the ranks as `mode` says; all start from rank 0's weights.

    A policy trained by an optimiser is placed before the optimiser is made.
    """
    if mode == "none":
        return
    ranks.gate()
    models = {id(p.model): p for p in policies if p is not None}
    for policy in models.values():
        for parameter in policy.model.parameters():
            if parameter.requires_grad:
                dist.broadcast(parameter.detach(), 0)
        if mode == "fsdp2":
            _shard(policy)


def sharded(policy: Policy) -> bool:
    """Whether each rank holds only a part of the policy's weights."""
    return _root(policy) is not None


def through(policy: Policy, compute: Callable[[], Tensor], *, images: bool) -> Tensor:
    """`compute()`, which runs the policy's model forward.

    images: whether it runs the vision tower.
    """
    root = _root(policy)
    if root is None:
        return compute()
    tower = None if images else policy.visual
    ranks.gate()
    with ranks.inseparable():
        out = root(compute, lambda: _trained(tower) if tower is not None else [])
    if not torch.is_grad_enabled():
        root.reshard()  # which is otherwise the backward's work
    return out


def backward(policy: Policy, loss: Tensor) -> None:
    """`loss.backward()`, once all ranks have their loss."""
    if not sharded(policy):
        loss.backward()
        return
    ranks.gate()
    with ranks.inseparable():
        loss.backward()


def in_step(policy: Policy, chunks: Sequence[T], idle: T) -> Iterator[T]:
    """The chunks; where weights are sharded, then `idle` until the rank with most is done."""
    most = max(ranks.gather(len(chunks))) if sharded(policy) else len(chunks)
    yield from chunks
    for _ in range(most - len(chunks)):
        yield idle


def reduce_gradients(policy: Policy, *, images: bool) -> None:
    """Adds up the ranks' gradients. A parameter that no rank has used keeps none.

    images: whether this rank's forwards have run the vision tower.
    """
    parameters = _trained(policy.model)
    if sharded(policy):
        if policy.visual is not None and not any(ranks.gather(images)):
            for parameter in _trained(policy.visual):
                parameter.grad = None
        return
    if ranks.size() == 1:
        return
    have = ranks.gather([p.grad is not None for p in parameters])
    reduced = [p for k, p in enumerate(parameters) if any(own[k] for own in have)]
    for parameter in reduced:
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
    for bucket in _buckets([p.grad for p in reduced if p.grad is not None]):
        flat = torch.cat([gradient.reshape(-1) for gradient in bucket])
        dist.all_reduce(flat)
        parts = flat.split([gradient.numel() for gradient in bucket])
        for gradient, total in zip(bucket, parts, strict=True):
            gradient.copy_(total.view_as(gradient))


@contextmanager
def gathered(policy: Policy) -> Iterator[None]:
    """Whole weights inside, for forwards of which each rank may run as many as it likes."""
    root = _root(policy)
    if root is None:
        yield
        return
    units = _units(root)
    ranks.gate()
    with ranks.inseparable():
        for unit in units:
            unit.unshard()
    for unit in units:
        unit.set_reshard_after_forward(False, recurse=False)
    try:
        yield
    finally:
        for unit in units:
            unit.set_reshard_after_forward(unit is not root, recurse=False)
            unit.reshard()


def full(state: Any) -> Any:
    """Nested `state` with whole tensors on the CPU in the place of sharded ones.

    All ranks call it at once; on those other than 0 such tensors are None.
    """
    if isinstance(state, dict):
        return {key: full(value) for key, value in state.items()}
    if isinstance(state, list | tuple):
        return type(state)(map(full, state))
    if not _is_sharded(state):
        return state
    whole = state.full_tensor()
    return whole.cpu() if ranks.first() else None


def as_parameter(value: Tensor, parameter: Tensor) -> Tensor:
    """A whole tensor of the parameter's shape on its device, and sharded as it is."""
    if not _is_sharded(parameter) or _is_sharded(value):
        return value.to(parameter.device)
    from torch.distributed.tensor import distribute_tensor

    sharding: Any = parameter
    # every rank has the whole value: nothing is sent
    return distribute_tensor(
        value.to(parameter.device), sharding.device_mesh, sharding.placements, src_data_rank=None
    )


def load_optimizer(optimizer: torch.optim.Optimizer, saved: dict[str, Any]) -> None:
    """Puts back a whole `state_dict` of the optimiser."""
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    if any(map(_is_sharded, parameters)):
        states = {}
        for place_, values in saved["state"].items():
            own = parameters[place_]
            states[place_] = {
                name: as_parameter(value, own)
                if isinstance(value, Tensor) and value.shape == own.shape
                else value
                for name, value in values.items()
            }
        saved = {**saved, "state": states}
    optimizer.load_state_dict(saved)


def save_policy(policy: Policy, directory: Path, recipe: Recipe) -> None:
    """The policy, and what `recipe` trained it for, as a checkpoint directory, whole or not at all.

    Rank 0 writes it.
    """
    root = _root(policy)
    names = None if root is None else list(policy.model.state_dict())
    with gathered(policy):
        if ranks.first():
            with atomic_directory(directory) as partial:
                policy.save(partial, None if names is None else _weights(policy, names))
                remember(recipe, partial)
        ranks.gate()


def _shard(policy: Policy) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh(policy.device.type, (ranks.size(),))
    root = _Root(policy.model)
    for layer in policy.language_model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(root, mesh=mesh)
    for unit in _units(root):
        # The loss of a rank is its part of the sum over all ranks; nothing is averaged.
        unit.set_gradient_divide_factor(1.0)
        unit.set_force_sum_reduction_for_comms(True)
    object.__setattr__(policy.model, _ROOT, root)
    with torch.no_grad():
        # The first forward of all decides which module is the root.
        root(lambda: None, list)
    for unit in _units(root):
        unit.reshard()


def _root(policy: Policy) -> Any:
    return policy.model.__dict__.get(_ROOT)


def _units(root: _Root) -> list[Any]:
    return [module for module in root.modules() if hasattr(module, "unshard")]


def _trained(module: nn.Module) -> list[nn.Parameter]:
    return [p for p in module.parameters() if p.requires_grad]


def _is_sharded(value: Any) -> bool:
    return isinstance(value, Tensor) and hasattr(value, "device_mesh")


def _buckets(gradients: Iterable[Tensor]) -> Iterator[list[Tensor]]:
    """Consecutive gradients of one dtype, `BUCKET` bytes or one gradient together."""
    bucket: list[Tensor] = []
    used = 0
    for gradient in gradients:
        size = gradient.numel() * gradient.element_size()
        if bucket and (used + size > BUCKET or gradient.dtype != bucket[0].dtype):
            yield bucket
            bucket, used = [], 0
        bucket.append(gradient)
        used += size
    if bucket:
        yield bucket


def _weights(policy: Policy, names: list[str]) -> dict[str, Tensor]:
    """The gathered model's state: asking the model itself would shard it again."""
    found: dict[str, Tensor] = dict(policy.model.named_parameters(remove_duplicate=False))
    found.update(policy.model.named_buffers(remove_duplicate=False))
    return {name: found[name].detach() for name in names}
