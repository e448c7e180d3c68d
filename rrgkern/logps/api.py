"""Log-probabilities and entropy of tokens: from logits, or from hidden states and the head."""

from __future__ import annotations

from torch import Tensor

from rrgkern.checks import check_derivatives, check_flags, check_tensors
from rrgkern.logps.inputs import FromHidden, FromLogits, as_rows, check_head, check_logits
from rrgkern.logps.online_softmax import TokenLogps
from rrgkern.logps.op import logps_of_hidden, logps_of_logits
from rrgkern.padded import Tokens, hidden_rows, rows_to_keep


def token_logps(
    logits: Tensor,
    targets: Tensor,
    *,
    temperature: float = 1.0,
    entropy: bool = False,
    mask: Tensor | None = None,
) -> TokenLogps:
    """log softmax(logits / T)[target], and the entropy of the same softmax when asked.

    Args:
        logits: [..., V] fp16, bf16, fp32 or fp64, any strides. [N, V] and [B, L, V] are read where
            they lie, `logits[:, :-1]` too; other layouts that cannot be viewed so are copied.
        targets: [...] int64, each in [0, V) where `mask` is True.
        temperature: T, 1e-30 to 1e30, a run-time value.
        entropy: also return the entropy, differentiable like `logps`; else it is None.
        mask: [...] bool or integers, not 0 where a row counts. The others are not read: results
            and gradient are 0 there, whatever the logits, the label (-100) and what comes back.

    Returns:
        `TokenLogps(logps, entropy)` in nats, of the shape of `targets`; fp32, fp64 for fp64
        logits. A logp is exact when the softmax has collapsed on its target: the target stays
        out of the sum, logp = -softplus(logsumexp of the others - z_target).

    The gradient of the logits has their dtype. A row whose incoming gradients (of logps and of
    entropy) are both 0 is not read in the backward, and its gradient is 0 even where it is NaN.

    First derivatives by backward() and torch.autograd.grad are served; differentiating a gradient
    made with create_graph=True (making it, batched or under torch.compile), forward mode and
    torch.func raise NotImplementedError.

    Raises:
        TypeError: a dtype that is not served, a DTensor, sparse or nested tensor, a temperature
            that is no single number, or an `entropy` that is no bool.
        ValueError: shapes or devices that do not fit, a temperature out of range, logits that
            `policy_loss_from_logits` has overwritten.
        IndexError: a target outside [0, V) (on CUDA a device assertion, see RRGKERN_CHECK).
    """
    check_tensors(logits=logits, targets=targets, optional={"mask": mask})
    check_flags(entropy=entropy)
    check_derivatives(logits=logits)
    check_logits(logits, targets, temperature)
    keep = rows_to_keep(mask, Tokens("targets", targets.shape), targets.device)
    logps, entropies = logps_of_logits(
        FromLogits(as_rows(logits), targets.reshape(-1), float(temperature), entropy, keep)
    )
    shape = targets.shape
    return TokenLogps(logps.view(shape), entropies.view(shape) if entropy else None)


def linear_token_logps(  # noqa: PLR0913
    hidden: Tensor,
    weight: Tensor,
    targets: Tensor,
    *,
    bias: Tensor | None = None,
    temperature: float = 1.0,
    softcap: float | None = None,
    entropy: bool = False,
    mask: Tensor | None = None,
) -> TokenLogps:
    """Compute log softmax(z / T)[target] without [N, V].

    z = cap(hidden W^T + bias) is the head's output.

    Args:
        hidden: [..., H], fp16, bf16, fp32 or fp64; the states that predict the targets.
        weight: [V, H], the dtype of `hidden`, or fp32 under 16-bit states: it is then rounded to
            their dtype slice by slice, and its gradient is fp32. No gradient is made that is not
            required. A DTensor (FSDP2) is gathered, and its gradient averaged over ranks.
        targets: [...] int64, each in [0, V) where `mask` is True.
        bias: [V] or None, the dtype of `hidden`, or fp32 under 16-bit states.
        temperature: T > 0, a run-time value.
        softcap: cap(z) = softcap * tanh(z / softcap), before the temperature; None for none.
        entropy: also return the entropy of each distribution, differentiable like `logps`; else
            it is None.
        mask: [...] bool or integers, not 0 where a row counts. The others cost nothing: results
            and gradient are 0 there, whatever the state and the label (-100). `hidden[:, :-1]` is
            then read where it lies. A GPU is waited for, once.

    Returns:
        `TokenLogps(logps, entropy)` in nats, of the shape of `targets`; fp32, fp64 for fp64
        inputs. Each logp is exact when the softmax has collapsed on its target.

    In the backward a row whose incoming gradients (of logps and of entropy) are both 0 is left
    out of every product; gradients are summed in fp32 across tiles and rounded once.

    First derivatives by backward() and torch.autograd.grad are served; differentiating a gradient
    made with create_graph=True (making it, batched or under torch.compile), forward mode and
    torch.func raise NotImplementedError.

    Raises:
        TypeError: a dtype that is not served, dtypes that differ, a DTensor of rows, a sparse or
            nested tensor, a temperature that is no single number, or an `entropy` that is no bool.
        ValueError: shapes that do not fit, devices that differ, a temperature or softcap that is
            not positive.
        IndexError: a target outside [0, V) (on CUDA a device assertion, see RRGKERN_CHECK).
    """
    check_tensors(
        **{"hidden": hidden, "weight": weight, "targets": targets},
        optional={"bias": bias, "mask": mask},
        gathered=("weight", "bias"),
    )
    check_flags(entropy=entropy)
    check_derivatives(hidden=hidden, weight=weight, bias=bias)
    weight, bias = check_head(hidden, weight, targets, bias, temperature, softcap)
    rows, tokens = hidden_rows(hidden, masked=mask is not None)
    keep = rows_to_keep(mask, tokens, hidden.device)
    logps, entropies = logps_of_hidden(
        FromHidden(
            *(rows, weight, bias, tokens.flat("targets", targets)),
            *(float(temperature), float(softcap or 0.0), entropy, keep),
        )
    )
    return TokenLogps(tokens.unflat(logps), tokens.unflat(entropies) if entropy else None)
