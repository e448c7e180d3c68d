"""Masters in fp32, computation in `policy.dtype`, over one rank or several.

That is PyTorch's `fully_shard` with a `MixedPrecisionPolicy`, on several ranks and, as a world of
one, in a process of its own; a process alone that computes in fp32 keeps its plain model. A decoder
layer is a unit, and all that is outside the layers another, the root. Every rank runs as many
forwards as the others (`pad_to_lockstep`), and none of a vision tower of its own: ranks whose
groups have no images would wait for ever.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from rrgclinical.common.errors import UserError
from rrgpolicy.ranks import gathered, nodes, ranks
from rrgpolicy.ranks.layout import Layout, Shardable

T = TypeVar("T")


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

    FSDP2 reduces what has a gradient, and ranks must reduce the same. The module's result must not
    be a view: a change in place would lose its hook.
    """

    @staticmethod
    def forward(ctx: Any, out: Tensor, *unused: nn.Parameter) -> Tensor:
        ctx.like = [(p.shape, p.dtype, p.device) for p in unused]
        return out.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, ...]:
        zeros = (torch.zeros(s, dtype=d, device=at) for s, d, at in ctx.like)
        return gradients[0], *zeros


def setup(mode: str, *policies: Shardable | None, shard: int | None = None) -> None:
    """Shard the policies over the ranks; all start from rank 0's weights.

    shard: how many ranks share one copy of the weights (`scale.shard`, see `nodes.shard_size`).
    A policy that an optimiser trains is set up before the optimiser is made; one that has been
    set up stays as it is. Of one whose weights are unread (`Layout.fill`) a rank reads its part.
    """
    models = {id(p.model): p for p in policies if p is not None and not is_sharded(p)}
    if mode == "none":
        for policy in models.values():
            if any(p.dtype != policy.dtype for p in _trained(policy.model)):
                ranks.join_alone(cuda=policy.device.type == "cuda")
                _shard(policy, 1)
        return
    together = nodes.shard_size(shard)
    for policy in models.values():
        if not policy.layout.unread:
            for parameter in _trained(policy.model):
                dist.broadcast(parameter.detach(), 0)
        _shard(policy, together)


def read(policy: Shardable, shard: int | None) -> None:
    """Shard a policy whose weights are unread, and read them; leave other ones."""
    if policy.layout.unread:
        setup("fsdp2", policy, shard=shard)


def is_sharded(policy: Shardable) -> bool:
    """True where `fully_shard` holds the policy's weights, each rank its part of them."""
    return policy.layout.root is not None


def frozen_copy(policy: Shardable) -> tuple[nn.Module, Layout]:
    """Copy a sharded policy's model as it is, in `policy.dtype`; `setup` gives it its shards."""
    return gathered.unread_copy(policy), Layout(fill=gathered.from_shards(policy.model))


def forward(policy: Shardable, compute: Callable[[], Tensor], *, images: bool) -> Tensor:
    """`compute()`, which runs the policy's model forward.

    images: whether it runs the vision tower.
    """
    root = policy.layout.root
    if root is None:
        return compute()
    ranks.barrier()
    with ranks.inseparable():
        out = root(compute, lambda: [] if images else _seeing(policy))
    if not torch.is_grad_enabled():
        root.reshard()  # which is otherwise the backward's work
    return out


def backward(policy: Shardable, loss: Tensor) -> None:
    """`loss.backward()`, once all ranks have their loss."""
    if not is_sharded(policy):
        loss.backward()
        return
    ranks.barrier()
    with ranks.inseparable():
        loss.backward()


def pad_to_lockstep(policy: Shardable, chunks: Sequence[T], idle: T) -> Iterator[T]:
    """The chunks; where weights are sharded, then `idle` until the rank with most is done."""
    most = max(ranks.gather(len(chunks))) if is_sharded(policy) else len(chunks)
    yield from chunks
    for _ in range(most - len(chunks)):
        yield idle


def drop_unused_gradients(policy: Shardable, *, images: bool) -> None:
    """Clear the zero gradients of a vision tower that no rank has run.

    images: True where this rank's forwards have run the vision tower.
    """
    if not is_sharded(policy) or not policy.eyes():
        return
    if not any(ranks.gather(images)):
        for parameter in _seeing(policy):
            parameter.grad = None


def gather_in_turn(policy: Shardable) -> Iterator[frozenset[str]]:
    """Gather the weights part by part, each whole in `policy.dtype` in its turn.

    Yields the names of the parameters of `policy.model` that are whole and have had no turn yet.
    A decoder layer is a part, so a rank holds one layer at a time, and the root with embedding,
    head and tower is the last. All ranks go through it together and to its end.
    """
    root = policy.layout.root
    if root is None:
        with computed_in(policy.model, policy.dtype):
            yield frozenset(gathered.named(policy.model))
        return
    done: set[str] = set()
    ranks.barrier()
    for unit in [unit for unit in _units(root) if unit is not root] + [root]:
        with ranks.inseparable():
            unit.unshard()
        try:
            whole = {
                name for name, p in gathered.named(policy.model).items() if not _is_dtensor(p)
            } - done
            done |= whole
            yield frozenset(whole)
        finally:
            unit.reshard()


def full_state_dict(state: Mapping[str, Any]) -> dict[str, Any]:
    """Gather sharded tensors into whole ones on the CPU.

    All ranks call it at once; on those other than 0 such tensors are None. A tensor that stands
    twice (tied weights) stays one.
    """
    whole: dict[int, Tensor | None] = {}
    ranks.barrier()
    # a signal between two tensors would leave the others waiting
    with ranks.inseparable():
        for value in state.values():
            if _is_dtensor(value) and id(value) not in whole:
                full = value.detach().full_tensor()
                whole[id(value)] = full.cpu() if ranks.is_main() else None
    return {name: whole.get(id(value), value) for name, value in state.items()}


def as_parameter(value: Tensor, parameter: Tensor) -> Tensor:
    """A whole tensor of the parameter's shape on its device, and sharded as it is."""
    if not _is_dtensor(parameter) or _is_dtensor(value):
        return value.to(parameter.device)
    from torch.distributed.tensor import distribute_tensor

    sharding: Any = parameter
    # every rank has the whole value: nothing is sent
    return distribute_tensor(
        value.to(parameter.device), sharding.device_mesh, sharding.placements, src_data_rank=None
    )


@torch.no_grad()
def load_weights(policy: Shardable, weights: dict[str, torch.Tensor]) -> None:
    """Copies `weights` into the parameters of their names.

    Raises UserError where the policy lacks one or has it in another shape.
    """
    gathered.drop(policy)
    parameters = dict(policy.model.named_parameters())
    for name, value in weights.items():
        parameter = parameters.get(name)
        if parameter is None or parameter.shape != value.shape:
            seen = "has no such weight" if parameter is None else f"has {list(parameter.shape)}"
            raise UserError(
                f"the checkpoint holds {name} {list(value.shape)}, but the policy {seen}; resume "
                "with the policy the run began with"
            )
        parameter.copy_(as_parameter(value, parameter))


def load_optimizer(optimizer: torch.optim.Optimizer, saved: dict[str, Any]) -> None:
    """Put back the moments of a whole `state_dict` of the optimiser.

    Decay and betas stay those that the optimiser was made with: a resume may change them. Raises
    UserError where other weights were trained, or by an optimiser of another kind.
    """
    _require_moments(optimizer, saved)
    settings = [{k: v for k, v in g.items() if k != "params"} for g in optimizer.param_groups]
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    if any(map(_is_dtensor, parameters)):  # those of `optim.OnShards` are plain
        states = {}
        for index, values in saved["state"].items():
            own = parameters[index]
            states[index] = {
                name: as_parameter(value, own)
                if isinstance(value, Tensor) and value.shape == own.shape
                else value
                for name, value in values.items()
            }
        saved = {**saved, "state": states}
    optimizer.load_state_dict(saved)
    for group, own_settings in zip(optimizer.param_groups, settings, strict=True):
        group.update(own_settings)


def _require_moments(optimizer: torch.optim.Optimizer, saved: dict[str, Any]) -> None:
    told = "; resume with the settings that the run began with"
    # Moments in 8 bits are those of each rank's shards, and have other names.
    in_8_bits = "ranks" in saved or any("exp_avg" not in of for of in saved["state"].values())
    empty = "ranks" not in saved and not saved["state"]
    if not empty and in_8_bits == isinstance(optimizer, torch.optim.AdamW):
        kinds = ("adamw_8bit", "adamw") if in_8_bits else ("adamw", "adamw_8bit")
        raise UserError("the checkpoint's moments are of {}, not of {}".format(*kinds) + told)
    if "ranks" not in saved:
        trained, now = (
            sum(len(group["params"]) for group in groups)
            for groups in (saved["param_groups"], optimizer.param_groups)
        )
        if trained != now:
            raise UserError(f"the checkpoint trained {trained} tensors, and here are {now}" + told)


def _shard(policy: Shardable, together: int) -> None:
    """`fully_shard`, one copy of the weights over `together` ranks."""
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    alone, layout = ranks.size() == 1, policy.layout
    gathered.drop(policy)
    layout.plain = gathered.without_weights(policy.model)
    root: Any = _Root(policy.model)
    options: dict[str, Any] = {
        "mesh": nodes.mesh(policy.device.type, together),
        "mp_policy": MixedPrecisionPolicy(
            param_dtype=policy.dtype,
            reduce_dtype=torch.promote_types(policy.dtype, torch.float32),
            # the model makes its own inputs, in the dtype that each wants
            cast_forward_inputs=False,
        ),
        "ignored_params": {
            p
            for p in policy.model.parameters()
            if alone and not p.requires_grad and p.dtype == policy.dtype
        },
    }
    for layer in policy.language_model.layers:
        fully_shard(layer, **options)
    fully_shard(root, **options)
    if layout.fill is not None:
        gathered.fill_shards(policy.model, layout.fill, policy.device)
        layout.fill = None
    for unit in _units(root):
        # The loss of a rank is its part of the sum over all ranks; nothing is averaged.
        unit.set_gradient_divide_factor(1.0)
        unit.set_force_sum_reduction_for_comms(True)
    layout.root = root
    with torch.no_grad():
        # The first forward of all decides which module is the root.
        root(lambda: None, list)
    for unit in _units(root):
        unit.reshard()


@contextmanager
def computed_in(model: nn.Module, dtype: torch.dtype) -> Iterator[None]:
    """Hold parameters that no `fully_shard` holds in `dtype` inside."""
    masters = [(p, p.data) for p in model.parameters() if p.dtype != dtype]
    try:
        for parameter, master in masters:
            parameter.data = master.to(dtype)
        yield
    finally:
        for parameter, master in masters:
            parameter.data = master


def _units(root: _Root) -> list[Any]:
    return [module for module in root.modules() if hasattr(module, "unshard")]


def _trained(module: nn.Module) -> list[nn.Parameter]:
    return [p for p in module.parameters() if p.requires_grad]


def _seeing(policy: Shardable) -> list[nn.Parameter]:
    """What trains of the vision tower and its projector."""
    return [p for _, p in policy.eyes() if p.requires_grad]


def _is_dtensor(value: Any) -> bool:
    return isinstance(value, Tensor) and hasattr(value, "device_mesh")
