"""Rows of TRL's batches: their prompts, images and completions, and log-probs of all."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from types import MethodType
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.distributed.fsdp import FSDPModule

from rrgpolicy.model.shared_prefix import SharedPrefixLogps, shared_prefix_logps
from rrgtrain.errors import UserError

OF_IMAGES = (
    *("pixel_values", "image_grid_thw", "token_type_ids", "mm_token_type_ids"),
    *("image_position_ids", "image_sizes", "pixel_attention_mask", "spatial_shapes"),
)


class Rows(NamedTuple):
    """Hold a padded batch row by row.

    prompts and completions: int64 ids without padding. images: the forward's other arguments for
    a row's prompt, empty without images.
    """

    prompts: list[Tensor]
    images: list[dict[str, Tensor]]
    completions: list[Tensor]


class SharedPrefix:
    """Computes the log-probs of TRL 1.x's trainer with each prompt, and its images, once.

    Rows of a batch whose prompts and images are the same form a group; TRL shuffles and splits
    its batches, so the larger `per_device_train_batch_size`, the more is shared. Reference and
    old log-probs go the same way. See `shared_prefix_logps` for the models it takes.

    A class whose trainer would not call it raises TypeError when it is defined.
    """

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        name = "_get_per_token_logps_and_entropies"
        having = [base for base in cls.__mro__ if name in vars(base)]
        if having[-1] is SharedPrefix:
            raise TypeError(
                f"{cls.__name__}: no base behind SharedPrefix has {name}, so nothing would call "
                f"it; write class {cls.__name__}(SharedPrefix, GRPOTrainer), with TRL 1.x"
            )

    def _get_per_token_logps_and_entropies(  # noqa: PLR0913
        self,
        model: Any,
        input_ids: Tensor,
        attention_mask: Tensor,
        logits_to_keep: int,
        batch_size: int | None = None,
        compute_entropy: bool = False,
        compute_aux_loss: bool = False,
        pixel_values: Tensor | None = None,
        image_grid_thw: Tensor | None = None,
        num_images: list[int] | None = None,
        **others: Any,
    ) -> tuple[Tensor, Tensor | None, None]:
        """Log-probs and entropies [rows, logits_to_keep] of the completions, 0 on padding.

        All rows at once, whatever `batch_size`: without logits their memory is the activations'.
        """
        if compute_aux_loss:
            raise UserError("shared prompts have no auxiliary loss: use router_aux_loss_coef=0")
        beside = {"pixel_values": pixel_values, "image_grid_thw": image_grid_thw, **others}
        rows = rows_of(input_ids, attention_mask, logits_to_keep, num_images, beside)
        logps, entropies = shared_logps(self, model, rows, entropy=compute_entropy)
        places = attention_mask[:, input_ids.shape[1] - logits_to_keep :].nonzero()

        def padded(values: Tensor) -> Tensor:
            out = values.new_zeros(len(input_ids), logits_to_keep)
            return out.index_put((places[:, 0], places[:, 1]), values)

        return padded(logps), None if entropies is None else padded(entropies), None


def rows_of(
    ids: Tensor, mask: Tensor, keep: int, counts: list[int] | None, beside: Mapping[str, Any]
) -> Rows:
    """Cut [rows, P + T] into prompts and completions of `keep` places, without padding.

    counts: images of a row; beside: arguments of the forward, of which those that are None, or no
    tensors, are left out.
    """
    real, split = mask.bool(), ids.shape[1] - keep
    tensors = {k: v for k, v in beside.items() if isinstance(v, Tensor)}
    of_tokens = {k: v for k, v in tensors.items() if v.shape == ids.shape}
    images = _images(len(ids), {k: v for k, v in tensors.items() if k not in of_tokens}, counts)
    for r, row in enumerate(images):
        row |= {k: v[r, :split][real[r, :split]] for k, v in of_tokens.items()}
    prompts = [ids[r, :split][real[r, :split]] for r in range(len(ids))]
    return Rows(prompts, images, [ids[r, split:][real[r, split:]] for r in range(len(ids))])


def rows_of_batch(batch: Mapping[str, Any]) -> Rows:
    """Cut a batch as TRL's trainer buffers it; see `rows_of`."""
    ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], 1)
    mask = torch.cat([batch["prompt_mask"], batch["completion_mask"]], 1)
    beside = {name: batch.get(name) for name in OF_IMAGES}
    return rows_of(ids, mask, batch["completion_ids"].shape[1], batch.get("num_images"), beside)


def shared_logps(
    trainer: Any,
    model: Any,
    rows: Rows,
    *,
    entropy: bool = False,
    temperature: float | None = None,
    sharing: str = "auto",
) -> tuple[Tensor, Tensor | None]:
    """Compute log-probs, and entropies if asked for, of all rows' completions, [N] in their order.

    model: the trainer's, wrapped or not; a wrapped one is called, so that its gradients are
    averaged or its shards gathered.
    """
    inner = trainer.accelerator.unwrap_model(model)
    groups = _groups(rows.prompts, rows.images)

    def compute() -> SharedPrefixLogps:
        return shared_prefix_logps(
            inner,
            [{"input_ids": rows.prompts[g[0]], **rows.images[g[0]]} for g in groups],
            [[rows.completions[r] for r in g] for g in groups],
            temperature=trainer.temperature if temperature is None else temperature,
            entropy=entropy,
            sharing=sharing,
        )

    alone = model is inner and not isinstance(model, FSDPModule)
    with trainer.accelerator.autocast():
        out = compute() if alone else _called(model, inner, compute)
    # From the order of the groups to that of the rows.
    order = torch.tensor([r for g in groups for r in g])
    lengths = torch.tensor([len(ids) for ids in rows.completions])
    begin = torch.zeros(len(lengths), dtype=torch.int64)
    begin[order] = out.offsets[:-1].cpu()
    first = lengths.cumsum(0) - lengths
    source = torch.arange(int(lengths.sum())) + (begin - first).repeat_interleave(lengths)
    source = source.to(out.logps.device)
    return out.logps[source], None if out.entropy is None else out.entropy[source]


def _called(model: Any, inner: Any, compute: Callable[[], SharedPrefixLogps]) -> SharedPrefixLogps:
    """`compute()` as the forward of `model`, a wrapper around `inner`."""
    base = inner.get_base_model() if hasattr(inner, "get_base_model") else inner
    if not getattr(base, "computes_rows", False):
        forward = base.forward

        @functools.wraps(getattr(forward, "__func__", forward))
        def either(self: Any, *args: Any, rows: Any = None, **named: Any) -> Any:
            return forward(*args, **named) if rows is None else rows()

        base.forward, base.computes_rows = MethodType(either, base), True
    out: SharedPrefixLogps = model(rows=compute)
    return out


def _images(
    rows: int, tensors: dict[str, Tensor], counts: list[int] | None
) -> list[dict[str, Tensor]]:
    """Of each row, what its prompt has of images: each argument cut where its row's images end."""
    if not tensors:
        return [{} for _ in range(rows)]
    if counts is None:
        raise ValueError(f"{', '.join(tensors)} without num_images: tell how many images a row has")
    parts: dict[str, tuple[Tensor, ...]] = {}
    for name, values in tensors.items():
        sizes = counts
        if name == "pixel_values" and (grid := tensors.get("image_grid_thw")) is not None:
            sizes = [int(own.prod(1).sum()) for own in grid.split(counts)]
        elif len(values) == rows:
            sizes = [1] * rows
        if sum(sizes) != len(values):
            raise ValueError(f"{name} of {len(values)} entries for {sum(sizes)}: one an image")
        parts[name] = values.split(sizes)
    return [
        {name: part[r] for name, part in parts.items()} if counts[r] else {} for r in range(rows)
    ]


def _groups(prompts: list[Tensor], images: list[dict[str, Tensor]]) -> list[list[int]]:
    """Rows by equal ids and equal images, in the order in which they first come."""
    by_ids: dict[tuple[int, ...], list[list[int]]] = {}
    for r, prompt in enumerate(prompts):
        same_ids = by_ids.setdefault(tuple(prompt.tolist()), [])
        for group in same_ids:
            if all(torch.equal(images[group[0]][k], images[r][k]) for k in images[r]):
                group.append(r)
                break
        else:
            same_ids.append([r])
    return sorted((group for groups in by_ids.values() for group in groups), key=lambda g: g[0])
