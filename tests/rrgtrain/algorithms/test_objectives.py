"""One full step of each system against its paper's equations, written out in plain fp64.

From sampled reports and their rewards through completion, advantages, token weights, packing and
fused losses to the loss and every parameter's gradient. `planted.yaml` holds what they notice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from tempfile import mkdtemp

import pytest
import torch
from torch import Tensor

from rrgclinical.cached import CachedLabeller
from rrgclinical.labels import NO_FINDING, to_binary
from rrgpolicy.model.policy import Policy
from rrgtrain.algorithms import Algorithm, Context, Group, Member, Objective, build_algorithm
from rrgtrain.algorithms import ditpo as ditpo_module
from rrgtrain.schema import Recipe
from tests.rrgclinical.chexbert import tiny
from tests.rrgpolicy.model.common import REPORTS, prompt, tiny_policy
from tests.rrgtrain.algorithms import plain
from tests.rrgtrain.common import accumulate, gradients, member, recipe, rollout_logps, studies
from tests.rrgtrain.train.test_update import assert_equal

LIMIT = 64
# Advantages, scales and token weights are fp32; everything else is fp64.
CLOSE = 2e-6

# Prompts of unequal length, with and without image; reports of unequal length.
SAMPLED = [
    ["The heart is enlarged.", "Lungs are clear. Mild edema.", "No pneumothorax.", ""],
    [REPORTS[1], "There is a rib fracture.", "Small left effusion.", "Edema. No effusion."],
]
# By text, so that edited and injected reports have rewards too. The first group has two zeros.
WORTH = {
    "The heart is enlarged.": 0.0,
    "": 0.0,
    "Lungs are clear. Mild edema.": 0.5,
    "No pneumothorax.": 0.75,
    REPORTS[1]: 1.25,
}

SYSTEMS: dict[str, list[str]] = {
    "editgrpo": ["rl.algorithm=editgrpo", "rl.std=none", "rl.aggregation=dr_grpo"],
    "editgrpo_norm": ["rl.algorithm=editgrpo", "rl.std=sample", "rl.aggregation=dr_grpo"],
    "editgrpo_para": ["rl.algorithm=editgrpo", "edit.level=paragraph"],
    "mrg_r1": ["rl.algorithm=grpo", "rl.std=population", "rl.aggregation=grpo", "rl.beta=0.04"],
    "ditpo_tfidf": [
        "rl.algorithm=ditpo",
        "rl.std=population",
        "rl.aggregation=grpo",
        "token_weights.kind=tfidf",
    ],
    "ditpo_saliency": [
        "rl.algorithm=ditpo",
        "rl.std=population",
        "rl.aggregation=grpo",
        "token_weights.kind=saliency",
        "token_weights.labeller=chexbert",
    ],
    "orapo": ["rl.algorithm=orapo", "rl.std=none", "rl.aggregation=dr_grpo"],
    "orapo_without_kl": ["rl.algorithm=orapo", "rl.beta=0"],
    "orapo_sft": ["rl.algorithm=orapo", "oracle.loss=sft"],
    "all_of_it": ["rl.algorithm=editgrpo+ditpo+orapo", "token_weights.kind=tfidf"],
}


def settings_of(system: str, *overrides: str) -> Recipe:
    common = ["rl.beta=0.5", f"rl.max_new_tokens={LIMIT}", "rl.token_budget=150", "rl.group=4"]
    return recipe(*common, *SYSTEMS[system], *overrides)


@lru_cache(maxsize=1)
def chexbert() -> CachedLabeller:
    """A tiny CheXbert in fp64."""
    labeller = tiny.labeller(tiny.write_folder(Path(mkdtemp(prefix="chexbert-"))))
    labeller.network.double()
    return CachedLabeller(labeller)


@pytest.fixture(autouse=True)
def _with_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    """A recipe that asks for chexbert gets the tiny one."""
    real = ditpo_module.open_labeller
    monkeypatch.setattr(
        ditpo_module,
        "open_labeller",
        lambda reward, name=None: chexbert() if name == "chexbert" else real(reward, name),
    )


@lru_cache(maxsize=1)
def policies() -> tuple[Policy, Policy]:
    """The policy, and a frozen reference that differs from it."""
    other = tiny_policy(dtype=torch.float64)
    with torch.no_grad():
        for n, p in enumerate(other.model.parameters()):
            p.mul_(1.0 + 0.02 * (n % 5))
    frozen = replace(other, model=other.model.requires_grad_(False))
    return tiny_policy(dtype=torch.float64), frozen


def sampled_groups(policy: Policy, count: int) -> list[Group]:
    """`count` sampled members a group; the last was cut off before its end of turn."""
    made = []
    for g, texts in enumerate(SAMPLED):
        members = [member(policy, text) for text in texts[:count]]
        cut = members[-1].ids[:-1] if len(members[-1].ids) > 1 else members[-1].ids
        members[-1] = replace(members[-1], ids=cut, finished=len(cut) == len(members[-1].ids))
        encoded = prompt(policy, "s" * (g + 1), g, indication="dyspnea" * g)
        made.append(Group(10 + g, studies(g + 1)[g], encoded, tuple(members)))
    return made


def worth(m: Member) -> float:
    return WORTH.get(m.text, len(m.text) % 7 / 4)


def rewards_of(groups: list[Group]) -> Tensor:
    values = [worth(m) if m.scored else float("nan") for g in groups for m in g.members]
    return torch.tensor(values, dtype=torch.float64)


def completed(system: str, *overrides: str) -> tuple[Algorithm, list[Group], Tensor | Objective]:
    """The trainer's own path to an objective, without sampling."""
    policy, algorithm = policies()[0], build_algorithm(settings_of(system, *overrides))
    algorithm.prepare(Context(policy.codec, studies(4)))
    groups = sampled_groups(policy, algorithm.sampled)
    groups, _ = algorithm.complete(groups, 3, policy.codec.reencode_from)
    return algorithm, groups, algorithm.advantages(groups, rewards_of(groups))


def by_the_paper(system: str, groups: list[Group]) -> tuple[float, dict[str, Tensor]]:
    """The same step from the equations."""
    policy, reference = policies()
    cfg = settings_of(system)
    reports = plain.Reports(policy, reference, groups)
    loss = PAPERS[system](cfg, reports, groups)
    loss.backward()
    return loss.item(), gradients(policy)


def grpo_terms(
    cfg: Recipe, reports: plain.Reports, group: Group, spread: str, weights: list[list[float]]
) -> Iterator[tuple[Member, Tensor]]:
    """Each competing member with its [T] surrogate + β·k3 (GRPO; OraPO eq. 4)."""
    compete = [m for m in group.members if m.scored]
    advantages = plain.centred([worth(m) for m in compete], spread)
    for m, a, weight in zip(compete, advantages, weights, strict=True):
        yield m, reports.surrogate(m, [a * w for w in weight]) + cfg.rl.beta * reports.k3(m)


def ones(group: Group) -> list[list[float]]:
    return [[1.0] * len(m.ids) for m in group.members if m.scored]


def grpo(
    spread: str, weigh: Callable[[Group], list[list[float]]] = ones, length: int | None = None
) -> Callable:
    """(1 / S) Σ_i (1 / |o_i|) Σ_t: GRPO; with token weights DiTPO eq. 6.

    Dr. GRPO has a constant `length` in place of |o_i|.
    """

    def loss(cfg: Recipe, reports: plain.Reports, groups: list[Group]) -> Tensor:
        count = sum(m.scored for g in groups for m in g.members)
        terms = [t for g in groups for t in grpo_terms(cfg, reports, g, spread, weigh(g))]
        return sum(tokens.sum() / (length or len(tokens)) for _, tokens in terms) / count

    return loss


def tfidf_of(group: Group) -> list[list[float]]:
    """The end of turn, which is no token of the report, weighs 1."""
    compete = [m for m in group.members if m.scored]
    bodies = [m.ids[: len(m.ids) - m.finished].tolist() for m in compete]
    return [w + [1.0] * m.finished for w, m in zip(plain.tfidf(bodies, 4.0), compete, strict=True)]


def saliency_of(group: Group) -> list[list[float]]:
    """DiTPO eqs. 9 to 12, one report a forward."""
    labeller, codec = chexbert().labeller, policies()[0].codec
    targets = to_binary(labeller.label([group.study.report or ""]))[0].astype(bool)
    targets[NO_FINDING] = False
    found = []
    for m in group.members:
        pieces = labeller.tokenize([m.text])[0]
        ids = torch.tensor([pieces.ids])
        embeddings = labeller.network.word_embeddings(ids).detach().requires_grad_()
        logits = labeller.network(embeddings, torch.ones_like(ids))[0]
        norms = [0.0] * len(pieces.spans)
        if targets.any():
            chosen = logits[torch.from_numpy(targets)]
            (chosen[:, 1].sum() + chosen[:, 3].sum()).backward()
            norms = embeddings.grad[0, 1:].norm(dim=-1).tolist()
        weights, begin = [], 0
        for t in range(len(m.ids)):
            end = len(codec.decode(m.ids[: t + 1]))
            touching = [
                s
                for s, (a, b) in zip(norms, pieces.spans, strict=False)
                if max(a, begin) < min(b, end)
            ]
            weights.append(1 + max(touching, default=0.0))
            begin = end
        found.append(weights)
    return found


def orapo(second: str, weigh: Callable[[Group], list[list[float]]] = ones) -> Callable:
    """(1/B) Σ_b (1 - w)·L_GRPO + w·L_second, L_GRPO = (1 / (G·L)) Σ_i Σ_t (eq. 11)."""

    def loss(cfg: Recipe, reports: plain.Reports, groups: list[Group]) -> Tensor:
        total = torch.zeros((), dtype=torch.float64)
        count = sum(m.scored for g in groups for m in g.members)
        for group in groups:
            sampled = [m for m in group.members if m.origin == "sampled"]
            (oracle,) = (m for m in group.members if m.origin == "oracle")
            assert oracle.text == group.study.report
            w = plain.mixing_weight(sum(worth(m) == 0 for m in sampled) / len(sampled))
            terms = grpo_terms(cfg, reports, group, "none", weigh(group))
            mine = sum(tokens.sum() for _, tokens in terms) * len(groups) / (count * LIMIT)
            if second == "sft":
                other = -reports.policy[id(oracle)].mean()
            else:
                other = plain.ln_dpo(reports, oracle, sampled, 1.0)
            total = total + ((1 - w) * mine + w * other) / len(groups)
        return total

    return loss


PAPERS: dict[str, Callable] = {
    "editgrpo": grpo("none", length=LIMIT),
    "editgrpo_norm": grpo("sample", length=LIMIT),
    "editgrpo_para": grpo("none", length=LIMIT),
    "mrg_r1": grpo("population"),
    "ditpo_tfidf": grpo("population", tfidf_of),
    "ditpo_saliency": grpo("population", saliency_of),
    "orapo": orapo("dpo"),
    "orapo_without_kl": orapo("dpo"),
    "orapo_sft": orapo("sft"),
    "all_of_it": orapo("dpo", tfidf_of),
}


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_step_is_the_papers(system: str) -> None:
    cfg, (policy, reference) = settings_of(system), policies()
    algorithm, groups, objective = completed(system)
    needed = cfg.rl.beta > 0 or algorithm.needs_reference
    update = accumulate(
        policy, reference if needed else None, groups, objective, algorithm.loss, cfg.rl
    )
    found = update.loss, gradients(policy)
    origins = {m.origin for g in groups for m in g.members}
    added = {"editgrpo": {"edited"}, "orapo": {"oracle"}, "all": {"edited", "oracle"}}
    assert origins == {"sampled"} | added.get(system.split("_")[0], set())
    loss, wanted = by_the_paper(system, groups)
    if system == "orapo_sft":
        # where the policy loss has no ratio, its value is the log-likelihood itself
        assert update.loss == pytest.approx(loss, rel=CLOSE)
    assert_equal(found, (loss, wanted), CLOSE)


@pytest.mark.parametrize("system", ["editgrpo", "editgrpo_para", "orapo", "all_of_it"])
def test_a_second_update_is_clipped_against_the_policy_at_rollout(system: str) -> None:
    """EditGRPO recomputes the log-probabilities of an edited report under the policy that sampled:
    the ratio is to those, and clipped."""
    cfg, (rollout, reference) = settings_of(system, "rl.epochs=2"), policies()
    algorithm, groups, objective = completed(system, "rl.epochs=2")
    fixed = rollout_logps(rollout, reference, groups, objective, algorithm.loss, cfg.rl)
    now = tiny_policy(dtype=torch.float64)
    with torch.no_grad():
        for n, p in enumerate(now.model.parameters()):
            p.mul_(1.0 + 0.05 * (n % 3))
    given = now, reference, groups, objective, algorithm.loss, cfg.rl
    update = accumulate(*given, fixed=fixed)
    found = gradients(now)
    assert update.metrics["clip_low"] + update.metrics["clip_high"] > 0

    reports = plain.Reports(now, reference, groups, rollout)
    edited = [reports.policy[id(m)] - reports.rollout[id(m)] for g in groups for m in g.members]
    assert max(float(d.detach().abs().max()) for d in edited) > 0.2
    loss = PAPERS[system](cfg, reports, groups)
    loss.backward()
    assert_equal((update.loss, found), (loss.item(), gradients(now)), CLOSE)


def test_the_zero_rate_is_smoothed_per_prompt() -> None:
    """The second step of a prompt mixes by z = 0.5·z_1 + 0.5·z_2 (eq. 9)."""
    cfg = settings_of("orapo")
    policy, _ = policies()
    algorithm = build_algorithm(cfg)
    groups, _ = algorithm.complete(sampled_groups(policy, 4), 0, policy.codec.reencode_from)
    first = algorithm.advantages(groups, rewards_of(groups))
    assert isinstance(first, Objective) and first.group_weight is not None
    assert first.group_weight.tolist() == pytest.approx([1 - 0.05 - 0.1 * 0.25, 0.95])
    paid = torch.where(rewards_of(groups).isnan(), rewards_of(groups), 1.0)
    second = algorithm.advantages(groups, paid)
    assert isinstance(second, Objective) and second.group_weight is not None
    assert second.group_weight.tolist() == pytest.approx([0.95 - 0.1 * 0.25**2, 0.95])
    assert second.metrics["oracle/zero_rate"] == 0.0
    assert first.metrics["oracle/zero_rate"] == pytest.approx(0.25)

    again = build_algorithm(cfg)
    again.load_state_dict(algorithm.state_dict())
    third = [a.advantages(groups, rewards_of(groups)) for a in (algorithm, again)]
    assert torch.equal(third[0].group_weight, third[1].group_weight)
    assert third[0].group_weight[0] == pytest.approx(0.95 - 0.1 * 0.375**2)
