"""Shared prefixes in TRL's GRPOTrainer: `class Trainer(SharedPrefix, GRPOTrainer)`."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from rrgtrain.policy.shared_prefix import shared_prefix_logps


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

    def _get_per_token_logps_and_entropies(
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
        accelerator = self.accelerator  # type: ignore[attr-defined]
        if accelerator.num_processes > 1:
            raise ValueError(
                f"{accelerator.num_processes} processes: gradients would not be averaged, since "
                "the wrapped model's own forward is not called; use one process"
            )
        model = accelerator.unwrap_model(model)
        rows = len(input_ids)
        beside = {"pixel_values": pixel_values, "image_grid_thw": image_grid_thw, **others}
        tensors = {k: v for k, v in beside.items() if isinstance(v, Tensor)}
        of_tokens = {k: v for k, v in tensors.items() if v.shape == input_ids.shape}
        images = _images(rows, {k: v for k, v in tensors.items() if k not in of_tokens}, num_images)
        split = input_ids.shape[1] - logits_to_keep
        kept = attention_mask.bool()
        prompts = [input_ids[r, :split][kept[r, :split]] for r in range(rows)]
        completions = [input_ids[r, split:][kept[r, split:]] for r in range(rows)]
        for r, row in enumerate(images):
            row |= {k: v[r, :split][kept[r, :split]] for k, v in of_tokens.items()}
        groups = _groups(prompts, images)
        with accelerator.autocast():
            found = shared_prefix_logps(
                model,
                [{"input_ids": prompts[g[0]], **images[g[0]]} for g in groups],
                [[completions[r] for r in g] for g in groups],
                temperature=self.temperature,  # type: ignore[attr-defined]
                entropy=compute_entropy,
            )
        order = torch.tensor([r for g in groups for r in g])
        places = kept[:, split:].nonzero()
        # From the order of the groups to that of the rows.
        lengths = torch.tensor([len(c) for c in completions])
        begin = torch.zeros(rows, dtype=torch.int64)
        begin[order] = found.offsets[:-1].cpu()
        first = lengths.cumsum(0) - lengths
        source = (torch.arange(int(lengths.sum())) + (begin - first).repeat_interleave(lengths)).to(
            found.logps.device
        )

        def padded(values: Tensor) -> Tensor:
            out = values.new_zeros(rows, logits_to_keep)
            return out.index_put((places[:, 0], places[:, 1]), values[source])

        entropy = None if found.entropy is None else padded(found.entropy)
        return padded(found.logps), entropy, None


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
