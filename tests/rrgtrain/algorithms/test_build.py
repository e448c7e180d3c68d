"""Algorithms by name, and those of the user's own."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest
import torch

import rrgtrain.algorithms
from rrgkern.policy_loss import AGGREGATIONS, spec
from rrgtrain.algorithms import Algorithm, Group, Objective, build_algorithm
from rrgtrain.errors import UserError
from rrgtrain.schema import Recipe
from rrgtrain.schema.keys import settings
from tests.rrgpolicy.model.common import tiny_policy
from tests.rrgtrain.common import accumulate, gradients, groups_of, recipe, rollout_logps

OWN = """
from rrgkern import PolicyLoss
from rrgtrain.algorithms import Algorithm

NUMBER = 3

def build(recipe):
    def complete(groups, step, reencode):
        return groups, {"mine": float(step)}

    def advantages(groups, rewards):
        return rewards.float() * 2

    return Algorithm("mine", recipe.rl.group, complete, advantages, PolicyLoss())

def forgetful(recipe):
    return {"name": "mine"}
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    """The name of a module of the user's own; another one for each test."""
    name = f"own_{abs(hash(request.node.name))}"
    (tmp_path / f"{name}.py").write_text(textwrap.dedent(OWN))
    monkeypatch.syspath_prepend(tmp_path)
    return name


def groups() -> list[Group]:
    return groups_of(tiny_policy(), [["Edema."] * 3, ["Clear."] * 2], edited=False)


def test_rloo_and_reinforce_pp_by_hand() -> None:
    rewards = torch.tensor([1.0, 0.2, 0.0, 0.5, 0.9], dtype=torch.float64)
    of = {
        name: build_algorithm(recipe(f"rl.algorithm={name}")) for name in ("rloo", "reinforce_pp")
    }
    others = of["rloo"].advantages(groups(), rewards)
    # 1 - (0.2 + 0) / 2 and so on
    torch.testing.assert_close(others, torch.tensor([0.9, -0.3, -0.6, -0.4, 0.4]).double())
    lengths = torch.tensor([len(m.ids) for group in groups() for m in group.members])
    centred = torch.tensor([0.6, -0.2, -0.4, -0.2, 0.2]).double()
    tokens = centred.repeat_interleave(lengths)
    by_hand = (centred - tokens.mean()) / (tokens.var() + 1e-8).sqrt()
    torch.testing.assert_close(of["reinforce_pp"].advantages(groups(), rewards), by_hand)


def test_a_recipe_has_every_variant_of_the_loss() -> None:
    choices = {setting.key: setting.choices for setting in settings(Recipe)}
    for key, variants in [
        ("rl.surrogate", spec.SURROGATES),
        ("rl.ratio_level", spec.RATIO_LEVELS),
        ("rl.kl", spec.KLS),
        ("rl.aggregation", AGGREGATIONS),
        ("rollout.level", spec.SAMPLER_LEVELS),
    ]:
        assert sorted(choices[key] or ()) == sorted(variants), key
    with pytest.raises(UserError, match=r"^rl: ratio_level is 'token' with surrogate 'luspo'"):
        build_algorithm(recipe("rl.algorithm=grpo", "rl.surrogate=luspo"))


@pytest.mark.parametrize("name", ["editgrpo", "orapo", "ditpo+orapo"])
@pytest.mark.parametrize("level", ["sentence", "paragraph"])
def test_references_meet_no_reports_in_blocks(name: str, level: str) -> None:
    """An edit would cut the tags, or write behind them, and the report in the block be gone."""
    words = [f"rl.algorithm={name}", f"edit.level={level}", "token_weights.kind=tfidf"]
    build_algorithm(recipe(*words))
    with pytest.raises(UserError, match=r"^reward.blocks=think_report .*; use reward.blocks=none"):
        build_algorithm(recipe(*words, "reward.blocks=think_report"))


def test_an_algorithm_is_named_once() -> None:
    with pytest.raises(UserError, match=r"orapo\+ditpo\+orapo names orapo twice"):
        build_algorithm(recipe("rl.algorithm=orapo+ditpo+orapo", "token_weights.kind=tfidf"))


def test_an_algorithm_of_ones_own(own: str) -> None:
    algorithm = build_algorithm(recipe(f"rl.algorithm={own}:build", "rl.group=6"))
    assert isinstance(algorithm, Algorithm)
    assert (algorithm.name, algorithm.sampled) == ("mine", 6)
    assert algorithm.complete([], 4, lambda *_: torch.zeros(0))[1] == {"mine": 4.0}
    assert algorithm.advantages([], torch.ones(2)).tolist() == [2.0, 2.0]


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (":bild", r"own_\d+.py has no bild; define it as a function of the recipe"),
        (":NUMBER", "holds no function NUMBER"),
        (":forgetful", "returned a dict; return an rrgtrain.algorithms.Algorithm"),
        ("", "is unknown; .*or your own as package.module:function"),
        (":", "is unknown"),
    ],
)
def test_what_is_wrong_with_ones_own_is_told_in_one_line(own, function, told):
    with pytest.raises(UserError, match=told) as caught:
        build_algorithm(recipe(f"rl.algorithm='{own}{function}'"))
    assert "\n" not in str(caught.value) and own in str(caught.value)


def test_several_algorithms_are_built_on_each_other(own: str) -> None:
    built = build_algorithm(recipe("rl.algorithm=editgrpo+orapo", "rl.group=6"))
    assert (built.name, built.sampled) == ("editgrpo+orapo", 3)
    assert built.needs_reports and built.needs_reference and set(built.state) == {"zero_rate"}
    other_way = build_algorithm(recipe("rl.algorithm=orapo+editgrpo", "rl.group=6"))
    assert other_way.sampled == 3 and other_way.needs_reference
    with pytest.raises(UserError, match="'oraop' is unknown; did you mean orapo"):
        build_algorithm(recipe("rl.algorithm=editgrpo+oraop"))


def test_an_installed_algorithm_is_found_by_its_entry_point(own, tmp_path, monkeypatch):
    info = tmp_path / "somebodys-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: somebodys\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        f"[rrgtrain.algorithms]\ntheirs = {own}:build\nbroken = no_such_module:build\n"
    )
    assert build_algorithm(recipe("rl.algorithm=theirs", "rl.group=6")).name == "mine"
    with pytest.raises(UserError, match=r"rl.algorithm=broken: its package offers no_such_mod"):
        build_algorithm(recipe("rl.algorithm=broken"))
    with pytest.raises(UserError, match="did you mean theirs"):
        build_algorithm(recipe("rl.algorithm=their"))


def test_state_is_saved_and_that_of_another_algorithm_is_refused() -> None:
    orapo, plain = (build_algorithm(recipe(f"rl.algorithm={n}")) for n in ("orapo", "dr_grpo"))
    assert plain.state_dict() == {} and orapo.state_dict() == {"zero_rate": {}}
    orapo.load_state_dict({"zero_rate": {"a": 0.25}})
    assert orapo.state_dict() == {"zero_rate": {"a": 0.25}}
    with pytest.raises(UserError, match="keeps nothing of its algorithm, but .*keeps zero_rate"):
        orapo.load_state_dict(plain.state_dict())


@pytest.mark.parametrize("weighed", [False, True])
def test_the_divergence_is_weighed_by_the_ratio_where_a_recipe_asks(weighed: bool) -> None:
    """At a later update, where the ratio is not 1; by hand over advantages of 0."""
    cfg = recipe(
        *("rl.algorithm=dr_grpo", "rl.beta=0.3", "rl.epochs=2"),
        f"rl.kl_ratio_weight={str(weighed).lower()}",
    )
    policy, reference = (tiny_policy(dtype=torch.float64) for _ in range(2))
    groups = groups_of(policy, [["Edema.", "Clear lungs."]], edited=False)
    given = (reference, groups, torch.zeros(2), build_algorithm(cfg).loss, cfg.rl)
    before = rollout_logps(policy, *given)
    with torch.no_grad():
        for parameter in policy.model.parameters():
            parameter.mul_(1.1)
    now = rollout_logps(policy, *given)
    assert before.old is not None and before.ref is not None and now.old is not None
    x, ratio = before.ref - now.old, (now.old - before.old).exp()
    kl = (x.exp() - x - 1) * (ratio if weighed else 1.0)
    assert not torch.allclose(ratio, torch.ones_like(ratio))
    wanted = 0.3 * float(kl.sum()) / (2 * cfg.rl.max_new_tokens)
    assert accumulate(policy, *given, fixed=before).loss == pytest.approx(wanted, rel=1e-6)
    gradients(policy)


# The algorithm in the README is the one that runs, and it stays short.
README = Path(rrgtrain.algorithms.__file__).with_name("README.md").read_text(encoding="utf-8")
SAMPLED = [["Edema.", "Clear lungs."], ["The heart is enlarged and so on.", "No."]]


@pytest.fixture
def rescue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (code,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert len(code.strip().splitlines()) <= 40
    (tmp_path / "rescue.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    return "rescue:build"


def test_it_joins_weighs_and_trains(rescue: str) -> None:
    cfg = recipe(f"rl.algorithm={rescue}", "rl.beta=0")
    policy = tiny_policy()
    algorithm = build_algorithm(cfg)
    assert (algorithm.name, algorithm.sampled, algorithm.needs_reports) == ("rescue", 4, True)
    given = groups_of(policy, SAMPLED, edited=False)
    groups, counts = algorithm.complete(given, 0, policy.codec.reencode_from)
    assert counts == {"rescue/joined": 1.0}
    assert [[m.origin for m in g.members] for g in groups] == [
        ["sampled", "sampled", "reference"],
        ["sampled", "sampled"],
    ]
    assert groups[0].members[2].text == groups[0].study.report
    objective = algorithm.advantages(groups, torch.tensor([0.0, 0.6, 1.0, 0.2, 0.1]))
    assert isinstance(objective, Objective) and objective.weight is not None
    lengths = [len(m.ids) for g in groups for m in g.members]
    assert objective.weight.sum() == sum(n + min(n, 8) for n in lengths)
    update = accumulate(policy, None, groups, objective, algorithm.loss, cfg.rl)
    assert update.metrics["scored_tokens"] == sum(lengths)
    assert any(g.any() for g in gradients(policy).values())


def test_every_function_that_the_table_names_is_there() -> None:
    for module, name in re.findall(r"`(base|ditpo|orapo|editgrpo)\.(\w+)", README):
        found = __import__(f"rrgtrain.algorithms.{module}", fromlist=[name])
        assert hasattr(found, name), f"{module}.{name}"
    folder = Path(rrgtrain.algorithms.__file__).parents[1]
    for file in re.findall(r"`([\w/]+\.py)`", README):
        places = (
            folder / "algorithms" / file,
            folder / file,
            folder.parent / file,
            folder.parents[1] / file,
        )
        assert any(place.is_file() for place in places), file


def test_the_settings_that_it_names_exist() -> None:
    for setting in set(re.findall(r"`((?:rl|edit)\.\w+=\w+)`", README)):
        recipe(setting)
