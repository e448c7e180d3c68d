"""Run one job in this process, and leave its result as JSON.

It holds no report and no clock. A job that a slice or a kill has ended goes on from its checkpoint
to the same JSON. Reports stay in the run's directory: the data's licence keeps what may repeat it
out of the repository. What a job cost stands beside, in NAME.seconds.json.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from experiments.iu_evidence.arms import DATA, FIRST, FIXED, RL, SELECT, SFT
from experiments.iu_evidence.data import QUICK_STUDIES, SEED, read_reports, write_fold
from experiments.iu_evidence.mechanism import EditRecorder
from experiments.iu_evidence.report import digest_of
from experiments.iu_evidence.start import build_start
from experiments.iu_evidence.tasks import FoldTask
from experiments.jobs.job import identity
from experiments.jobs.results import Result, begin, end
from experiments.jobs.runner import Process
from rrgclinical.common import json_reader
from rrgclinical.common.files import atomic_write
from rrgclinical.severity import AXES, AXIS
from rrgdata.study import Study
from rrgkern import diagnostic_diversity
from rrgpolicy.model.prompt import prompt_text
from rrgreport.summary import commit
from rrgreport.wording import sentences
from rrgtrain.rewards import RewardService
from rrgtrain.run.select_studies import RECORDS, random_draw, select
from rrgtrain.run.stages import Stages
from rrgtrain.schema import Recipe, RewardSettings
from rrgtrain.select.draws import (
    BEGIN,
    draw_by_rank,
    labels_of,
    least_zero_variance,
    parse_record,
    rewards_of,
)
from rrgtrain.state.rundir import RunDir
from rrgtrain.train.evaluate import Evaluation
from rrgtrain.train.written import RowFile

Facts = dict[str, Any]
Device = Literal["cpu", "cuda"]
CURVES = ("entropy", "report_tokens", "zero_variance", "zero_groups", "zero_reward")
"""What the log's rows of a reinforcement learning keep, step by step."""
SCORED = {"entity_f1": 1.0, "label_f1": 1.0, "match": 1.0, "severity": 0.0}
"""Terms of every held-out report: `reward` is the sum of the first three."""
TRIED, TRIED_AGAIN = 64, 16
"""Studies on which every report is tried as the fixed one, and how many of them on all."""
WEIGHTS = ("log_rank", "rank", "top")


def work(task: FoldTask, root: Path, device: Device) -> None:
    """Run the job, or go on with it; Stopped with all kept."""
    begin(task)
    recipe = task.recipe()
    # no part of the identity: a result of a GPU stands beside one of a CPU, and says so
    recipe = replace(recipe, policy=replace(recipe.policy, device=device))
    facts = _data(task, root) if task.job.kind == DATA else _KINDS[task.job.kind](task, recipe)
    if task.job.start:
        facts["start"] = digest_of(Result.load(task.other(task.job.start).result))
    end(task, Result(identity(task), task.command, commit(), {"device": device, **facts}))
    shutil.rmtree(RunDir(task.directory).resume, ignore_errors=True)


def _data(task: FoldTask, root: Path) -> Facts:
    reports = read_reports(root, QUICK_STUDIES if task.quick else None)
    sizes = write_fold(reports, task.seed, task.job.evidence, task.directory)
    if task.job.name != FIRST:
        return sizes
    entries = json_reader.read(task.directory / "annotation.json", dict)["train"]
    texts = [entry["report"] for entry in entries]
    texts += [prompt_text(_as_prompted(entry), style="short") for entry in entries]
    build_start(task.size, texts, task.directory / "start")
    return sizes


def _as_prompted(entry: dict[str, str]) -> Study:
    return Study(entry["id"], "train", None, None, (), indication=entry["indication"])


def _sft(task: FoldTask, recipe: Recipe) -> Facts:
    with Stages.open(recipe, task.directory, sft=True, verb="sft", resume=_begun(task)) as stages:
        trained = stages.sft(until_plateau=False)
        evaluation = stages.evaluate("test")
        _keep_seconds(task, trained.seconds)
        steps = {"steps": trained.steps, "best_step": trained.best_step}
        return {**steps, **_curves(task, "sft", ("loss",)), **_judged(task, stages, evaluation)}


def _rl(task: FoldTask, recipe: Recipe) -> Facts:
    with Stages.open(recipe, task.directory, rl=True, verb="rl", resume=_begun(task)) as stages:
        recorder = EditRecorder(stages.run.path / "edits.jsonl")
        trained = stages.rl(recorder)
        evaluation = stages.evaluate("test")
        _keep_seconds(task, trained.seconds)
        steps = {
            "studies": len(stages.session.chosen),
            "steps": trained.steps,
            "best_step": trained.best_step,
            "rollouts": trained.rollouts,
            "edits": trained.edits,
        }
        name = recipe.rl.algorithm
        logged = {**_curves(task, name, CURVES), "validations": validations(task, name)}
        return {**steps, **logged, **recorder.summary(), **_judged(task, stages, evaluation)}


def _begun(task: FoldTask) -> bool:
    return bool(RunDir(task.directory).contents())


def _keep_seconds(task: FoldTask, seconds: float) -> None:
    atomic_write(task.home / f"{task.job.name}.seconds.json", json.dumps({"seconds": seconds}))


def validations(task: FoldTask, algorithm: str) -> dict[str, list[float | None]]:
    """Read step, reward, F1 over 13 findings and the axes of each validation.

    None: no report of that validation has such an axis, the side of an effusion for one.
    """
    rows = _rows_of(task, f"{algorithm}_val")
    keys = {"reward": "reward", "f1_13": "micro_f1_13", **{name: AXIS + name for name in AXES}}
    own = {
        name: [round(row[key], 6) if key in row else None for row in rows]
        for name, key in keys.items()
    }
    return {"step": [row["step"] + 1 for row in rows], **own}


def _rows_of(task: FoldTask, phase: str) -> list[dict[str, Any]]:
    lines = RunDir(task.directory).metrics.read_text(encoding="utf-8").splitlines()
    return [row for row in map(json.loads, lines) if row["phase"] == phase]


def _curves(task: FoldTask, phase: str, names: tuple[str, ...]) -> Facts:
    """Read the logged rows of a phase: a list a name, one number a step."""
    rows = _rows_of(task, phase)
    present = [name for name in names if rows and name in rows[0]]
    return {"curves": {name: [round(row[name], 6) for row in rows] for name in present}}


def _judged(task: FoldTask, stages: Stages, evaluation: Evaluation) -> Facts:
    studies, train = evaluation.studies, stages.session.split("train")
    parameters = sum(p.numel() for p in stages.session.policy.model.parameters())
    references = {study.id: study.report or "" for study in studies}
    heard = [study.report or "" for study in train]
    return {**_of_reports(task, evaluation.reports, references, heard), "parameters": parameters}


def _of_reports(
    task: FoldTask, reports: Sequence[str], references: Mapping[str, str], heard: Sequence[str]
) -> Facts:
    """Of each held-out study: labels, truth, human codes, scores, and its report's language.

    references: by id, in the order of `reports`; heard: the training reports.
    """
    # Imported here: nltk takes a second.
    from rrgclinical.text import sentence_bleu

    codes = json_reader.read(task.home / task.job.data / "codes.json", dict)["codes"]
    known_sentences = {s for report in heard for s in sentences(report)}
    written, truth = [sentences(report) for report in reports], list(references.values())
    bleu = sentence_bleu(list(reports), truth, 4)[:, 3]
    rewards = RewardService(RewardSettings(terms=SCORED))
    scores = rewards(reports, truth)
    scores["reward"] = scores.pop("total")
    return {
        "ids": list(references),
        "predicted": _rows(rewards.labeller.label(reports)),
        "truth": _rows(rewards.labeller.label(truth)),
        "codes": [codes[name] for name in references],
        "bleu4": _rounded(bleu),
        "scores": {name: _rounded(values) for name, values in scores.items()},
        "words": [len(report.split()) for report in reports],
        "sentences": [len(own) for own in written],
        "unheard": [sum(s not in known_sentences for s in own) for own in written],
        "distinct": len(set(reports)),
    }


def _rounded(values: np.ndarray) -> list[float]:
    return [round(float(value), 6) for value in values]


def _fixed(task: FoldTask, recipe: Recipe) -> Facts:
    """Write for every held-out study the training report that earns most as all reports."""
    splits = json_reader.read(task.home / task.job.data / "annotation.json", dict)
    # a study has a prompt a draw, and one report
    train = list({e["id"].partition("_k")[0]: e["report"] for e in splits["train"]}.values())
    rewards = RewardService(recipe.reward)

    def best(reports: Sequence[str], studies: Sequence[str], count: int) -> list[str]:
        means = [rewards([text] * len(studies), studies)["total"].mean() for text in reports]
        return [reports[i] for i in np.argsort(means, kind="stable")[::-1][:count]]

    order = np.random.default_rng([SEED, task.seed]).permutation(len(train))
    tried = best(list(dict.fromkeys(train)), [train[i] for i in order[:TRIED]], TRIED_AGAIN)
    (report,) = best(tried, train, 1)
    references = {e["id"]: e["report"] for e in splits["test"]}
    written = [report] * len(references)
    return {"curves": {}, **_of_reports(task, written, references, train)}


def _rows(labels: np.ndarray) -> list[str]:
    return ["".join(str(int(label)) for label in row) for row in labels]


def _select(task: FoldTask, recipe: Recipe) -> Facts:
    """Of each training study: whether its samples earn alike, and which draws take it."""
    subset = select(recipe, task.directory)
    path, names = task.directory / RECORDS, list(subset.scores)
    with RowFile(path, BEGIN, partial(parse_record, path)) as file:
        records = file.done
    rewards = rewards_of(records, names)
    if rewards is None:
        raise ValueError("studies without reports; wanted something to be rewarded by")
    flat = (rewards == rewards[:, :1]).all(1)
    scores = diagnostic_diversity(torch.as_tensor(labels_of(records, names)).bool())
    count, share = len(subset.chosen), recipe.select.share
    chosen = {name: draw_by_rank(scores, share, recipe.seed, name) for name in WEIGHTS}
    chosen |= {"random": random_draw(len(names), count, recipe.seed), "all": np.arange(len(names))}
    of_draw = {name: np.isin(np.arange(len(names)), rows) for name, rows in chosen.items()}
    mean = float(flat.mean())
    return {
        "ids": names,
        "flat": "".join(str(int(value)) for value in flat),
        "draws": {k: "".join(str(int(v)) for v in rows) for k, rows in of_draw.items()},
        "bounds": {name: least_zero_variance(mean, len(names), count, name) for name in WEIGHTS},
    }


_KINDS = {SFT: _sft, RL: _rl, SELECT: _select, FIXED: _fixed}


def child(task: FoldTask, words: list[str]) -> Process:
    """Start the job as a command on one thread; `words` follow its own."""
    own = ["--job", task.job.name, "--folds", str(task.seed), "--out", str(task.out), *words]
    own += ["--quick"] if task.quick else []
    task.home.mkdir(parents=True, exist_ok=True)
    with task.log.open("a") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "experiments.iu_evidence", *own],
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            stdout=log,
            stderr=log,
            stdin=subprocess.DEVNULL,
            # Ctrl-C is for the parent, which passes it on once
            start_new_session=True,
        )
