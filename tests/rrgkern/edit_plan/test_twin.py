"""The compiled plan equals the reference bit for bit."""

from __future__ import annotations

import pytest
import torch
from hypothesis import strategies as st
from torch import Tensor

from rrgkern import SentenceEntities, csrc, edit_plan
from rrgkern.edit_plan import released as released_module
from rrgkern.edit_plan.inputs import EditOptions, ReleasedOptions
from rrgkern.edit_plan.reference import edit_plan_reference
from rrgkern.edit_plan.released import released_reference
from rrgkern.random import uniform_below
from tests.mutants import survivors
from tests.rrgkern.edit_plan.cases import Case, Entity, Sentence, any_cases, random_pair, tensors
from tests.rrgkern.many_cases import Cases, for_all

pytestmark = pytest.mark.skipif(
    csrc.why_not("edit_plan", "cpu") is not None, reason=str(csrc.why_not("edit_plan", "cpu"))
)


def reference(
    x: SentenceEntities,
    y: SentenceEntities,
    keys: Tensor,
    tau: float,
    tau_replace: float,
    max_edits: int | None,
    strict: bool,
) -> tuple[Tensor, ...]:
    lengths = x.sentence_offsets.diff() + y.sentence_offsets.diff()
    width = int(lengths.max()) if max_edits is None else max_edits
    return edit_plan_reference(
        x, y, keys, EditOptions(tau, tau_replace, max_edits or 0, width, strict)
    )


def scattered(z: SentenceEntities, width: int, seed: int) -> SentenceEntities:
    """The plane turned into `width` axes, and each entity a little off: cosines near tau."""
    generator = torch.Generator().manual_seed(seed)
    axes = torch.randn(width, 2, generator=torch.Generator().manual_seed(width))
    plane, _ = torch.linalg.qr(axes)
    noise = 0.1 * torch.randn(len(z.key), width, generator=generator) / width**0.5
    rows = z.embedding[:, :2] @ plane.T + noise
    return z._replace(embedding=torch.nn.functional.normalize(rows, dim=1))


@for_all(
    any_cases,
    tau=st.sampled_from([-1.0, 0.3, 0.6, 0.9]),
    tau_replace=st.sampled_from([-1.0, 0.5, 0.6, 0.97, 1.0]),
    max_edits=st.sampled_from([1, 2, None]),
    strict=st.booleans(),
    width=st.sampled_from([2, 31, 33, 100]),
    noise=st.integers(0, 2**20),
)
def test_scripts_are_equal(
    cases: list[Case],
    tau: float,
    tau_replace: float,
    max_edits: int | None,
    strict: bool,
    width: int,
    noise: int,
) -> None:
    x, y = tensors([case.x for case in cases]), tensors([case.y for case in cases])
    if width > 2:
        x, y = scattered(x, width, noise), scattered(y, width, noise + 1)
    keys = torch.tensor([case.seed for case in cases])
    script = edit_plan(
        x,
        y,
        seeds=keys,
        tau=tau,
        tau_replace=tau_replace,
        max_edits=max_edits,
        conflict_requires_spurious=strict,
    )
    expected = reference(x, y, keys, tau, tau_replace, max_edits, strict)
    for field, wanted in zip(script, expected, strict=True):
        assert field.dtype == wanted.dtype
        assert torch.equal(field, wanted)


KINDS = 3


def with_kinds(reports: list[tuple[Sentence, ...]], seed: int) -> SentenceEntities:
    """The reports for the published rule: every entity has an embedding, and a kind."""
    z = tensors(reports, garbage=0.5**0.5)
    generator = torch.Generator().manual_seed(seed)
    return z._replace(kind=torch.randint(KINDS, z.key.shape, generator=generator).to(torch.int8))


def table(seed: int) -> Tensor:
    """Affinities in sixteenths: with them many likenesses are equal."""
    sixteenths = torch.randint(6, 17, (KINDS, KINDS), generator=torch.Generator().manual_seed(seed))
    return sixteenths.double() / 16


@for_all(
    any_cases,
    tau=st.sampled_from([-1.0, 0.3, 0.6, 0.9]),
    tau_replace=st.sampled_from([-1.0, 0.5, 0.6, 0.97, 1.0]),
    neg_weight=st.sampled_from([0.0, 0.3612, 0.8717, 1.0]),
    width=st.sampled_from([2, 31, 33, 100]),
    seed=st.integers(0, 2**20),
)
def test_released_scripts_are_equal(
    cases: list[Case], tau: float, tau_replace: float, neg_weight: float, width: int, seed: int
) -> None:
    x, y = with_kinds([c.x for c in cases], seed), with_kinds([c.y for c in cases], seed + 1)
    if width > 2:
        x, y = scattered(x, width, seed), scattered(y, width, seed + 1)
    keys = torch.tensor([case.seed for case in cases])
    thresholds = {"tau": tau, "tau_replace": tau_replace, "neg_weight": neg_weight}
    script = edit_plan(x, y, seeds=keys, rule="released", affinity=table(seed), **thresholds)
    expected = released_reference(x, y, keys, ReleasedOptions(table(seed), **thresholds))
    for field, wanted in zip(script, expected, strict=True):
        assert field.dtype == wanted.dtype
        assert torch.equal(field, wanted)


RELEASED_CASES = 1200


def released_right(reference: object) -> bool:
    """Tell whether a reference of the published rule plans as the compiled one does."""
    pairs = [random_pair(seed, sentences=4, texts=8) for seed in range(RELEASED_CASES)]
    x, y = (with_kinds([pair[k] for pair in pairs], k) for k in (0, 1))
    keys = torch.arange(RELEASED_CASES)
    for tau, tau_replace in ((0.6, 0.6), (0.5, 0.9), (0.9, 1.0), (0.9, -0.5)):
        options = {"tau": tau, "tau_replace": tau_replace, "neg_weight": 0.8717}
        script = edit_plan(x, y, seeds=keys, rule="released", affinity=table(0), **options)
        expected = reference.released_reference(x, y, keys, ReleasedOptions(table(0), **options))
        if not all(torch.equal(*fields) for fields in zip(script, expected, strict=True)):
            return False
    return True


def test_the_published_rule_itself_is_right() -> None:
    assert released_right(released_module)


@pytest.mark.gate
def test_faults_in_the_published_rule_die() -> None:
    assert not survivors(released_module, "the published rule", released_right)


def test_long_reports_are_equal() -> None:
    batch = [random_pair(seed, sentences=40, texts=60) for seed in range(6)]
    x, y = (scattered(tensors([pair[k] for pair in batch]), 96, k) for k in (0, 1))
    keys = torch.arange(6) - 3
    # Nearly equal or not at all: with so many findings a lower tau covers everything.
    tau = 0.965
    for max_edits, strict in ((None, True), (None, False), (3, True)):
        options = {"max_edits": max_edits, "conflict_requires_spurious": strict}
        script = edit_plan(x, y, seeds=keys, tau=tau, **options)
        assert script.count.sum() > 12
        expected = reference(x, y, keys, tau, tau, max_edits, strict)
        assert all(torch.equal(*pair) for pair in zip(script, expected, strict=True))
    x, y = (scattered(with_kinds([pair[k] for pair in batch], k), 96, k) for k in (0, 1))
    script = edit_plan(x, y, seeds=keys, rule="released", affinity=table(1))
    expected = released_reference(x, y, keys, ReleasedOptions(table(1), 0.6, 0.6, 0.3612))
    assert all(torch.equal(*pair) for pair in zip(script, expected, strict=True))


def test_the_number_of_threads_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = [random_pair(seed, sentences=20) for seed in range(60)]
    x, y = (scattered(with_kinds([pair[k] for pair in batch], k), 200, k) for k in (0, 1))
    for rule in ("paper", "released"):
        scripts = []
        for threads in (1, 3):
            monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
            scripts.append(edit_plan(x, y, seeds=torch.arange(60), rule=rule))
        assert all(torch.equal(*fields) for fields in zip(*scripts, strict=True))


draws = Cases(
    lambda choices: (max(1, choices.word(choices.below(5))), choices.seed(), choices.word(4)), 17
)


@for_all(draws, batch=100)
def test_draws_are_equal_and_reject_alike(cases: list[tuple[int, int, int]]) -> None:
    for n, seed, edit in cases:
        assert csrc.load().edit_plan_draw(n, seed, edit) == uniform_below(n, seed, edit)


@for_all(Cases(lambda choices: (2 + choices.below(39), choices.seed()), 9))
def test_a_script_holds_the_draw(cases: list[tuple[int, int]]) -> None:
    """A report that says nothing takes one of n sentences: the draw stands in the script."""
    y = tensors([tuple(Sentence(k, (Entity(k % 12, 1),)) for k in range(n)) for n, _ in cases])
    script = edit_plan(
        tensors([()] * len(cases)), y, seeds=torch.tensor([seed for _, seed in cases])
    )
    assert script.reference.tolist() == [[uniform_below(n, seed, 0)] for n, seed in cases]
