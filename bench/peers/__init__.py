"""Other projects' losses on one batch, each behind the same call.

    bench.peers.provider("trl-head")(hidden, weight, targets, advantages, old, mask)

A peer computes PPO's clip at 0.2 on its own kernel and returns the loss, 0-d and differentiable:

    head     hidden [S, T, H], weight [V, H], targets [S, T] int64, advantages [S], old [S, T],
             mask [S, T] bool, True where a token is scored
    logits   logits [S, T, V], then the same; the last position is never scored
    logps    logps, old, ref [S, T], advantages [S], mask [S, T]; level, eps_low, eps_high, beta
             as keywords: PPO or GSPO with a k3 term
    states   hidden [N, H], weight [V, H], targets [N]: no loss, but log-probabilities [N]
    entropies  the same, and entropies [N] beside them
    rows     logits [N, V], targets [N]; temperature, entropy as keywords: no loss, but
             log-probabilities [N] and, when asked, entropies [N]
    mean     hidden [N, H], weight [V, H], targets [N]: the mean cross entropy, whose gradient is
             known before the loss is
    losses   logits [N, V], targets [N]: the cross entropy of each row, [N]

aggregated as the mean over sequences of the mean over their tokens. What a peer offers ends at
the log-probabilities for some (TRL's, verl's and Apple's heads): `clip_loss` is what follows.

One module a peer, imported when the peer is first called; `Peer.why_not` says in one line why one
cannot run here.
"""

from __future__ import annotations

import importlib
import importlib.util
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

EPSILON = 0.2


@dataclass(frozen=True)
class Peer:
    """A loss of another project.

    Attributes:
        name: in the tables.
        path: "head", "logits", "logps", "states", "entropies", "rows", "mean" or "losses":
            what it starts from, see above.
        package: what must be importable; `distribution` is its name for pip.
        function: in the module of this folder named by `module`.
        device: "cuda" where nothing else is served.
        hopper_needs: a package that it imports on a GPU of compute capability 9.0 only.
        drops_masked: masked rows are left out of its products.
        exact: False where it leaves gradients out on purpose.
        overwrites: the logits do not survive a call.
        install: where to get it from.
    """

    name: str
    path: str
    package: str
    distribution: str
    module: str
    function: str
    device: str | None = None
    hopper_needs: str | None = None
    drops_masked: bool = False
    exact: bool = True
    overwrites: bool = False
    install: str = "see tests/parity/requirements.txt"

    def why_not(self, device: torch.device) -> str | None:
        """Why it cannot run on `device` here; None when it can."""
        if self.device and self.device != device.type:
            return f"{self.device} only"
        if importlib.util.find_spec(self.package) is None:
            return f"{self.distribution} is not installed: {self.install}"
        needs = self.hopper_needs
        if needs and _is_hopper(device) and importlib.util.find_spec(needs) is None:
            return f"{self.distribution} needs {needs} on this GPU"
        return None

    def __call__(self, *inputs: Any, **options: Any) -> Any:
        """What the peer returns; imports it at the first call."""
        function = getattr(importlib.import_module(f"bench.peers.{self.module}"), self.function)
        return function(*inputs, **options)


_CCE = ("cut_cross_entropy", "cut-cross-entropy", "cce")
_LIGER = ("liger_kernel", "liger_kernel", "liger")
_QUACK = ("quack", "quack-kernels", "quack")
# nvidia-cutlass-dsl-libs-cu13 alone is a wheel of 92 MB.
_QUACK_INSTALL = "pip install 'quack-kernels[cu13]', too large for .whl/"
_TRL = ("trl", "trl", "trl")
_VERL = ("verl", "verl", "verl")

PEERS = (
    Peer("trl-head", "head", *_TRL, "head", drops_masked=True),
    Peer("liger-chunked", "head", *_LIGER, "chunked"),
    Peer("liger-scaled-ce", "head", *_LIGER, "scaled_ce", hopper_needs="cutlass"),
    Peer("cce-exact", "head", *_CCE, "exact", device="cuda", drops_masked=True),
    Peer("cce-filtered", "head", *_CCE, "filtered", device="cuda", drops_masked=True, exact=False),
    Peer("verl-head", "head", *_VERL, "head", device="cuda"),
    Peer("trl-logits", "logits", *_TRL, "logits", drops_masked=True),
    Peer(
        "liger-triton",
        "logits",
        *_LIGER,
        "triton_loss",
        device="cuda",
        drops_masked=True,
        overwrites=True,
    ),
    Peer("trl-states", "states", *_TRL, "states"),
    Peer("liger-scaled-ce-states", "states", *_LIGER, "states", hopper_needs="cutlass"),
    Peer("cce-exact-states", "states", *_CCE, "states", device="cuda"),
    Peer("cce-filtered-states", "states", *_CCE, "filtered_states", device="cuda", exact=False),
    Peer("verl-states", "states", *_VERL, "states", device="cuda"),
    Peer("liger-entropies", "entropies", *_LIGER, "entropies", hopper_needs="cutlass"),
    Peer("verl-entropies", "entropies", *_VERL, "entropies", device="cuda"),
    Peer("trl-kernel", "rows", *_TRL, "rows", device="cuda"),
    Peer("verl-eager", "rows", *_VERL, "rows"),
    Peer("quack-ce", "mean", *_QUACK, "mean", device="cuda", install=_QUACK_INSTALL),
    Peer("liger-ce", "mean", *_LIGER, "mean", device="cuda"),
    Peer("cce-ce", "mean", *_CCE, "mean", device="cuda"),
    Peer("quack-losses", "losses", *_QUACK, "row_losses", device="cuda", install=_QUACK_INSTALL),
    Peer("trl-loss", "logps", *_TRL, "loss"),
    Peer("liger-loss", "logps", *_LIGER, "loss"),
    Peer("verl-loss", "logps", *_VERL, "loss"),
)


def _is_hopper(device: torch.device) -> bool:
    return device.type == "cuda" and torch.cuda.get_device_capability(device) == (9, 0)


def of(path: str) -> list[Peer]:
    """The peers that start from `path`, a word of the module's table."""
    found = [peer for peer in PEERS if peer.path == path]
    if not found:
        raise ValueError(
            f"no peer starts from {path!r}; wanted head, logits, logps, states, entropies, rows, "
            "mean, losses"
        )
    return found


def provider(name: str) -> Peer:
    """The peer of that name."""
    for peer in PEERS:
        if peer.name == name:
            return peer
    raise ValueError(f"no peer {name!r}; wanted one of {', '.join(p.name for p in PEERS)}")


def clip_loss(logps: Tensor, advantages: Tensor, old: Tensor, mask: Tensor) -> Tensor:
    """PPO's clip over [S, T] log-probabilities: the mean over sequences of their token means."""
    keep = mask.to(logps.dtype)
    ratio = (logps - old).exp()
    gain = ratio * advantages[:, None]
    clipped = ratio.clamp(1 - EPSILON, 1 + EPSILON) * advantages[:, None]
    per_token = -torch.minimum(gain, clipped) * keep
    return (per_token.sum(1) / keep.sum(1).clamp(min=1)).mean()


def scatter(values: Tensor, mask: Tensor) -> Tensor:
    """[S, T] with `values` where `mask` holds, in its order, and 0 elsewhere."""
    return values.new_zeros(mask.shape).masked_scatter(mask, values)
