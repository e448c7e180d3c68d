"""Weigh tokens by how far they move CheXbert's logits (DEER, DiTPO eq. 9-12)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from rrgclinical.chexbert.labeller import CheXbertLabeller
from rrgclinical.chexbert.pieces import Pieces, pad
from rrgclinical.common.arguments import check_reports
from rrgclinical.inference import length_sorted
from rrgclinical.labels import NO_FINDING, ClassId, check_labels, to_binary
from rrgkern import span_max


class PieceSaliency(NamedTuple):
    """Saliency of the M word pieces of S reports, one after another, on the CPU.

    saliency [M] fp32 (fp64 from an fp64 network); spans [M, 2] int32, characters of the report;
    offsets [S+1] int64; truncated [S] bool. Special tokens are no pieces.
    """

    saliency: Tensor
    spans: Tensor
    offsets: Tensor
    truncated: Tensor


class TokenSaliency(NamedTuple):
    """Saliency of the N tokens of the policy.

    weights [N] fp32, >= 1 where beta >= 0; past_limit [N] bool, the token begins behind the last
    word piece that CheXbert reads, and weighs 1 for that reason.
    """

    weights: Tensor
    past_limit: Tensor


def token_saliency_weights(  # noqa: PLR0913
    labeller: CheXbertLabeller,
    reports: Sequence[str],
    reference_labels: np.ndarray,
    token_spans: Tensor,
    token_offsets: Tensor,
    *,
    beta: float = 1.0,
    uncertain: bool = True,
) -> TokenSaliency:
    """Compute w = 1 + beta s for every sampled token (DiTPO eq. 12).

    s is the largest saliency of a word piece that shares a character with the token, 0 where none
    does. A report whose reference has no positive or uncertain finding has w = 1 throughout.

    Args:
        labeller: gives the gradient.
        reports: S texts, as decoded from the policy's ids.
        reference_labels: [S, 14] class ids of the reference of each report; see `piece_saliency`.
        token_spans: [N, 2] int32 or int64, characters [start, end) of each token in its report;
            start == end for a special token.
        token_offsets: [S+1] int64, where reports begin in `token_spans`; on its device.
        beta: strength, 1 in the paper.
        uncertain: see `piece_saliency`.

    Returns:
        Tensors on the device of `token_spans`, without gradient.

    Raises:
        TypeError: a report is not a str, or a tensor has the wrong dtype.
        ValueError: shapes disagree, a span lies outside its report, beta is not finite, or the
            gradient is not.
    """
    if not math.isfinite(beta):
        raise ValueError(f"beta is {beta}, wanted a finite number")
    texts = check_reports(reports)
    saliency = piece_saliency(labeller, texts, reference_labels, uncertain=uncertain)
    device = token_spans.device
    best = span_max(
        saliency.saliency.to(device),
        saliency.spans.to(device),
        saliency.offsets.to(device),
        token_spans,
        token_offsets,
    )
    _check_spans(texts, token_spans, token_offsets)
    past = token_spans[:, 0] >= _limits(saliency).to(device).repeat_interleave(token_offsets.diff())
    return TokenSaliency(1 + beta * best, past)


def piece_saliency(
    labeller: CheXbertLabeller,
    reports: Sequence[str],
    reference_labels: np.ndarray,
    *,
    uncertain: bool = True,
) -> PieceSaliency:
    """s_j = ||dS/de_j||_2 for the word pieces of every report (DiTPO eq. 9 and 10).

    S sums the logits of the classes positive and uncertain over the observations that the
    reference calls positive or uncertain, No Finding left out; e_j is the word embedding, before
    position and layer norm. No such observation: 0 throughout, and no forward.

    Args:
        labeller: gives the gradient, in its dtype.
        reports: S texts.
        reference_labels: [S, 14] class ids.
        uncertain: False sums the positive logit alone, as eq. 9 is printed.

    Raises:
        TypeError: a report is not a str, or labels that are no integers.
        ValueError: labels of another shape.
    """
    texts = check_reports(reports)
    labels = check_labels(reference_labels, "reference_labels")
    if len(labels) != len(texts):
        raise ValueError(f"{len(texts)} reports with {len(labels)} rows of reference_labels")
    targets = to_binary(labels).astype(bool)
    targets[:, NO_FINDING] = False
    pieces = labeller.tokenize(texts)
    norms: list[Tensor] = [
        torch.zeros(len(one.spans), dtype=labeller.network.heads.weight.dtype) for one in pieces
    ]
    active = [r for r, one in enumerate(pieces) if one.spans and targets[r].any()]
    for chosen in length_sorted([len(pieces[r].ids) for r in active], labeller.token_budget):
        rows = [active[c] for c in chosen]
        batch = [pieces[r] for r in rows]
        for row, norm in zip(rows, _norms(labeller, batch, targets[rows], uncertain), strict=True):
            norms[row] = norm[1 : 1 + len(pieces[row].spans)]
    return PieceSaliency(
        torch.cat(norms) if norms else torch.zeros(0),
        torch.tensor([s for one in pieces for s in one.spans], dtype=torch.int32).reshape(-1, 2),
        torch.tensor([0, *accumulate(len(one.spans) for one in pieces)]),
        torch.tensor([one.truncated for one in pieces], dtype=torch.bool),
    )


def _norms(
    labeller: CheXbertLabeller, batch: list[Pieces], targets: np.ndarray, uncertain: bool
) -> Tensor:
    """[R, L] on the CPU. Rows do not meet, so one backward of the sum serves them all."""
    network = labeller.network
    # A caller that samples under no_grad or inference_mode gets a gradient nevertheless.
    with torch.inference_mode(False), torch.enable_grad():
        ids, mask = pad(batch, labeller.tokenize.pad, labeller.device)
        embeddings = network.word_embeddings(ids).detach().requires_grad_()
        classes = [ClassId.POSITIVE, ClassId.UNCERTAIN] if uncertain else [ClassId.POSITIVE]
        logits = network(embeddings, mask)[..., classes]
        chosen = torch.from_numpy(targets).to(labeller.device)
        (gradient,) = torch.autograd.grad(logits[chosen].sum(), embeddings)
    return gradient.to(network.heads.weight.dtype).norm(dim=-1).cpu()


def _limits(saliency: PieceSaliency) -> Tensor:
    """[S] int64: the character behind the last piece of a truncated report; of others, no limit."""
    limits = torch.full(saliency.truncated.shape, torch.iinfo(torch.int64).max)
    last = saliency.offsets[1:] - 1
    limits[saliency.truncated] = saliency.spans[last[saliency.truncated], 1].long()
    return limits


def _check_spans(texts: list[str], spans: Tensor, offsets: Tensor) -> None:
    """The spans must have been made for these texts: a span that ends outside one is a mix-up."""
    lengths = torch.tensor([len(text) for text in texts], device=spans.device)
    outside = (spans[:, 1] > lengths.repeat_interleave(offsets.diff())).nonzero()
    if len(outside):
        token = int(outside[0])
        report = int(torch.searchsorted(offsets, token, right=True)) - 1
        raise ValueError(
            f"token {token} spans {spans[token].tolist()}, report {report} has "
            f"{len(texts[report])} characters: pass the spans of these reports"
        )
