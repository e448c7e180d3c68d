"""Fine-tuning as a plain loop does it; the taught text, alone or with findings in a template."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from rrgclinical import build_labeller
from rrgpolicy.model.policy import Policy, training_only
from rrgreport.run_files import read_metrics
from rrgtrain.errors import UserError
from rrgtrain.log.logs import RunLog
from rrgtrain.rewards.batch import parse_blocks
from rrgtrain.run.session import warm_up_vision
from rrgtrain.schema import PolicySettings, Recipe
from rrgtrain.state.rundir import RunDir
from rrgtrain.train import sft as sft_module
from rrgtrain.train.loader import PromptLoader
from rrgtrain.train.optim import optimizer_of
from rrgtrain.train.sft import SftResult, sft_gradients, sft_loss, train_sft
from rrgtrain.train.target_text import check_template, target_text, with_findings
from tests.rrgdata.common import studies_under
from tests.rrgpolicy.model.common import tiny_policy
from tests.rrgtrain.common import gradients, phantoms, policy_and_prompts, recipe, sft_run, studies


@pytest.fixture
def log(tmp_path: Path) -> Iterator[RunLog]:
    with RunDir.create(tmp_path / "run") as run, RunLog(run) as opened:
        yield opened


def rows(tmp_path: Path, phase: str) -> list[dict]:
    return [r for r in read_metrics(tmp_path / "run" / "metrics.jsonl") if r["phase"] == phase]


def weights(policy: Policy) -> dict[str, torch.Tensor]:
    return {n: p.detach().clone() for n, p in policy.model.named_parameters()}


class Validation:
    """Gives the scores of a list, and keeps the weights it was asked about."""

    def __init__(self, policy: Policy, scores: Sequence[float]) -> None:
        self.policy, self.scores = policy, list(scores)
        self.seen: list[dict[str, torch.Tensor]] = []

    def __call__(self) -> dict[str, float]:
        self.seen.append(weights(self.policy))
        return {"micro_f1_13": self.scores[len(self.seen) - 1]}


def trained(
    tmp_path: Path, log: RunLog, scores: Sequence[float], cfg: Recipe, **options: bool
) -> tuple[SftResult, Policy, Validation]:
    policy, prompts = policy_and_prompts()
    validate = Validation(policy, scores)
    out = tmp_path / "run" / "checkpoints" / "sft"
    result = train_sft(sft_run(policy, prompts, studies(5), cfg, validate, out, log, **options))
    return result, policy, validate


def test_a_tower_that_trains_alone_passes_over_studies_without_images(tmp_path, log):
    policy, prompts = policy_and_prompts()
    before, validate = weights(policy), Validation(policy, [0.1, 0.2])
    cfg, out = recipe("sft.token_budget=1", "sft.train=vision"), tmp_path / "sft"
    with training_only(policy, "vision"):
        result = train_sft(sft_run(policy, prompts, studies(5), cfg, validate, out, log))
        # any other loss without a gradient is a fault, and is not passed over
        with pytest.raises(RuntimeError, match="does not require grad"):
            sft_module.sft_gradients(policy, prompts.batch(studies(1)), studies(1), recipe().sft)
    assert result.steps == 4 and all(torch.equal(v, before[n]) for n, v in weights(policy).items())


def test_the_loss_is_the_cross_entropy_of_one_report_at_a_time() -> None:
    policy = tiny_policy(dtype=torch.float64)
    prompts = PromptLoader(policy, "short")
    chosen = studies(4)
    loss, tokens = sft_loss(policy, prompts.batch(chosen), chosen)
    losses = []
    for study in chosen:
        prefix, ids = prompts(study).input_ids, policy.codec.encode(study.report or "")
        assert int(ids[-1]) == policy.end_of_turn
        logits = policy.model(input_ids=torch.cat([prefix, ids])[None]).logits[0]
        scored = logits[len(prefix) - 1 : -1]
        losses.append(torch.nn.functional.cross_entropy(scored, ids, reduction="none"))
    plain = torch.cat(losses)
    assert tokens == len(plain)
    assert loss.item() == pytest.approx(plain.mean().item(), rel=1e-10)


@pytest.mark.parametrize("budget", [1, 60])
def test_a_micro_batch_counts_by_its_tokens_among_those_of_the_batch(budget: int) -> None:
    """Reports of unequal length: a mean of the micro-batches' own means would be another loss."""
    policy = tiny_policy(dtype=torch.float64)
    prompts, chosen = PromptLoader(policy, "short"), studies(4)
    found = []
    for tokens in (None, budget):
        settings = replace(recipe().sft, token_budget=tokens)
        losses, scored = sft_gradients(policy, prompts.batch(chosen), chosen, settings)
        found.append((float(sum(losses)), scored, gradients(policy)))
    (loss, tokens, wanted), (other, scored, cut) = found
    lengths = [len(policy.codec.encode(study.report or "")) for study in chosen]
    assert tokens == scored == sum(lengths) and len(set(lengths)) > 1
    assert other == pytest.approx(loss, rel=1e-10)
    assert loss == pytest.approx(
        sft_loss(policy, prompts.batch(chosen), chosen)[0].item(), rel=1e-10
    )
    assert wanted.keys() == cut.keys()
    largest = max(float(value.abs().max()) for value in wanted.values())
    for name, value in wanted.items():
        torch.testing.assert_close(cut[name], value, rtol=0, atol=1e-9 * largest)


def test_it_learns_and_logs_every_step(tmp_path: Path, log: RunLog) -> None:
    cfg = recipe("sft.steps=20", "sft.eval_every=20", "sft.lr=0.003")
    result, _, _ = trained(tmp_path, log, [0.5], cfg)
    losses = [row["loss"] for row in rows(tmp_path, "sft")]
    assert len(losses) == 20 and losses[-1] < 0.7 * losses[0]
    assert set(rows(tmp_path, "sft")[0]) >= {"loss", "lr", "grad_norm", "tokens"}
    assert result.steps == 20 and sum(result.phases.values()) == pytest.approx(result.seconds)


def test_it_stops_where_validation_stands_still(tmp_path: Path, log: RunLog) -> None:
    cfg = recipe("sft.steps=20", "sft.eval_every=2", "sft.patience=2", "sft.min_delta=0.05")
    # 0.52 and 0.54 are no progress over 0.5; 0.6 is, and clears the count
    scores = [0.5, 0.52, 0.6, 0.61, 0.62, 0.9]
    result, _, validate = trained(tmp_path, log, scores, cfg)
    assert len(validate.seen) == 5 and result.steps == 10
    assert (result.best_step, result.best_value) == (10, 0.62)


def test_a_plateau_drops_the_rate_and_goes_on_from_the_best(tmp_path: Path, log: RunLog) -> None:
    cfg = recipe(
        *("sft.steps=40", "sft.eval_every=2", "sft.patience=2", "sft.min_delta=0"),
        *("sft.lr=0.008", "sft.warmup=0", "sft.drops=2", "sft.drop_factor=0.5"),
    )
    # the best is the first; the plateaus end at steps 6, 10 and 14
    result, policy, validate = trained(tmp_path, log, [0.5, 0.4, 0.4, 0.4, 0.4, 0.4, 0.4], cfg)
    rates = [row["lr"] for row in rows(tmp_path, "sft")]
    assert rates == [0.008] * 6 + [0.004] * 4 + [0.002] * 4
    assert (result.steps, result.best_step, result.lr) == (14, 2, 0.002)
    best = validate.seen[0]
    assert all(torch.equal(p, best[n]) for n, p in policy.model.named_parameters())
    # two small steps from the best, not two more from where the plateau ended
    assert distance(validate.seen[3], best) < distance(validate.seen[2], best)


def test_a_drop_forgets_the_moments(tmp_path, log, monkeypatch):
    made = []
    make = "optimizer_of"
    monkeypatch.setattr(sft_module, make, lambda *a: made.append(optimizer_of(*a)) or made[-1])
    cfg = recipe("sft.steps=20", "sft.eval_every=2", "sft.patience=1", "sft.drops=1")
    trained(tmp_path, log, [0.5, 0.5, 0.5], cfg)
    taken = [{int(s["step"]) for s in made[i].state.values()} for i in range(2)]
    assert taken == [{4}, {2}]


def distance(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> float:
    return sum(float((one[n] - other[n]).square().sum()) for n in one) ** 0.5


def test_without_a_plateau_it_goes_to_the_end(tmp_path: Path, log: RunLog) -> None:
    cfg = recipe("sft.steps=6", "sft.eval_every=1", "sft.patience=1")
    result, _, validate = trained(tmp_path, log, [0.5] * 6, cfg, until_plateau=False)
    assert len(validate.seen) == result.steps == 6
    assert result.best_step == 1, "of equals the earlier"


def test_the_last_step_is_validated(tmp_path: Path, log: RunLog) -> None:
    result, _, validate = trained(
        tmp_path, log, [0.1, 0.2], recipe("sft.steps=3", "sft.eval_every=2")
    )
    assert len(validate.seen) == 2 and (result.best_step, result.steps) == (3, 3)
    assert [row["micro_f1_13"] for row in rows(tmp_path, "sft_val")] == [0.1, 0.2]


def test_a_limit_of_seconds_stops_after_one_validation(tmp_path: Path, log: RunLog) -> None:
    cfg = recipe("sft.steps=50", "sft.eval_every=50", "sft.wall_seconds=0")
    result, _, validate = trained(tmp_path, log, [0.1], cfg)
    assert result.steps == len(validate.seen) == 1


def test_studies_without_a_report_are_left_out(tmp_path, log, monkeypatch):
    policy, prompts = policy_and_prompts()
    bare = [replace(study, report=None) for study in studies(3)]
    out = tmp_path / "out"
    with pytest.raises(UserError, match="no training study has a report"):
        train_sft(sft_run(policy, prompts, bare, recipe(), dict, out, log))
    mixed = [*bare, *studies(1)]
    asked: list[str] = []

    def spied(self, chosen):
        asked.extend(study.report for study in chosen)
        return batch(self, chosen)

    batch = PromptLoader.batch
    monkeypatch.setattr(PromptLoader, "batch", spied)
    validate = Validation(policy, [0.1] * 4)
    train_sft(sft_run(policy, prompts, mixed, recipe("sft.steps=2"), validate, out, log))
    assert set(asked) == {studies(1)[0].report}


# The vision warm-up trains the tower and nothing else, from its seed alone.
def warmed(steps: int = 3, seed: int = 0) -> tuple[Policy, float]:
    policy = tiny_policy()
    train = studies_under("iu_xray", phantoms())["train"]
    settings = PolicySettings(warmup_steps=steps, warmup_lr=1e-3, seed=seed)
    loss = warm_up_vision(policy, PromptLoader(policy, "short"), train, settings, batch=4)
    return policy, loss


def test_only_the_tower_is_trained() -> None:
    policy, loss = warmed()
    start = dict(tiny_policy().model.named_parameters())
    changed = {n for n, p in policy.model.named_parameters() if not torch.equal(p, start[n])}
    assert changed and all("visual" in name for name in changed)
    assert math.isfinite(loss) and not policy.model.training


def test_without_images_labels_or_steps_nothing_happens() -> None:
    policy = tiny_policy()
    prompts = PromptLoader(policy, "short")
    seen = studies_under("iu_xray", phantoms())["train"]
    unlabelled = [replace(study, labels=None) for study in seen]
    for given, steps in ((studies(3), 2), (unlabelled, 2), (seen, 0), ([], 2)):
        settings = PolicySettings(warmup_steps=steps, warmup_lr=1.0)
        assert math.isnan(warm_up_vision(policy, prompts, given, settings, batch=2))
    start = dict(tiny_policy().model.named_parameters())
    assert all(torch.equal(p, start[n]) for n, p in policy.model.named_parameters())


THINK = "<think>{findings}</think><report>{report}</report>"


def test_a_template_holds_the_report_and_its_findings() -> None:
    first, second = studies(2)
    assert target_text(first) == first.report
    text = target_text(first, THINK)
    blocks = parse_blocks(text)
    assert blocks.report == first.report and blocks.format == 1.0
    assert blocks.think == "Cardiomegaly, Pleural Effusion"
    assert parse_blocks(target_text(second, THINK)).think == "No Finding"


def test_the_loss_is_of_the_template() -> None:
    policy = tiny_policy()
    given = studies(2)
    prompts = PromptLoader(policy, "short").batch(given)
    plain, tokens = sft_loss(policy, prompts, given)
    framed, more = sft_loss(policy, prompts, given, THINK)
    assert more == sum(len(policy.codec.encode(target_text(s, THINK))) for s in given) > tokens
    assert not torch.isclose(plain, framed)


@pytest.mark.parametrize(
    "template", ["{findings}", "", "{report} {labels}", "{report", "{}", "plain words"]
)
def test_a_template_that_cannot_be_taught(template: str) -> None:
    with pytest.raises(UserError, match="sft.template=") as caught:
        check_template(template)
    assert "\n" not in str(caught.value)
    check_template(THINK)


def test_findings_that_nobody_gave_are_read_in_the_report() -> None:
    labeller = build_labeller("rules")
    given = studies(3)
    bare = [replace(given[0], labels=None), given[1], replace(given[2], labels=None, report=None)]
    assert with_findings(bare, "{report}", labeller) == bare
    found = with_findings(bare, THINK, labeller)
    assert found == [given[0], given[1], bare[2]], "the rules read what the rules had labelled"
    own = replace(given[1], labels=(1,) * 14)
    assert with_findings([own], THINK, labeller) == [own], "a study keeps its own"
