"""Does reinforcement learning help where supervised fine-tuning no longer does?

    python -m experiments.learning                    # three seeds, two workers, < 1 hour

Per seed (which changes phantoms, weights, order and draws): SFT to its validation plateau, then
from that one checkpoint EditGRPO, which is compared with (i) that SFT, (ii) SFT continued for
EditGRPO's wall time at the learning rate it had come down to, (iii) Dr. GRPO with as many sampled
rollouts. Told beside them, and not part of the verdict: SFT for the same time on only the studies
that RL sees. Each system is its best validation checkpoint, on held-out studies. A job whose result
file exists is not run again, so the command resumes where it stopped, and refuses results of other
settings or versions. A comparison holds when EditGRPO is above in every seed, in the bootstrap of
seeds and studies, and in Student's interval over seeds; the command exits 1 unless all three do.

    python -m experiments.learning --show experiments/results/learning.json    # recorded results
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path

import numpy as np

from experiments.jobs.job import settings_and_versions, told_changes
from experiments.measures import label_measures
from experiments.seeds import (
    FAILS,
    HOLDS,
    NOT_JUDGED,
    UNDECIDED,
    difference,
    judge_above,
    over_seeds,
)
from rrgreport.wording import sentences, unheard_share
from rrgtrain.errors import UserError

NEEDS = {
    "sft": [],
    "editgrpo": ["sft"],
    "dr_grpo": ["sft"],
    "sft_continued": ["sft", "editgrpo"],
    "sft_on_chosen": ["sft", "editgrpo"],
}
JUDGED = ("sft", "sft_continued", "dr_grpo")
GAIN = 0.05


def run_job(name: str, seed: int, out: Path, recipe: str, overrides: list[str]) -> None:
    """One job of one seed; writes `<name>.json` with the test reports and what they cost."""
    from rrgclinical.common.files import atomic_write
    from rrgtrain.config import load_config
    from rrgtrain.run.stages import Stages
    from rrgtrain.schema import Recipe
    from rrgtrain.train.rl import RlResult
    from rrgtrain.train.sft import SftResult

    home = out / f"seed{seed}"
    settings = [f"seed={seed}", f"policy.seed={seed}", f"data.phantom.seed={seed}"]
    settings += [f"data.root={home / 'data'}", *overrides]
    if name == "dr_grpo":
        # what EditGRPO samples, without the edits: half of its group
        settings += ["rl.algorithm=dr_grpo", f"rl.group={sampled_by_editgrpo(recipe, overrides)}"]
    if name in ("sft_continued", "sft_on_chosen"):
        spent = json.loads((home / "editgrpo.json").read_text())["seconds"]
        rate = json.loads((home / "sft.json").read_text())["lr"]
        settings += [f"sft.wall_seconds={spent}", "sft.steps=1000000", f"sft.lr={rate}"]
    if name != "sft":
        settings += [f"policy.path={home / 'sft' / 'checkpoints' / 'sft'}"]
    config = load_config(Recipe, recipe, settings)
    partial = home / f"{name}.partial"
    shutil.rmtree(partial, ignore_errors=True)
    rl = name in ("editgrpo", "dr_grpo")
    # a session that is opened for RL narrows the training studies as `data` says
    narrowed = rl or name == "sft_on_chosen"
    with Stages.open(config, partial, sft=not rl, rl=narrowed) as stages:
        if name == "sft_on_chosen":
            stages.session.studies["train"] = stages.session.chosen
        if rl:
            done: RlResult | SftResult = stages.rl()
        else:
            done = stages.sft(until_plateau=name == "sft")
        session = stages.session
        evaluation = session.evaluate(session.split("test"), description=f"test {name}")
    result = {
        "identity": identity(recipe, overrides),
        "seconds": done.seconds,
        "steps": done.steps,
        "best_step": done.best_step,
        "best_val_f1": done.best_value,
        "lr": done.lr if isinstance(done, SftResult) else config.rl.lr,
        "rollouts": done.rollouts,
        "test": evaluation.metrics(),
        "predicted": evaluation.predicted.tolist(),
        "truth": evaluation.truth.tolist(),
        "reports": evaluation.reports,
    }
    shutil.rmtree(home / name, ignore_errors=True)
    partial.rename(home / name)
    atomic_write(home / f"{name}.json", json.dumps(result))


def identity(recipe: str, overrides: list[str]) -> dict:
    """Collect what every job's result depends on beside its name and seed."""
    from rrgtrain.config import load_config
    from rrgtrain.schema import Recipe

    return settings_and_versions(load_config(Recipe, recipe, overrides))


def sampled_by_editgrpo(recipe: str, overrides: list[str]) -> int:
    """Count the reports of a group that EditGRPO samples."""
    from rrgtrain.config import load_config
    from rrgtrain.schema import Recipe

    return load_config(Recipe, recipe, overrides).rl.group // 2


def schedule(args: argparse.Namespace) -> None:
    """Runs every missing job, `--workers` at a time, one thread each.

    Ends with a line where a job failed, or its result is of other settings or versions.
    """
    waiting = [(seed, name) for name in NEEDS for seed in args.seeds]
    now = identity(args.recipe, args.overrides)
    running: dict[Future[None], tuple[int, str]] = {}

    def finished(seed: int, name: str) -> bool:
        return (args.out / f"seed{seed}" / f"{name}.json").exists()

    def launch(seed: int, name: str) -> None:
        home = args.out / f"seed{seed}"
        home.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "experiments.learning", "--job", name]
        command += ["--seeds", str(seed), "--out", str(args.out), "--recipe", args.recipe]
        command += ["--set", *args.overrides] if args.overrides else []
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        with (home / f"{name}.log").open("w") as log:
            status = subprocess.run(command, env=environment, stdout=log, stderr=log, check=False)
        if status.returncode:
            tail = (home / f"{name}.log").read_text().strip().splitlines()[-1:]
            raise SystemExit(
                f"{name} of seed {seed} failed: {' '.join(tail)} (see {home}/{name}.log)"
            )

    for seed, name in filter(lambda job: finished(*job), waiting):
        result = args.out / f"seed{seed}" / f"{name}.json"
        # a result that does not say its settings is of an older version
        if why := told_changes(json.loads(result.read_text()).get("identity", {}), now):
            raise SystemExit(
                f"{result} is of other settings or versions ({why}); name another --out, or "
                "delete it with all that starts from it"
            )
    waiting = [job for job in waiting if not finished(*job)]
    with ThreadPoolExecutor(args.workers) as pool:
        while waiting or running:
            ready = [j for j in waiting if all(finished(j[0], n) for n in NEEDS[j[1]])]
            for seed, name in ready[: args.workers - len(running)]:
                waiting.remove((seed, name))
                running[pool.submit(launch, seed, name)] = (seed, name)
                print(f"{time.strftime('%H:%M:%S')} start {name} seed {seed}", flush=True)
            done, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                seed, name = running.pop(future)
                future.result()
                print(f"{time.strftime('%H:%M:%S')} done  {name} seed {seed}", flush=True)


def told_in_training(out: Path, seed: int) -> set[str]:
    """Every sentence of a seed's training reports."""
    studies = json.loads((out / f"seed{seed}" / "data" / "annotation.json").read_text())["train"]
    return {sentence for study in studies for sentence in sentences(study["report"])}


def verdict(out: Path, seeds: list[int]) -> dict:
    """Make the table, and what EditGRPO has over each system, with its interval.

    `unheard` is the share of a system's sentences that no training report has: no label says when
    language falls apart.
    """
    results = {
        name: [json.loads((out / f"seed{s}" / f"{name}.json").read_text()) for s in seeds]
        for name in NEEDS
    }
    measured = {
        name: [
            label_measures(np.asarray(r["predicted"], np.int8), np.asarray(r["truth"], np.int8))
            for r in runs
        ]
        for name, runs in results.items()
    }
    micro = {name: [found["micro_f1"] for found in runs] for name, runs in measured.items()}
    table = {}
    known = [told_in_training(out, seed) for seed in seeds]
    time_of_editgrpo = np.mean([r["seconds"] for r in results["editgrpo"]])
    for name, runs in results.items():
        unheard = [
            unheard_share(run["reports"], heard) for run, heard in zip(runs, known, strict=True)
        ]
        per_seed = [float(found.value()[0]) for found in micro[name]]
        table[name] = {
            "micro_f1": float(np.mean(per_seed)),
            "macro_f1": float(np.mean([found["macro_f1"].value() for found in measured[name]])),
            "per_seed": per_seed,
            "reward": float(np.mean([r["test"]["reward"] for r in runs])),
            "time_over_editgrpo": float(np.mean([r["seconds"] for r in runs]) / time_of_editgrpo),
            "rollouts": int(np.mean([r["rollouts"] for r in runs])),
            "best_step": [r["best_step"] for r in runs],
            "unheard": [float(share) for share in unheard],
        }
    comparisons = {}
    for name in (*JUDGED, "sft_on_chosen"):
        between = difference(micro["editgrpo"], micro[name])
        outcome = judge_above(between)
        if name == "sft" and between.value < GAIN:
            outcome = FAILS
        if outcome == HOLDS and over_seeds(between.seeds)[0] <= 0:
            outcome = UNDECIDED
        comparisons[name] = {
            "difference": between.value,
            "interval": [between.low, between.high],
            "per_seed": list(between.seeds),
            "verdict": outcome if name in JUDGED else NOT_JUDGED,
        }
    return {
        "seeds": seeds,
        "studies": micro["editgrpo"][0].units,
        "interval_over": "seeds and studies",
        "systems": table,
        "editgrpo_minus": comparisons,
    }


def show(found: dict) -> None:
    """Print what `verdict` found, or what was recorded of it."""
    print("\n".join(["", *found.get("notes", [])]))
    print(f"{len(found['seeds'])} seeds, {found['studies']} held-out studies each")
    print(
        f"{'system':<15}{'micro-F1':>9}{'macro-F1':>9}{'reward':>8}{'time':>7}{'rollouts':>10}"
        f"{'unheard':>9}"
    )
    for name, row in found["systems"].items():
        print(
            f"{name:<15}{row['micro_f1']:>9.3f}{row['macro_f1']:>9.3f}{row['reward']:>8.3f}"
            f"{row['time_over_editgrpo']:>7.2f}{row['rollouts']:>10d}"
            f"{np.mean(row['unheard']):>9.3f}"
        )
    print(
        f"95 % intervals: a bootstrap over {found['interval_over']}; t, Student's over the "
        f"differences of {len(found['seeds'])} seeds, which are few"
    )
    for name, row in found["editgrpo_minus"].items():
        (low, high), (least, most) = row["interval"], over_seeds(row["per_seed"])
        seeds = " ".join(f"{d:+.3f}" for d in row["per_seed"])
        print(
            f"EditGRPO - {name:<14} {row['difference']:+.3f} [{low:+.3f}, {high:+.3f}]"
            f"  t [{least:+.3f}, {most:+.3f}]  per seed {seeds}  {row['verdict']}"
        )


def main() -> int:
    """Run what is missing and print the verdict; the exit status."""
    top = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    top.add_argument("--out", type=Path, default=Path("runs/learning"))
    top.add_argument("--seeds", type=int, nargs="+", default=[14, 15, 16])
    top.add_argument("--workers", type=int, default=2)
    top.add_argument("--recipe", default="learning")
    top.add_argument("--show", type=Path, metavar="FILE", help="print results; run nothing")
    top.add_argument("--job", choices=list(NEEDS), help=argparse.SUPPRESS)
    top.add_argument("--set", dest="overrides", nargs="*", default=[], metavar="key=value")
    args = top.parse_args()
    if args.show:
        show(json.loads(args.show.read_text()))
        return 0
    if args.job:
        from experiments.threads import threads_of_environment

        with threads_of_environment():
            run_job(args.job, args.seeds[0], args.out, args.recipe, args.overrides)
        return 0
    try:
        schedule(args)
    except UserError as error:
        raise SystemExit(f"error: {error}") from None
    found = verdict(args.out, args.seeds)
    (args.out / "learning.json").write_text(json.dumps(found, indent=1) + "\n")
    show(found)
    return 0 if all(found["editgrpo_minus"][name]["verdict"] == HOLDS for name in JUDGED) else 1


if __name__ == "__main__":
    sys.exit(main())
