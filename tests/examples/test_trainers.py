"""The examples that put this library into other trainers and loops: each runs and learns."""

from __future__ import annotations

import asyncio
import base64
import io
import re
import runpy
import shlex
import signal
import sys
import tomllib
import warnings
from collections.abc import Iterator
from dataclasses import make_dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from PIL import Image
from torch.nn.parallel import DistributedDataParallel

from rrgdata import load_studies
from rrgdata.phantom import write_phantom
from rrgkern import loss_scale, policy_loss, token_logps
from rrgtrain.config import load_config
from rrgtrain.errors import RewardError
from rrgtrain.schema import Recipe
from tests.examples.contracts import (
    CONTRACTS,
    EASYR1,
    EXAMPLES,
    MS_SWIFT,
    OPENRLHF,
    PRIME_RL,
    ROOT,
    load,
    record_gradients,
    swift_rewards,
)
from tests.rrgtrain.runs import TINY_RUN

REPORTS = ["Small left pleural effusion.", "Clear lungs.", "Right pneumothorax. Edema."]
REFERENCES = ["Small left pleural effusion.", "Right pneumothorax.", "Right pneumothorax."]
# label_f1 of each report beside its reference, by hand: the same labels, none of them, one of two
LABEL_F1 = [1.0, 0.0, 2 / 3]


def test_examples_are_short_and_the_page_names_each_with_its_commit() -> None:
    page = (ROOT / "docs" / "other-trainers.md").read_text("utf-8")
    own = page.partition("## Bring it to your trainer")[2].splitlines()
    rows = {row.split("|")[1].strip(): row for row in own if row.startswith("|")}
    wrong = []
    for path in EXAMPLES.glob("*.py"):
        if len(path.read_text("utf-8").splitlines()) >= 80:
            wrong.append(f"{path.name} has 80 lines or more")
        if f"examples/{path.name}" not in page:
            wrong.append(f"the page has no {path.name}")
    for name, contract in CONTRACTS.items():
        row = next((row for row in rows.values() if name in row), "")
        if contract.commit[:8] not in row:
            wrong.append(f"{name}: no row with {contract.commit[:8]}")
    assert not wrong, wrong


def test_what_trl_is_given_are_prompts_images_and_references(tmp_path) -> None:
    """`make parity` trains it."""
    example = load("trl_rrg")
    recipe = load_config(Recipe, None, example.SETTINGS)
    assert example.members(recipe) == "num_generations=8: 4 sampled, at most 4 edits of them"
    write_phantom(example.PHANTOMS, tmp_path)
    studies = load_studies("iu_xray", tmp_path).studies["train"]
    row = example.row(studies[0])
    (turn,), pictures = row["prompt"], row["images"]
    assert len(studies) == 16 and len(pictures) == len(studies[0].images) >= 1
    assert pictures[0].mode == "RGB" and turn["role"] == "user" and turn["content"].strip()
    assert row["report"] == studies[0].report and row["id"] == studies[0].id


def test_prime_rl_calls_the_loss_of_its_toml() -> None:
    module = load("prime_rl_loss")
    toml = re.search(r"\n    (\[trainer\.loss\]\n.*?)\n\n`", module.__doc__, re.DOTALL)[1]
    settings = tomllib.loads(re.sub(r"^ {4}", "", toml, flags=re.MULTILINE))["trainer"]["loss"]
    file, function = settings["import_path"].split(".")
    assert (settings["type"], file) == ("custom", "prime_rl_loss")
    custom_fn = getattr(module, function)
    # frozen, and of these fields alone: to read another is an AttributeError, as in the trainer
    kind = make_dataclass("LossInputs", PRIME_RL.fields["LossInputs"], frozen=True, slots=True)

    generator = torch.Generator().manual_seed(0)
    logps, old, advantages, weights = torch.randn(4, 7, dtype=torch.float64, generator=generator)
    mask = torch.tensor([False, False, True, True, True, False, True])
    wrong = []
    for loss_weights in (None, weights.abs()):
        ours, theirs = (logps.clone().requires_grad_() for _ in range(2))
        poisoned = old.masked_fill(~mask, torch.nan)
        inputs = kind(
            trainer_logprobs=ours, inference_logprobs=poisoned, ref_logprobs=None,
            advantages=advantages, loss_mask=mask, loss_weights=loss_weights,
        )  # fmt: skip
        out = custom_fn(inputs, **settings["kwargs"])
        assert set(PRIME_RL.fields["LossOutputs"]) <= set(dir(out))
        ratio = (theirs - old).exp()
        gain = torch.minimum(ratio * advantages, ratio.clamp(0.8, 1.28) * advantages)
        loss = -((1.0 if loss_weights is None else loss_weights) * gain)[mask].sum()
        gradients = [torch.autograd.grad(*pair)[0] for pair in ((out.loss, ours), (loss, theirs))]
        if not torch.allclose(out.loss, loss) or not torch.allclose(*gradients):
            wrong.append((loss_weights, out.loss, loss, *gradients))
        wrong += [key for key, value in out.metrics.items() if value.ndim or value.requires_grad]
    assert not wrong, wrong


def test_openrlhf_without_its_label_key_scores_nothing(capsys) -> None:
    """Its data sets hand "" over where --data.label_key is left out: no reference, not an empty."""
    module = load("openrlhf_reward", known_as="")
    with pytest.raises(ValueError, match="^a label is empty; wanted .*--data.label_key report"):
        module.reward_func(["pEdema."], ["p"], [""])
    assert "goes on without it: a label is empty" in capsys.readouterr().err


def test_easyr1_scores_a_batch_with_the_terms_of_its_configuration() -> None:
    module = load("easyr1_reward", known_as="custom_reward_fn")
    assert module.REWARD_TYPE == "batch"
    rows = [
        dict(zip(EASYR1.fields["RewardInput"], (report, 5, reference), strict=True))
        for report, reference in zip(REPORTS, REFERENCES, strict=True)
    ]
    for kwargs, weight in (({}, 1.0), ({"label_f1": 2.0}, 2.0)):
        scores = partial(module.compute_score, **kwargs)(rows)
        assert len({tuple(score) for score in scores}) == 1, "metrics are lists of one length"
        assert [score["label_f1"] for score in scores] == pytest.approx(LABEL_F1)
        overall = [weight * s["label_f1"] + (0.0 if kwargs else s["match"]) for s in scores]
        assert [score["overall"] for score in scores] == pytest.approx(overall)
    assert partial(module.compute_score)([]) == []


def test_openrlhf_calls_from_many_threads_with_one_report_each(capsys) -> None:
    module = load("openrlhf_reward", known_as="")
    head = "<|im_start|>user\n{}Report.<|im_end|>\n<|im_start|>assistant\n"
    prompt, expanded = head.format("<|image_pad|>"), head.format("<|image_pad|>" * 9)
    queries = [f"{expanded}{report}<|im_end|>" for report in REPORTS]
    queries[1] = f"{prompt}{REPORTS[1]}"  # text alone, cut at the longest length

    async def as_the_executor_does():
        calls = (
            asyncio.to_thread(module.reward_func, [query], [prompt], [label])
            for query, label in zip(queries, REFERENCES, strict=True)
        )
        return await asyncio.gather(*calls)

    answers = asyncio.run(as_the_executor_does())
    for answer, label_f1 in zip(answers, LABEL_F1, strict=True):
        assert set(answer) == set(OPENRLHF.fields["rewards_info"])
        logged = {k: v.flatten()[0].item() for k, v in answer["extra_logs"].items()}
        assert logged["label_f1"] == pytest.approx(label_f1)
        total = torch.tensor([answer["rewards"]])
        assert total.tolist() == pytest.approx([sum(logged.values())])
        assert torch.equal(answer["scores"], answer["rewards"])
    # OpenRLHF only logs an exception: the cause must be seen
    with pytest.raises(ValueError, match="set TURN"):
        module.reward_func(["Report: clear."], ["Say."], ["Clear."])
    assert "reward failed, and OpenRLHF goes on without it: no" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("turn", "end"),
    [
        ("<|im_start|>assistant\n", "<|im_end|>"),
        ("<start_of_turn>model\n", "<end_of_turn>\n<eos>"),
        ("<|turn>model\n", "<turn|>"),
        (" [/INST]", "</s><pad><pad>"),
        ("<|start_header_id|>assistant<|end_header_id|>\n\n", "<|eot_id|>"),
    ],
)
def test_openrlhf_scores_no_mark_of_a_template(turn: str, end: str) -> None:
    module = load("openrlhf_reward", known_as="")
    module.TURN = turn
    report = "Nodule <5 mm, mass >3 mm."
    for head in ("ask ", "ask <image><image> "):
        assert module.report_of(f"{head}{turn}{report}{end}", f"ask {turn}") == report


def test_ms_swift_finds_the_orm_and_is_told_of_liger(monkeypatch) -> None:
    for name, stub in swift_rewards().items():
        monkeypatch.setitem(sys.modules, name, stub)
    load("ms_swift_reward")
    kind = sys.modules["swift.rewards"].orms["rrgkern"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        reward = kind(args=SimpleNamespace(use_liger_kernel=False))
    columns = dict(zip(MS_SWIFT.fields["columns"], (SimpleNamespace(), REFERENCES), strict=True))
    rewards = reward(REPORTS, **columns)
    assert torch.tensor(rewards).shape == (3,) and rewards[0] > rewards[2] > rewards[1] == 0.0
    with pytest.raises(ValueError, match="no column 'report', it has answer, trainer_state"):
        reward(REPORTS, answer=REFERENCES, trainer_state=None)
    with pytest.warns(UserWarning, match="averages token advantages"):
        kind(args=SimpleNamespace(use_liger_kernel=True))


def test_a_reward_that_fails_is_no_reward(monkeypatch) -> None:
    for name, stub in swift_rewards().items():
        monkeypatch.setitem(sys.modules, name, stub)
    swift, easyr1, openrlhf = map(load, ("ms_swift_reward", "easyr1_reward", "openrlhf_reward"))
    monkeypatch.setattr("rrgtrain.rewards.batch.RewardBatch.of_references", None)
    row = {"response": "Edema.", "response_length": 1, "ground_truth": "Edema."}
    for call in (
        lambda: swift.ReportReward()(["Edema."], report=["Edema."]),
        lambda: easyr1.compute_score([row]),
        lambda: openrlhf.reward_func(["pEdema."], ["p"], ["Edema."]),
    ):
        with pytest.raises(RewardError, match="failed"):
            call()


@pytest.fixture
def _on_path(monkeypatch) -> None:
    """As `python examples/FILE.py` has it."""
    monkeypatch.syspath_prepend(str(EXAMPLES))


@pytest.mark.usefixtures("_on_path")
def test_the_accelerate_loop_updates_its_policy(monkeypatch) -> None:
    gradients = record_gradients(monkeypatch)
    with torch.random.fork_rng():
        means = runpy.run_path(str(EXAMPLES / "accelerate_loop.py"))["main"](2)
    assert len(means) == len(gradients) == 2
    assert all(0.0 < mean < 1.0 for mean in means) and min(gradients) > 0.0


@pytest.mark.usefixtures("_on_path")
def test_the_wrapped_loss_has_the_gradients_of_plain_forwards(tmp_path) -> None:
    parts = runpy.run_path(str(EXAMPLES / "tiny_grpo.py"))
    prompts = [torch.tensor([2, 3]), torch.tensor([4])]
    reports = [[torch.tensor([5, 6, 1]), torch.tensor([7])], [torch.tensor([8, 1])]]
    advantages = torch.tensor([1.0, -0.5, 2.0])
    with torch.random.fork_rng():
        torch.manual_seed(0)
        module = parts["Loss"]()
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{tmp_path}/meet", rank=0, world_size=1
    )
    try:
        wrapped = DistributedDataParallel(module)
        loss = wrapped(prompts, reports, advantages)
        loss.backward()
    finally:
        torch.distributed.destroy_process_group()
    shared = {name: p.grad.clone() for name, p in module.named_parameters()}
    module.zero_grad()
    logps = []
    for prompt, group in zip(prompts, reports, strict=True):
        for report in group:
            logits = module.model(torch.cat([prompt, report])[None]).logits[0]
            logps.append(token_logps(logits[len(prompt) - 1 : -1], report).logps)
    offsets = torch.tensor([0, 3, 4, 6])
    scale = loss_scale("dr_grpo", offsets, max_length=parts["LONGEST"])
    plain = policy_loss(torch.cat(logps), advantages, offsets, scale=scale, spec=parts["SPEC"]).loss
    plain.backward()
    torch.testing.assert_close(loss, plain)
    for name, parameter in module.named_parameters():
        torch.testing.assert_close(shared[name], parameter.grad, rtol=1e-4, atol=1e-6, msg=name)


# The notebook of the first hour runs from top to bottom, and ends with a picture.
NO_NBCLIENT = "no nbclient: pip install -c constraints.txt -e '.[test]'"
nbformat = pytest.importorskip("nbformat", reason=NO_NBCLIENT)
nbclient = pytest.importorskip("nbclient", reason=NO_NBCLIENT)
NOTEBOOK = ROOT / "examples" / "first_hour.ipynb"


def read() -> Any:
    return nbformat.read(NOTEBOOK, as_version=4)


def test_its_outputs_are_saved_and_name_no_place() -> None:
    outputs = [cell.outputs for cell in read().cells if cell.cell_type == "code"]
    assert all(outputs) and "image/png" in str(outputs[-1]) and "site-packages" not in str(outputs)


def test_the_pages_that_it_names_are_there() -> None:
    pages = set(re.findall(r"docs/[\w/.-]+\.md|docs/[\w-]+/", NOTEBOOK.read_text("utf-8")))
    assert pages and all((ROOT / page).exists() for page in pages), pages


@pytest.fixture
def _interrupts() -> Iterator[None]:
    """nbclient leaves Python's own handler of SIGINT, whichever stood before."""
    before = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.slow
@pytest.mark.usefixtures("_interrupts")
def test_it_runs_and_ends_with_a_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FIRST_HOUR", shlex.join(TINY_RUN))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}:{ROOT / 'python'}")
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    notebook = nbclient.NotebookClient(read(), timeout=600, kernel_name="python3").execute()
    printed, saved = (
        ["".join(o.get("text", "") for o in cell.outputs) for cell in n.cells if "outputs" in cell]
        for n in (notebook, read())
    )
    assert all(was in now for was, now in zip(saved[:3], printed, strict=False))
    assert "('a', 'No pleural effusion.', 'Small left pleural effusion.')" in printed[2]
    assert re.search(r"loss [+-]0\.\d+, gradient of the head 0*[1-9.]", printed[3])
    assert "EditGRPO" in printed[5] and "no number here is a clinical result" in printed[5]
    (page,) = (o.data["text/html"] for o in notebook.cells[-2].outputs)
    (picture,) = re.findall(r"base64,([\w+/=]+)", page)
    assert Image.open(io.BytesIO(base64.b64decode(picture))).size[0] >= 32
    assert all(name in page for name in ("reference", "SFT", "EditGRPO", "no clinical result"))
