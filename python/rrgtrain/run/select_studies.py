"""`rrgtrain select`: which studies reinforcement learning learns most from (DEER's DDSampling).

K reports of each training study are sampled from the fine-tuned policy, a labeller reads them, and
a study is ranked by how much its reports disagree: D = Σ_c σ_c over the 14 labels (eqs. 3 and 4).
A share is then drawn without replacement with probability ∝ 1 / ln(rank + 1) (eq. 5), or by
another `select.weight`. No reference report and no label is looked at, except for the table that
judges the draw; its last row is the share of zero-variance groups that no ranking could better.
"""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict
from functools import partial
from pathlib import Path

import numpy as np
import torch

from rrgclinical.common import json_reader
from rrgclinical.common.files import atomic_write
from rrgclinical.common.progress import Bar, progress
from rrgclinical.labels import to_binary
from rrgdata.images.check import check_images
from rrgdata.load import remembered_root
from rrgdata.study import Study
from rrgdata.training_subset import Subset, training_subset
from rrgkern import diagnostic_diversity, philox_seed
from rrgpolicy.model.prompt import EncodedPrompt
from rrgpolicy.ranks import ranks
from rrgpolicy.rollout import SamplingRequest
from rrgpolicy.rollout.engines import build_engine
from rrgtrain.config import dump_config, load_config
from rrgtrain.errors import UserError
from rrgtrain.rewards import RewardService, refuse_left_out
from rrgtrain.run.checked import SERVED, check_policy, require_sampling
from rrgtrain.run.data import held_back, read_studies, split_of
from rrgtrain.run.session import start_policy
from rrgtrain.run.stages import SPENT
from rrgtrain.schema import Recipe, SelectSettings
from rrgtrain.select.draws import (
    BEGIN,
    BOUND,
    Record,
    draw_by_rank,
    labels_of,
    least_zero_variance,
    parse_record,
    print_statistics,
    rewards_of,
    table_7,
)
from rrgtrain.state.identity import begun_in, require_same_start, require_same_subset, start_files
from rrgtrain.state.rundir import RunDir
from rrgtrain.train.written import RowFile, in_batches, lacking, own_sampler, write_rows

SUBSET, RECORDS, START = "subset.json", "sampled.jsonl", "begun_from.json"
# The draws of a selection are those of a step that training never comes to.
STEP = (1 << 32) - 1


def select(recipe: Recipe, out: Path) -> Subset:
    """Draws `select.share` of the training studies and writes out/subset.json.

    Started again with the same recipe in the same directory, it goes on where it stopped, to the
    same result. Raises UserError for bad input, or a selection in `out` of another recipe or
    checkpoint.
    """
    if recipe.select.method == "diversity":
        if recipe.policy.path == "tiny":
            raise UserError(
                "select.method=diversity samples from a fine-tuned policy; name one by --from, "
                "or use select.method=random"
            )
        check_policy(recipe)
    refuse_left_out(recipe.reward, "select")
    rewards = RewardService(recipe.reward)
    with ranks.main_first():
        run = RunDir(out)
        if ranks.is_main():
            begun = begun_in(run) == recipe
            if run.config.is_file() and not begun:
                load_config(Recipe, run.config, [])  # one that cannot be read says so
                raise UserError(
                    f"{out} holds another selection or run; name another directory by --out, or "
                    f"give the settings of {run.config}"
                )
            run = RunDir.create(out, resume=begun)
    with run:
        rewards.spending.keep_in(out / SPENT)
        if recipe.select.method == "diversity":
            lengths = {"rl.max_new_tokens": recipe.rl.max_new_tokens}
            require_sampling(recipe.rollout, out / SERVED, lengths)
        with held_back():
            studies = read_studies(recipe.data, out)
            require_same_subset(recipe.data)
            train = training_subset(
                recipe.data, recipe.seed, split_of(studies, "train"), rewards.labeller
            )
        if ranks.is_main():
            if recipe.select.method == "diversity":
                check_images(train, remembered_root(recipe.data), recipe.data.body_parts)
            _keep_start(
                start_files(recipe.policy, recipe.rl, recipe.reward), out / START, begun=begun
            )
            dump_config(recipe, run.config)
        if recipe.select.method == "random":
            count = max(1, round(recipe.select.share * len(train)))
            chosen = [train[i].id for i in random_draw(len(train), count, recipe.seed)]
            subset = Subset("random", recipe.select.share, recipe.seed, chosen)
        else:
            rewards.fit(train)
            rows = out / RECORDS
            opened = RowFile(rows, BEGIN, partial(parse_record, rows)) if ranks.is_main() else None
            with opened or nullcontext():
                _sample(recipe, studies, train, rewards, opened, out)
            done = {} if opened is None else opened.done  # rank 0 has it
            subset = ranks.from_main(partial(_diverse, recipe.select, recipe.seed, train, done))
        if ranks.is_main():
            subset.save(out / SUBSET)
    if not ranks.is_main():
        return subset
    if subset.statistics:
        print_statistics(subset.statistics)
    print(f"subset: {out / SUBSET} ({len(subset.chosen)} of {len(train)} studies)")
    once = math.ceil(len(subset.chosen) / recipe.rl.prompts)
    print(f"one pass over it: data.subset={shlex.quote(str(out / SUBSET))} rl.steps={once}")
    return subset


def _keep_start(files: Mapping[str, str], path: Path, *, begun: bool) -> None:
    """Write what the files of the checkpoint are, or compare: samples are of one policy."""
    if not (begun and path.is_file()):
        atomic_write(path, json.dumps(files, indent=1) + "\n")
        return
    try:
        before = dict(json_reader.read(path, dict))
    except ValueError as error:
        raise UserError(f"{path} is no list of files ({error}); delete {path.parent}") from error
    require_same_start(before, files)


def _diverse(
    settings: SelectSettings, seed: int, train: Sequence[Study], records: Mapping[str, Record]
) -> Subset:
    names = [study.id for study in train]
    scores = diagnostic_diversity(torch.as_tensor(labels_of(records, names)).bool())
    chosen = draw_by_rank(scores, settings.share, seed, settings.weight)
    draws = {
        "all": np.arange(len(names)),
        "random": random_draw(len(names), len(chosen), seed),
        "selected": chosen,
    }
    rows = table_7(draws, scores.numpy(), rewards_of(records, names))
    flat = rows["all"].get("zero_variance")
    if flat is not None:
        least = least_zero_variance(flat, len(names), len(chosen), settings.weight)
        rows[BOUND] = {"studies": float(len(chosen)), "zero_variance": least}
    return Subset(
        "diversity",
        settings.share,
        seed,
        [names[i] for i in chosen],
        dict(zip(names, scores.tolist(), strict=True)),
        rows,
    )


def random_draw(studies: int, count: int, seed: int) -> np.ndarray:
    """`count` of `studies` indices without replacement, ascending."""
    return np.sort(np.random.default_rng((seed, STEP)).permutation(studies)[:count])


def _sample(
    recipe: Recipe,
    studies: dict[str, list[Study]],
    train: Sequence[Study],
    rewards: RewardService,
    file: RowFile[Record] | None,
    out: Path,
) -> None:
    """Sample and read what `file` lacks; of several ranks, rank 0 has it and writes."""
    missing = lacking(train, file)
    if not missing:
        return
    policy, prompts = start_policy(recipe, studies, out, resume=True)
    bar: Bar[int] = progress(len(train), "select", done=len(train) - len(missing))
    settings, batches = recipe.select, in_batches(missing, recipe.select.batch)
    own = own_sampler(partial(build_engine, recipe), out / SERVED)
    with own as sampler, sampler.weights(policy) as sample, bar:

        def read(batch: Sequence[int], encoded: Sequence[EncodedPrompt]) -> list[Record]:
            # draws depend on run, study and place alone; members count up from their group's first
            # seed, as a vLLM server draws them
            firsts = [philox_seed(recipe.seed, STEP, i, 0) >> 1 for i in batch]
            request = SamplingRequest(
                encoded,
                group=settings.samples,
                temperature=settings.temperature,
                top_p=settings.top_p,
                max_new_tokens=recipe.rl.max_new_tokens,
                seeds=[[first + k for k in range(settings.samples)] for first in firsts],
            )
            rollouts = sample(request)
            reports = [[policy.codec.decode(r.ids) for r in group] for group in rollouts]
            return _read([train[i] for i in batch], reports, rewards)

        def keep(records: list[Record]) -> None:
            if file is not None:
                for record in records:
                    file.add(record.study, record, asdict(record))
                file.sync()
            bar.advance(len(records))

        ahead = prompts.ahead([train[i] for i in batch] for batch in ranks.shard(batches))
        write_rows(batches, ahead, read, keep)


def _read(
    studies: Sequence[Study], reports: Sequence[Sequence[str]], rewards: RewardService
) -> list[Record]:
    """Labels of all reports, and rewards where every study has something to be compared with."""
    flat = [text for group in reports for text in group]
    labels = to_binary(rewards.labeller.label(rewards.scored_text(flat)))
    truth = "report" if rewards.settings.against == "report" else "labels"
    judged = all(getattr(study, truth) is not None for study in studies)
    totals: Sequence[list[float] | None] = [None] * len(studies)
    if judged:
        # as training begins: DEER's table 7 counts groups by F1 alone, before BLEU-2 joins it
        of_reports = [s for s, g in zip(studies, reports, strict=True) for _ in g]
        scores = rewards(flat, of_reports, progress=0.0)
        totals = scores["total"].reshape(len(studies), -1).tolist()
    of_groups = labels.reshape(len(studies), -1, labels.shape[1]).tolist()
    return [
        Record(study.id, list(group), own, total)
        for study, group, own, total in zip(studies, reports, of_groups, totals, strict=True)
    ]
