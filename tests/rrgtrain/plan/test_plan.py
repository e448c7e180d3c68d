"""Test what `rrgtrain plan` prints, and what it refuses."""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path

import pytest

from rrgtrain.cli import main
from rrgtrain.config import load_config
from rrgtrain.plan import (
    CHEAPER,
    Host,
    Setup,
    machine_of,
    misfits,
    plan_stage,
    require_fit,
)
from rrgtrain.plan.machine import MACHINES, Rates, source_of
from rrgtrain.schema import LogSettings, Recipe
from tests.docs.blocks import blocks_of, commands
from tests.rrgtrain.common import recipe

VLLM = ["paper/editgrpo", "rollout.engine=vllm", "rollout.memory=0.99"]


def planned(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    status = main(["plan", *words])
    out, err = capsys.readouterr()
    return status, out, err


def test_it_prints_a_table_without_weights_or_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = planned(capsys, "paper/editgrpo", "--gpus", "8", "--gpu", "h100")
    assert status == 0
    for wanted in ("3,754.6 M parameters", "moments", "reference policy", "checkpoint's staging"):
        assert wanted in out
    models = next(line for line in out.splitlines() if "reward models (chexbert" in line)
    assert models.endswith("unmeasured")
    assert "seconds of a step (estimated)" in out


def test_the_page_prints_what_the_command_prints(capsys: pytest.CaptureFixture[str]) -> None:
    page = Path(__file__).parents[3] / "docs" / "plan.md"
    command, printed = blocks_of(page)[:2]
    (words,) = commands(command.text)
    assert planned(capsys, *words[2:])[1] == printed.text


def test_json_says_the_same_with_the_source_of_every_rate(
    capsys: pytest.CaptureFixture[str],
) -> None:
    status, out, _ = planned(capsys, "demo", "--gpu", "cpu", "--json", "--stage", "sft")
    told = json.loads(out)
    assert status == 0 and told["policy"] == "tiny"
    assert told["rates"]["forward_share"] == {"value": 0.5, "source": "unmeasured"}
    assert "bench/results" in told["rates"]["update_share"]["source"]
    parts = {part["name"]: part["bytes"] for part in told["stages"][0]["device"]}
    assert parts["moments"]["update"] == 2 * parts["gradients"]["update"]


REFUSE = "plan.refuse=true"


def test_an_estimate_warns_and_refuses_only_who_asks_for_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for words, status in (([], 0), ([REFUSE], 2)):
        done, out, err = planned(capsys, "paper/editgrpo", "--gpu", "l40s", *words)
        assert done == status and "memory of each GPU" in out, "the table comes all the same"
        assert err.count("\n") == 1 and "more than its 45.0 GiB" in err
        assert ("warning: " in err and REFUSE in err) == (status == 0)


def test_what_costs_the_user_least_is_named_first(capsys: pytest.CaptureFixture[str]) -> None:
    """Speed, then rounding, then the experiment; each with what is needed then, less each time."""
    _, _, err = planned(capsys, "paper/editgrpo", "--gpu", "l40s", "policy.freeze_vision=false")
    told = err.partition("; change ")[2].partition("; this is")[0]
    named = re.findall(r"([a-z0-9_.]+)=(\S+) \(([\d.]+) GiB\)", told)
    order = [key for key, _ in CHEAPER]
    places = [order.index(key) for key, _, _ in named]
    needs = [float(need) for *_, need in named]
    assert len(named) > 2 and places == sorted(places), told
    assert needs == sorted(needs, reverse=True) and "rl.optimizer" in dict.fromkeys(
        key for key, _, _ in named
    )
    # what is said is so, and a GPU count that is named suffices
    gpus = re.search(r", or take (\d+) GPUs", told)
    words = [f"{key}={value}" for key, value, _ in named[:2]]
    given = "policy.freeze_vision=false"
    setup = Setup.of(load_config(Recipe, "paper/editgrpo", [given, *words]), MACHINES["l40s"])
    assert plan_stage(setup, "rl").peak[1] / 2**30 == pytest.approx(needs[1], abs=0.06)
    assert gpus is not None
    status, _, err = planned(capsys, "paper/editgrpo", "--gpu", "l40s", given, "--gpus", gpus[1])
    assert (status, err) == (0, "")


@pytest.mark.parametrize(
    ("words", "gpus", "useful"),
    [
        (["paper/mrg_r1"], 8, "4 GPUs are of use; start 4, or raise rl.prompts"),
        (["paper/editgrpo", "rl.minibatch=2"], 4, "2 GPUs are of use; start 2, or raise rl.mini"),
        (
            ["paper/editgrpo_sft", "sft.batch=3"],
            8,
            "3 GPUs are of use; start 3, or raise sft.batch",
        ),
        (["paper/mrg_r1"], 4, ""),
        (["paper/editgrpo"], 8, ""),
    ],
)
def test_idle_gpus_are_told(
    words: list[str], gpus: int, useful: str, capsys: pytest.CaptureFixture[str]
) -> None:
    status, _, err = planned(capsys, *words, "--gpus", str(gpus))
    assert status == 0 and (useful in err if useful else err == "")


def test_tokens_are_those_of_the_prompts_there_are() -> None:
    """However many ranks share them, and those that have none."""
    for words in (["rl.prompts=4"], ["rl.prompts=6", "rl.minibatch=3"]):
        plans = [plan_stage(Setup.of(recipe(*words), MACHINES["h100"], n), "rl") for n in (1, 4, 8)]
        for name in ("prompt", "reports", "sampled", "update"):
            assert len({plan.tokens[name] for plan in plans}) == 1, name
        records = [
            [p.bytes for p in plan.disk if p.name.endswith("step records")] for plan in plans
        ]
        assert records[0] and records[0] == records[1] == records[2]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--gpu", "h10"], "did you mean h100? use h100, h200, a100-80, a100-40, l40s, a10, cpu"),
        (["--gpus", "0"], "at least one"),
        (["--gpu-memory", "-3"], "give the memory of one GPU in GiB"),
        (["--disk", "0"], "--disk 0; give it in GiB"),
        (["rl.grup=3"], "did you mean rl.group"),
    ],
)
def test_bad_words(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, _, err = planned(capsys, "demo", *words)
    assert status == 2 and message in err and err.count("\n") == 1


def test_more_gpus_divide_the_state_and_the_work() -> None:
    cfg = recipe("rl.prompts=64", "rl.beta=0.01", "policy.dtype=bfloat16")
    one, eight = (plan_stage(Setup.of(cfg, MACHINES["h100"], count), "rl") for count in (1, 8))
    parts = [{p.name: p.bytes for p in plan.device} for plan in (one, eight)]
    for name in ("weights", "moments", "gradients"):
        ratio = parts[0][name]["update"] / parts[1][name]["update"]
        assert ratio == pytest.approx(8, rel=0.05), name
    assert one.seconds["update"] == pytest.approx(8 * eight.seconds["update"])
    assert one.tokens["update"] == eight.tokens["update"]


def parts_of(*words: str) -> tuple[dict[str, dict[str, int]], dict[str, float]]:
    setup = Setup.of(recipe("policy.dtype=bfloat16", *words), MACHINES["h100"])
    plan = plan_stage(setup, "rl")
    return {part.name: part.bytes for part in plan.device}, plan.seconds


def test_the_ratio_of_orapo_takes_nothing() -> None:
    words = ["rl.algorithm=orapo", "policy.gradient_checkpointing=true", "policy.width=1024"]
    assert parts_of(*words) == parts_of(*words, "oracle.log_ratio=false")


def test_several_updates_take_their_passes() -> None:
    _, once = parts_of("rl.beta=0", "rl.prompts=8")
    _, twice = parts_of("rl.beta=0", "rl.prompts=8", "rl.epochs=2")
    _, halves = parts_of("rl.beta=0", "rl.prompts=8", "rl.minibatch=4")
    old = halves["update"] - once["update"]
    assert 0 < old < once["update"], "log-probabilities at rollout, without backward"
    assert twice["update"] == pytest.approx(2 * once["update"] + old)


@pytest.mark.parametrize(
    ("words", "model"),
    [
        (["reward.terms={radgraph_simple: 1.0}"], "radgraph"),
        (["rl.algorithm=ditpo", "token_weights.labeller=chexbert"], "chexbert"),
        (["rl.algorithm=editgrpo", "edit.extractor=ratescore"], "ratescore"),
    ],
)
def test_models_that_read_reports_are_counted(words: list[str], model: str) -> None:
    assert any(name == f"reward models ({model})" for name in parts_of(*words)[0])
    green = parts_of("reward.terms={green: 1.0}", "rl.algorithm=grpo")[0]
    assert not any("reward models" in name for name in green), "it is behind an endpoint"


def test_each_rate_says_where_it_is_from() -> None:
    assert source_of("read_share") == "unmeasured" and "measured" in source_of("image_seconds")
    for rate in vars(Rates()):
        assert source_of(rate)
    assert machine_of("h100", 40.0).memory == 40 * 2**30


def test_a_full_disk_is_refused_and_a_narrow_one_warned_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cfg = recipe(REFUSE, "rl.steps=50")
    setup = Setup.of(cfg, machine_of("h100"))
    plan = plan_stage(setup, "rl")
    need = plan.total("disk", "run")
    (refused,) = misfits(setup, plan, Host(disk=need // 2))
    assert refused.refused and "checkpoint.keep" in refused.line and "the disk" in refused.line
    (near,) = misfits(setup, plan, Host(disk=int(need * 1.05)))
    assert not near.refused and "5% to spare" in near.line
    (near,) = misfits(setup, plan, Host(disk=int(need / 1.05)))
    assert not near.refused and "5% too much" in near.line
    assert misfits(setup, plan, Host(disk=need * 2)) == []
    with pytest.warns(UserWarning, match="to spare"):
        require_fit(setup, plan, Host(disk=int(need * 1.05)))


@pytest.mark.parametrize(
    ("gpu", "words", "setting"),
    [
        ("l40s", ["paper/editgrpo"], "rl.optimizer=adamw_8bit"),
        ("a100-40", ["paper/mrg_r1", "rl.prompts=256", "rl.group=16"], "rl.prompts"),
        (
            "a100-80",
            ["paper/mrg_r1", "rl.token_budget=2000000", "rl.prompts=4000", "rl.group=2"],
            "rl.token_budget",
        ),
        (
            "h100",
            VLLM,
            "rollout.memory",
        ),
        ("a100-40", ["paper/mrg_r1", "eval.batch=5000"], "eval.batch"),
    ],
)
def test_the_line_names_the_setting_that_is_too_large(
    gpu: str, words: list[str], setting: str, capsys: pytest.CaptureFixture[str]
) -> None:
    status, _, err = planned(capsys, *words, "--gpu", gpu, REFUSE)
    assert status == 2 and setting in err.partition("; change ")[2], err


def test_images_are_those_that_the_settings_of_the_data_leave() -> None:
    cases = {
        ("paper/deer",): 1,
        ("paper/deer_sft",): 1,
        ("paper/editgrpo",): 3,
        ("paper/editgrpo", "data.max_images=2"): 2,
        ("paper/editgrpo", "data.prior=none"): 2,
        ("paper/editgrpo", "data.prior=none", "data.max_images=1"): 1,
        ("paper/editgrpo", "data.images=frontal"): 2,
        ("paper/editgrpo", "data.images=frontal", "data.max_images=1"): 1,
        ("paper/editgrpo", "data.images=none"): 0,
        ("paper/editgrpo", "data.each_image=true"): 1,
        ("paper/editgrpo_iu_xray", "data.prior=last"): 2,
        ("editgrpo",): 1,
        ("editgrpo_prior",): 2,
        ("editgrpo_prior", "data.phantom.lateral=0.6"): 3,
        ("editgrpo_prior", "data.phantom.lateral=0.6", "data.images=frontal"): 2,
        ("editgrpo_prior", "data.phantom.lateral=0.6", "data.max_images=1"): 1,
    }
    found = {}
    for name, *words in cases:
        setup = Setup.of(load_config(Recipe, name, words), MACHINES["h100"])
        found[name, *words] = plan_stage(setup, "rl").work.images
    assert found == cases


def test_what_is_kept_of_the_data_is_no_more_than_there_is() -> None:
    def bytes_of(place: str, part: str, *words: str) -> int:
        setup = Setup.of(load_config(Recipe, "paper/editgrpo", [*words]), MACHINES["h100"])
        parts = getattr(plan_stage(setup, "rl"), place)
        return max((max(p.bytes.values()) for p in parts if p.name == part), default=0)

    assert bytes_of("host", "prompt cache") > 0
    assert bytes_of("host", "prompt cache", "data.images=none") == 0
    for place, part in (("device", "image embeddings"), ("disk", "predictions and logs")):
        assert 0 < bytes_of(place, part, "data.limit=9") < bytes_of(place, part), part


def test_an_adapter_fits_gpus_of_24_gb() -> None:
    """OraPO's four A10, and one for OraPO; an A10 shows 22.5 GiB."""
    assert MACHINES["a10"].memory / 2**30 == pytest.approx(22.5, abs=0.02)
    wrong = []
    for name, gpus in (("orapo", 1), ("orapo", 4), ("editgrpo", 4), ("deer", 4), ("dr_grpo", 4)):
        settings = load_config(Recipe, f"paper/{name}+paper/lora_24gb", [])
        setup = Setup.of(settings, MACHINES["a10"], gpus)
        wrong += [m.line for m in misfits(setup, plan_stage(setup, "rl"), Host())]
    assert not wrong


def test_a_step_that_mostly_samples_names_the_engine(capsys: pytest.CaptureFixture[str]) -> None:
    out = planned(capsys, "paper/editgrpo", "--gpus", "8")[1]
    share, faster = re.findall(
        r"sampling is (\d+)% of the step; rollout.engine=vllm makes it (\S+) s", out
    )[0]
    served = planned(capsys, "paper/editgrpo", "--gpus", "8", "rollout.engine=vllm")[1]
    assert int(share) > 80 and f"a step {faster} s" in served and "sampling is" not in served
    assert "sampling is" not in planned(capsys, "paper/editgrpo_sft")[1]
    assert "sampling is" not in planned(capsys, "demo", "--gpu", "cpu")[1]


def test_records_are_thinned_and_counted(tmp_path: Path) -> None:
    for every, after, steps in itertools.product((0, 1, 3), (None, 1, 7, 20), (1, 8, 21, 250)):
        log = LogSettings(records=every, thin_after=after)
        kept = [step for step in range(steps) if log.keeps(step)]
        assert log.kept(steps) == len(kept), (every, after, steps)
    log = LogSettings(records=1, thin_after=10)
    assert [s for s in range(1200) if log.keeps(s)] == [
        *range(10),
        *range(10, 100, 10),
        *range(100, 1000, 100),
        1000,
    ]
    assert LogSettings().kept(10**9) < 20_000
    for words, wanted in (
        ([], "1,400 step records, thinned from step 1,000"),
        (["log.thin_after=5000"], "5,000 step records"),
        (["log.thin_after=null"], "5,000 step records"),
    ):
        setup = Setup.of(recipe("rl.steps=5000", *words), MACHINES["h100"])
        assert wanted in [part.name for part in plan_stage(setup, "rl").disk]
