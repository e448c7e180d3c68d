"""The op at its boundary: dispatcher checks, compilation, odd inputs, and errors of one line."""

from __future__ import annotations

import types
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import yaml

from rrgkern import Edit, Rule, SentenceEntities, csrc, dispatch, edit_plan, sentence_body
from rrgkern.edit_plan import op, splicing
from tests.mutants import faults, mutate
from tests.rrgkern.edit_plan.cases import Entity, Sentence, random_pair, tensors
from tests.rrgkern.edit_plan.test_twin import scattered, table, with_kinds

REPORTS = [random_pair(seed) for seed in range(24)]
X, Y = ([pair[side] for pair in REPORTS] for side in (0, 1))
SEEDS = torch.arange(24) * 7919


def arguments(max_edits: int, width: int, strict: bool = True) -> tuple[Any, ...]:
    x, y = tensors(X), tensors(Y)
    sentences = [z._replace(entity_sentence=z.entity_sentence.long()) for z in (x, y)]
    return (*sentences[0][:7], *sentences[1][:7], SEEDS, 0.6, 0.6, max_edits, width, strict)


@pytest.mark.parametrize(("max_edits", "width"), [(1, 1), (0, 12)])
def test_opcheck(max_edits: int, width: int) -> None:
    torch.library.opcheck(torch.ops.rrgkern.edit_plan.default, arguments(max_edits, width))


def test_opcheck_of_the_published_rule() -> None:
    x, y = (tensors(reports, garbage=0.7071) for reports in (X, Y))
    x, y = (
        z._replace(entity_sentence=z.entity_sentence.long(), kind=z.presence.abs()) for z in (x, y)
    )
    affinity = torch.tensor([[0.4, 0.7], [0.6, 0.9]], dtype=torch.float64)
    values = (*x, *y, SEEDS, affinity, 0.6, 0.6, 0.3612)
    torch.library.opcheck(torch.ops.rrgkern.edit_plan_released.default, values)


def test_compiles_without_a_graph_break() -> None:
    x, y = tensors(X), tensors(Y)
    expected = edit_plan(x, y, seeds=SEEDS, max_edits=2)
    compiled = torch.compile(edit_plan, fullgraph=True, backend="aot_eager")
    for field, wanted in zip(compiled(x, y, seeds=SEEDS, max_edits=2), expected, strict=True):
        assert torch.equal(field, wanted)


def spread(tensor: torch.Tensor) -> torch.Tensor:
    """The same values, not contiguous."""
    if tensor.ndim == 2:
        return tensor.T.contiguous().T
    return torch.stack([tensor, torch.zeros_like(tensor)], 1)[:, 0]


def test_strides_and_integer_width_do_not_matter() -> None:
    x, y = tensors(X), tensors(Y)
    expected = edit_plan(x, y, seeds=SEEDS)
    strided = [SentenceEntities(*map(spread, z[:7])) for z in (x, y)]
    assert not strided[0].embedding.is_contiguous()
    strided[0] = strided[0]._replace(entity_sentence=strided[0].entity_sentence.long())
    for field, wanted in zip(edit_plan(*strided, seeds=spread(SEEDS)), expected, strict=True):
        assert torch.equal(field, wanted)


@pytest.mark.parametrize("max_edits", [1, None])
def test_no_reports(max_edits: int | None) -> None:
    script = edit_plan(
        tensors([]), tensors([]), seeds=torch.zeros(0, dtype=torch.int64), max_edits=max_edits
    )
    assert script.rule.shape == (0, max_edits or 0)
    assert script.count.shape == (0,)


X1 = tensors([(Sentence(0, (Entity(0, 1), Entity(3, 0))), Sentence(1, (Entity(6, 1),)))])


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"presence": X1.presence * 2}, ValueError, "presence is 2 at row 0, wanted -1 to 1"),
        ({"entity_sentence": torch.tensor([0, 0, 2])}, ValueError, "is 2 at row 2, wanted 0 to 1"),
        ({"entity_offsets": torch.tensor([0, 2])}, ValueError, "entity_offsets runs from 0 to 2"),
        ({"embedding": torch.zeros(3, 2)}, ValueError, "x.embedding row 0 is of length 0,"),
        ({"embedding": torch.ones(3, 3)}, ValueError, "has width 3 and y.embedding 2"),
        ({"sentence_offsets": torch.tensor([0, 1, 2])}, ValueError, r"wanted shape \[2\]"),
    ],
)  # fmt: skip
def test_wrong_tensors_are_named_in_one_line(changes, error, message) -> None:
    with pytest.raises(error, match=message) as raised:
        edit_plan(X1._replace(**changes), X1, seeds=torch.tensor([0]))
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tau": 0.97}, "tau is 0.97, wanted -1 <= tau < 0.97"),
        ({"rule": "released", "max_edits": None}, "max_edits is None, wanted 1"),
        ({"rule": "released", "affinity": torch.ones(1, 1)}, "x.kind or y.kind is None"),
    ],
)
def test_wrong_options_are_named(options, message) -> None:
    with pytest.raises(ValueError, match=message):
        edit_plan(X1, X1, seeds=torch.tensor([0]), **options)


class FakeLibrary:
    """The extension of a GPU machine as far as a launch needs it; it remembers the call."""

    edit_plan_space = staticmethod(lambda *arguments: csrc.load().edit_plan_space(*arguments))

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def edit_plan_cuda(self, *arguments: Any) -> None:
        self.calls.append(arguments)

    edit_plan_released_cuda = edit_plan_cuda


@pytest.mark.skipif(csrc.why_not("edit_plan", "cpu") is not None, reason="needs the extension")
@pytest.mark.parametrize("rule", ["paper", "released"])
def test_with_offsets_on_the_host_nothing_waits_for_the_device(monkeypatch, rule) -> None:
    """Tensors of the meta device hold no values: to read one is an error."""
    library = FakeLibrary()
    monkeypatch.setattr(op, "csrc", SimpleNamespace(load=lambda: library))
    x, y = (tensors(reports) for reports in (X, Y))
    x, y = (z._replace(kind=torch.zeros_like(z.presence)) for z in (x, y))
    fields = 8 if rule == "released" else 7

    def launch(where: str) -> None:
        sides = [
            tensor.to(where if name.endswith("offsets") else "meta")
            for z in (x, y)
            for name, tensor in zip(z._fields[:fields], z[:fields], strict=True)
        ]
        name, options = "edit_plan", (0.6, 0.6, 1, 1, True)
        if rule == "released":
            affinity = torch.ones(1, 1, dtype=torch.float64, device="meta")
            name, options = "edit_plan_released", (affinity, 0.6, 0.6, 0.4)
        kernel = dispatch._kernels[f"rrgkern::{name}", "cuda"]
        kernel.launch(*sides, SEEDS.to("meta"), *options)

    launch("cpu")
    (arguments,) = library.calls
    assert all(a.device.type == "meta" for a in arguments if isinstance(a, torch.Tensor))
    bytes_needed, slabs = arguments[-6], arguments[-5]
    assert bytes_needed > 0 and slabs.numel() == 0
    with pytest.raises(NotImplementedError):
        launch("meta")


# A GPU plans as the CPU does, bit for bit.
PAPER = [
    {"max_edits": max_edits, "conflict_requires_spurious": strict, "tau": tau}
    for max_edits in (1, 3, None)
    for strict in (True, False)
    for tau in (0.6, 0.95)
]
RELEASED = [{"rule": "released", "tau": tau, "affinity": table(3)} for tau in (0.3, 0.6, 0.9)]


def on_gpu(z: SentenceEntities, offsets: str) -> SentenceEntities:
    return SentenceEntities(
        *(
            tensor.to(offsets if name.endswith("offsets") else "cuda")
            for name, tensor in zip(z._fields, z, strict=True)
        )
    )


# (pairs, sentences, texts): the last do not fit into the shared memory of a block.
@pytest.mark.gpu
@pytest.mark.parametrize(("pairs", "sentences", "texts"), [(400, 8, 12), (1, 3, 4), (5, 90, 120)])
@pytest.mark.parametrize("width", [2, 33, 768])
@pytest.mark.parametrize("offsets", ["cuda", "cpu"])
def test_scripts_are_equal(pairs: int, sentences: int, texts: int, width: int, offsets: str):
    assert csrc.why_not("edit_plan", "cuda") is None, "build the extension for this GPU first"
    assert dispatch.served_by("rrgkern::edit_plan_released", "cuda") == "csrc edit_plan"
    batch = [random_pair(seed, sentences, texts) for seed in range(pairs)]
    x, y = (with_kinds([pair[k] for pair in batch], k) for k in (0, 1))
    if width > 2:
        x, y = scattered(x, width, 1), scattered(y, width, 2)
    seeds = torch.arange(pairs) - 7
    for options in PAPER + RELEASED:
        moved = {k: v.cuda() if isinstance(v, torch.Tensor) else v for k, v in options.items()}
        there = (on_gpu(x, offsets), on_gpu(y, offsets))
        for _ in range(2):
            script = edit_plan(*there, seeds=seeds.cuda(), **moved)
            for field, wanted in zip(script, edit_plan(x, y, seeds=seeds, **options), strict=True):
                assert torch.equal(field.cpu(), wanted)


@pytest.mark.gpu
def test_no_reports_at_all() -> None:
    x = on_gpu(with_kinds([], 0), "cuda")
    for rule in ("paper", "released"):
        assert edit_plan(x, x, seeds=torch.arange(0).cuda(), rule=rule).count.shape == (0,)


# Scripts applied to numbered lists and to sentences without a full stop.
REPLACE, DELETE, ADD = Rule.REPLACEMENT, Rule.DELETION, Rule.ADDITION
LIST = "[1. Heart big.] [2. Effusion.] [3. Edema.]"
# name: (report, reference, script, edited report)
EXAMPLES = {
    name: (report, reference, [(Rule[rule], *places) for rule, *places in script], done)
    for name, (report, reference, script, done) in yaml.safe_load(
        Path(__file__).with_name("lists.yaml").read_text()
    ).items()
}


def bracketed(text: str) -> tuple[str, list[tuple[int, int]]]:
    """The text without its brackets, and the spans that stood in them."""
    plain, spans = "", []
    for piece in text.split("["):
        inside, bracket, rest = piece.partition("]")
        if bracket:
            spans.append((len(plain), len(plain) + len(inside)))
        plain += inside + rest
    return plain, spans


def outcome(module: types.ModuleType, name: str) -> tuple[str, bool]:
    """The edited report, and whether it is the old one up to `first_changed`."""
    x, y, script, _ = EXAMPLES[name]
    (report, spans), (reference, others) = bracketed(x), bracketed(y)
    done = module.splice(report, spans, reference, others, [Edit(*edit) for edit in script])
    return done.text, done.text[: done.first_changed] == report[: done.first_changed]


@pytest.mark.parametrize("name", EXAMPLES)
def test_text_after_its_script(name: str) -> None:
    assert outcome(splicing, name) == (EXAMPLES[name][3], True)


@pytest.mark.parametrize(
    ("name", "first"),
    [
        ("missing stop", 34),
        ("place keeps its number", 17),
        ("deletion in the middle", 14),
        ("deletion at the end", 26),
        ("a stop before a replacement", 9),
    ],
)
def test_tokens_are_kept_up_to_the_first_character_touched(name: str, first: int) -> None:
    x, y, script, _ = EXAMPLES[name]
    edits = [Edit(*edit) for edit in script]
    done = splicing.splice(*bracketed(x), *bracketed(y), edits)
    assert done.first_changed == first


def test_steps_are_told_without_numbers() -> None:
    report, reference = bracketed(LIST), bracketed("[1. Clear]")
    script = [Edit(REPLACE, 1, 0), Edit(DELETE, 0, -1), Edit(ADD, 2, 0)]
    steps = splicing.splice(*report, *reference, script).steps
    assert [tuple(step) for step in steps] == [
        ("replacement", "Effusion.", "Clear."),
        ("deletion", "Heart big.", ""),
        ("addition", "", "Clear."),
    ]


@pytest.mark.parametrize(
    ("sentence", "body"),
    [
        ("2. No edema.", "No edema"),
        ("(2) No edema", "No edema"),
        ("- No edema,", "No edema"),
        ("1. 1.No edema .", "No edema"),
        ("1.5 cm nodule.", "1.5 cm nodule"),
        ("-2 degrees", "-2 degrees"),
        ("3.", ""),
    ],
)
def test_what_a_sentence_says_has_no_number_and_no_stop(sentence: str, body: str) -> None:
    assert sentence_body(sentence) == body


FAULTS = [*faults("splicing"), *faults("parts of a sentence")]


@pytest.mark.parametrize(("old", "new"), FAULTS)
def test_faults_in_the_splicing_die(old: str, new: str) -> None:
    mutant = mutate(splicing, old, new)
    assert any(outcome(mutant, name) != (EXAMPLES[name][3], True) for name in EXAMPLES)
