"""Measure the losses on a CPU against eager PyTorch and against what they must reach.

    OMP_NUM_THREADS=1 python -m bench.cpu_gates    every gate; rows in bench/results/cpu-gates.jsonl
    python -m bench.cpu_gates --short              a few ratios in JSON, for the tests

One thread, forward and backward, processor time, medians of interleaved rounds in one run. Eager is
`log_softmax(z.float())` under autograd. A child with GLIBC_TUNABLES measures the logits once
more, with huge pages for eager's memory too. TRL's, Liger's and verl's losses are beside ours where
they are installed, as in the environment of `make parity`: Liger's is its plain PyTorch one, its
Triton kernels need a GPU. What cannot run here is "-", with the reason.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from statistics import median
from typing import Any, NamedTuple

import torch
from torch import Tensor

from bench import peers, rows
from rrgkern import (
    PolicyLoss,
    linear_policy_loss,
    linear_token_logps,
    loss_scale,
    policy_loss,
    policy_loss_from_logits,
)
from rrgkern.policy_loss.from_logits.op import sweep_rows
from rrgkern.policy_loss.inputs import LogitsInputs, PolicyInputs
from rrgkern.policy_loss.spec import PolicyLoss as Spec

HUGE = "glibc.malloc.hugetlb=1"
PPO_K3 = PolicyLoss(beta=0.04)
FEW_TOKENS = 100
PEERS = ("trl", "liger_kernel", "verl")
Providers = Mapping[str, Callable[[], Any]]


class Gate(NamedTuple):
    """`figure` of the two medians must be `relation` `bound`: "least" or "most"."""

    case: str
    ours: str
    against: str | None  # None: microseconds of `ours` themselves
    faster: bool  # against over ours, at least `bound`; else ours over against, at most
    bound: float


LOGITS, HEAD = "logits {} [64, 151936]", "head float32 V={} {}"
GATES = (
    Gate(LOGITS.format("float32"), "in place", "eager", True, 10.0),
    Gate(LOGITS.format("float32"), "out of place", "eager", True, 6.0),
    Gate(LOGITS.format("float32") + " huge pages", "out of place", "eager", True, 2.5),
    Gate(LOGITS.format("float32"), "kernel", "copy", True, 0.35),
    Gate(LOGITS.format("bfloat16"), "kernel", "copy", True, 0.20),
    Gate("policy_loss 8", "rrgkern repeated", None, False, 60.0),
    Gate("policy_loss 6000", "rrgkern", "eager", False, 0.6),
    Gate("policy_loss 60000", "rrgkern", "eager", False, 0.4),
    Gate("policy_loss 6000", "rrgkern beside", "trl-loss", False, 1.0),
    Gate("policy_loss 6000", "rrgkern beside", "liger-loss", False, 1.0),
    Gate("policy_loss 60000", "rrgkern beside", "trl-loss", False, 1.0),
    Gate("policy_loss 60000", "rrgkern beside", "liger-loss", False, 1.0),
    Gate(HEAD.format(600, "dense"), "rrgkern", "eager", False, 1.0),
    Gate(HEAD.format(600, "domain"), "rrgkern", "eager", False, 0.75),
    Gate(HEAD.format(151936, "dense"), "rrgkern", "eager", False, 0.85),
    Gate(HEAD.format(151936, "domain"), "rrgkern", "eager", False, 0.65),
    Gate(HEAD.format(600, "dense"), "log-probs", "product", False, 1.15),
    Gate(HEAD.format(151936, "dense"), "log-probs", "product", False, 1.15),
)


def medians(
    providers: Providers, rounds: int, before: Mapping[str, Callable[[], Any]] | None = None
) -> dict[str, float]:
    """Seconds of processor time of each; `before` runs ahead of a provider, untimed."""
    samples: dict[str, list[float]] = {name: [] for name in providers}
    for number in range(rounds + 2):
        for name, call in providers.items():
            if before and name in before:
                before[name]()
            start = time.thread_time()
            call()
            if number >= 2:
                samples[name].append(time.thread_time() - start)
    return {name: median(times) for name, times in samples.items()}


def repeat(call: Callable[[], Any], times: int) -> None:
    """Call it so many times."""
    for _ in range(times):
        call()


def compiled_gradient(forward: Callable[[], Tensor], *leaves: Tensor) -> dict[str, Any]:
    """The gradient of `torch.compile` of `forward`, by name; none where it says why it cannot."""
    function = torch.compile(forward)

    def call() -> None:
        torch.autograd.grad(function(), leaves)

    try:
        call()
    except Exception as error:  # a missing compiler or header, of whatever kind
        print("torch.compile: -,", str(error).strip().splitlines()[0], flush=True)
        return {}
    return {"torch.compile": call}


class _Given(torch.autograd.Function):
    """Logits that a model made: no leaf, and no memory of their own for a gradient."""

    @staticmethod
    def forward(ctx: Any, source: Tensor, logits: Tensor) -> Tensor:
        return logits.detach()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return torch.zeros(()), None


def batch(tokens: int, sequences: int) -> dict[str, Tensor]:
    """Advantages, offsets, scale and a behaviour policy near a log-probability of -6."""
    offsets = torch.arange(sequences + 1) * (tokens // sequences)
    offsets[-1] = tokens
    return {
        "advantages": torch.randn(sequences),
        "offsets": offsets,
        "scale": loss_scale("grpo", offsets),
        "old": -3 - 6 * torch.rand(tokens),
    }


def eager_loss(logps: Tensor, given: Mapping[str, Tensor], mask: Tensor | None = None) -> Tensor:
    """PPO's clip as one writes it."""
    lengths = given["offsets"].diff()
    advantage = given["advantages"].repeat_interleave(lengths)
    scale = given["scale"].repeat_interleave(lengths)
    ratio = (logps - given["old"]).clamp(-20, 20).exp()
    losses = -torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage)
    if "ref" in given:
        x = (given["ref"] - logps).clamp(-20, 20)
        losses = losses + 0.04 * (torch.expm1(x) - x)
    losses = losses * scale
    return losses.sum() if mask is None else torch.where(mask, losses, 0).sum()


def from_logits(
    dtype: torch.dtype, count: int, vocabulary: int, rounds: int, beside: bool = True
) -> dict[str, float]:
    """Seconds of eager, ours in both ways, kernel, and copy; others `beside` them."""
    logits = (3 * torch.randn(count, vocabulary)).to(dtype)
    targets = torch.randint(vocabulary, (count,))
    given = batch(count, 2)
    leaf, warm = logits.clone().requires_grad_(), torch.zeros_like(logits)
    over, source = logits.clone(), torch.zeros((), requires_grad=True)
    policy = PolicyInputs(**given, spec=Spec().encode()).prepared(torch.float32)
    call = LogitsInputs(logits, targets, policy, 1.0, False)

    def by_eager() -> Tensor:
        logps = torch.log_softmax(leaf.float(), -1).gather(1, targets[:, None])[:, 0]
        return eager_loss(logps, given)

    def ours(z: Tensor, wanted: Tensor, inplace: bool) -> None:
        loss = policy_loss_from_logits(z, targets, **given, inplace=inplace).loss
        torch.autograd.grad(loss, wanted)

    return medians(
        {
            "eager": lambda: torch.autograd.grad(by_eager(), leaf),
            "out of place": lambda: ours(leaf, leaf, False),
            "in place": lambda: ours(_Given.apply(source, over), source, True),
            "kernel": lambda: sweep_rows(call, warm),
            "copy": lambda: warm.copy_(logits),
        },
        rounds,
        {"in place": lambda: over.copy_(logits)},
    ) | (medians(compiled_gradient(by_eager, leaf), rounds) if beside else {})


def from_logps(tokens: int, rounds: int, beside: bool = True) -> dict[str, float]:
    """Seconds of PPO with k3, the metrics that both report included; others `beside` them."""
    sequences = max(2, tokens // 150)
    given = batch(tokens, sequences)
    logps = (given["old"] + 0.1 * torch.randn(tokens)).requires_grad_()
    given["ref"] = logps.detach() + 0.1 * torch.randn(tokens)

    def by_eager() -> Tensor:
        loss = eager_loss(logps, given)
        with torch.no_grad():
            ratio, x = (logps - given["old"]).exp(), given["ref"] - logps
            (torch.expm1(x) - x).mean(), ratio.mean(), ratio.max()
            (ratio > 1.2).float().mean(), (ratio < 0.8).float().mean()
        return loss

    def ours() -> None:
        torch.autograd.grad(policy_loss(logps, **given, spec=PPO_K3).loss, logps)

    # Sequences of one length, so that what others pad is the same numbers.
    padded = [x.view(sequences, -1) for x in (logps, given["old"], given["ref"])]
    mask = torch.ones(padded[0].shape, dtype=torch.bool)

    def theirs(peer: peers.Peer) -> None:
        loss = peer(
            *(*padded, given["advantages"], mask),
            **{"level": "token", "eps_low": 0.2, "eps_high": 0.2, "beta": 0.04},
        )
        torch.autograd.grad(loss, logps, retain_graph=True)

    seconds = medians(
        {"eager": lambda: torch.autograd.grad(by_eager(), logps), "rrgkern": ours}, rounds
    )
    if tokens <= FEW_TOKENS:
        # One call after eager's finds its code gone from the caches; 20 calls in a row do not.
        seconds["rrgkern repeated"] = medians({"": lambda: repeat(ours, 20)}, rounds)[""] / 20
    if not beside:
        return seconds
    # In rounds of their own: each provider more leaves less of the caches to the others.
    others: dict[str, Callable[[], Any]] = {"rrgkern beside": ours}
    others |= compiled_gradient(by_eager, logps)
    for peer in peers.of("logps"):
        if reason := peer.why_not(torch.device("cpu")):
            print(f"{peer.name}: -, {reason}", flush=True)
        else:
            others[peer.name] = lambda peer=peer: theirs(peer)
    return seconds | medians(others, rounds)


def from_hidden(
    vocabulary: int, count: int, domain: bool, rounds: int, beside: bool = True
) -> dict[str, float]:
    """Seconds with a trainable head of width 128, fp32; log-probs and products are forwards."""
    hidden = torch.randn(count, 128).requires_grad_()
    weight = (0.05 * torch.randn(vocabulary, 128)).requires_grad_()
    targets = torch.randint(vocabulary, (count,))
    given, mask = batch(count, 16), None
    if domain:
        mask = torch.rand(count) < 0.4
        given["advantages"][torch.rand(16) < 0.35] = 0
    room = torch.zeros(count, vocabulary)

    def by_eager() -> Tensor:
        logps = torch.log_softmax((hidden @ weight.T).float(), -1)
        return eager_loss(logps.gather(1, targets[:, None])[:, 0], given, mask)

    def ours() -> None:
        loss = linear_policy_loss(hidden, weight, targets, **given, mask=mask).loss
        torch.autograd.grad(loss, (hidden, weight))

    def head_of_torch() -> None:
        loss = torch.nn.functional.linear_cross_entropy(hidden, weight, targets)
        torch.autograd.grad(loss, (hidden, weight))

    providers: dict[str, Callable[[], Any]] = {
        "eager": lambda: torch.autograd.grad(by_eager(), (hidden, weight)),
        "rrgkern": ours,
        "log-probs": torch.no_grad()(lambda: linear_token_logps(hidden, weight, targets)),
        "product": torch.no_grad()(lambda: torch.mm(hidden, weight.T, out=room)),
    }
    if hasattr(torch.nn.functional, "linear_cross_entropy"):
        providers["F.linear_cross_entropy"] = head_of_torch
    seconds = medians(providers, rounds)
    if hasattr(torch.nn, "LinearCrossEntropyOptions"):
        seconds |= medians(in_chunks(hidden, weight, targets), rounds)
    if beside:
        seconds |= medians(compiled_gradient(by_eager, hidden, weight), rounds)
    return seconds


def in_chunks(hidden: Tensor, weight: Tensor, targets: Tensor) -> dict[str, Callable[[], Any]]:
    """Build torch's chunked mean cross entropy at four sizes, and ours, trained and frozen.

    Which chunk is fastest depends on the machine: compare with the best of them. "products" are the
    matrix products of a gradient made in the forward and nothing else: no head can be faster.
    """
    calls: dict[str, Callable[[], Any]] = {}
    offsets = torch.tensor([0, len(targets)])
    reinforce = {"advantages": torch.ones(1), "offsets": offsets, "scale": torch.ones(1)}
    spec = PolicyLoss(surrogate="reinforce")
    for state, head in {"": weight, " frozen": weight.detach()}.items():
        leaves = (hidden, head) if head.requires_grad else (hidden,)

        def ours(head: Tensor = head, leaves: tuple[Tensor, ...] = leaves) -> None:
            loss = linear_policy_loss(hidden, head, targets, **reinforce, spec=spec).loss
            torch.autograd.grad(loss, leaves)

        calls[f"rrgkern mean{state}"] = ours
        calls[f"products{state}"] = partial(products, hidden.detach(), weight.detach(), len(leaves))
        for chunk in (32, 64, 128, 256):
            options = torch.nn.LinearCrossEntropyOptions(batch_chunk_size=chunk)
            forward = torch.nn.functional.linear_cross_entropy
            loss = partial(forward, hidden, head, targets, options=options)
            calls[f"chunks of {chunk}{state}"] = lambda loss=loss, leaves=leaves: (
                torch.autograd.grad(loss(), leaves)
            )
    return calls


def products(hidden: Tensor, weight: Tensor, gradients: int) -> None:
    """Make the logits 1,024 columns at a time, and of them so many gradients' products."""
    d_hidden, d_weight = torch.zeros_like(hidden), torch.empty_like(weight)
    for part, of_part in zip(weight.split(1024), d_weight.split(1024), strict=True):
        logits = hidden @ part.T
        d_hidden.addmm_(logits, part)
        if gradients == 2:
            torch.mm(logits.T, hidden, out=of_part)


def main() -> None:
    """Print each case and the verdicts on its gates, and append its row."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    if "--short" in sys.argv:
        print(json.dumps(short()))
        return
    huge = HUGE in os.environ.get("GLIBC_TUNABLES", "")
    cases: dict[str, Callable[[], dict[str, float]]] = {
        LOGITS.format(name): lambda name=name: from_logits(getattr(torch, name), 64, 151_936, 15)
        for name in ("float32", "bfloat16")
    }
    if huge:
        cases = {f"{case} huge pages": call for case, call in cases.items()}
    else:
        for tokens in (8, 6000, 60_000):
            cases[f"policy_loss {tokens}"] = lambda n=tokens: from_logps(n, 200 if n < 1e4 else 50)
        for size, count in ((600, 2048), (151_936, 256)):
            for kind in ("dense", "domain"):
                cases[HEAD.format(size, kind)] = lambda v=size, n=count, k=kind: from_hidden(
                    v, n, k == "domain", 9
                )
    os.environ.setdefault("RRGKERN_ROWS", "cpu-gates")
    for case, call in cases.items():
        seconds = call()
        base = seconds["eager"]
        row = {"room": "cpu_gates", "case": case, "versions": rows.versions(PEERS)}
        row["microseconds"] = {name: round(1e6 * value, 1) for name, value in seconds.items()}
        rows.append(torch.device("cpu"), row)
        print(case, {name: f"{value / base:.3f}" for name, value in seconds.items()}, flush=True)
        for gate in (gate for gate in GATES if gate.case == case):
            print("  ", *judge(gate, seconds), flush=True)
    if not huge:
        environment = os.environ | {"GLIBC_TUNABLES": HUGE}
        subprocess.run([sys.executable, "-m", "bench.cpu_gates"], env=environment, check=True)


def short() -> dict[str, float]:
    """Times as fast as eager at sizes of a test, the best of runs."""

    def best(measure: Callable[[], dict[str, float]], *names: str) -> list[float]:
        runs = [measure() for _ in range(2)]
        return [max(run["eager"] / run[name] for run in runs) for name in names]

    found: dict[str, float] = {}
    for name in ("float32", "bfloat16"):
        figures = best(
            lambda name=name: from_logits(getattr(torch, name), 56, 151_936, 2, False),
            *("in place", "out of place"),
        )
        found |= {f"{name} in place": figures[0], f"{name} out of place": figures[1]}
    found["policy_loss"] = best(lambda: from_logps(60_000, 5, False), "rrgkern")[0]
    found["head"] = best(lambda: from_hidden(16_000, 256, True, 3, False), "rrgkern")[0]
    return found


def judge(gate: Gate, seconds: Mapping[str, float]) -> tuple[str, str]:
    """Return "pass" or "FAIL", and the figure beside its bound; "-" where nothing stands beside."""
    if gate.against is not None and gate.against not in seconds:
        return "-", f"{gate.ours} against {gate.against}: it did not run here"
    figure = 1e6 * seconds[gate.ours]
    if gate.against is not None:
        figure = seconds[gate.ours] / seconds[gate.against]
        figure = 1 / figure if gate.faster else figure
    passed = figure >= gate.bound if gate.faster else figure <= gate.bound
    against = f"against {gate.against}" if gate.against else "in microseconds"
    bound = f"{'at least' if gate.faster else 'at most'} {gate.bound:g}"
    return "pass" if passed else "FAIL", f"{gate.ours} {against}: {figure:.2f}, {bound}"


if __name__ == "__main__":
    main()
