"""Tell by digests whether every rank, and a resume, goes on with one run.

Digests and no values: what `${oc.env:KEY}` stands for is written nowhere.
"""

from __future__ import annotations

import functools
import hashlib
import json
import platform
import socket
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal, NamedTuple

from omegaconf import OmegaConf

import rrgclinical
import rrgdata
import rrgkern
import rrgpolicy
import rrgtrain
from rrgclinical.common.files import file_digest
from rrgclinical.common.resolve import own_files
from rrgclinical.common.shown import hidden, one_line, redacted
from rrgdata.settings import DataSettings
from rrgdata.study import Study
from rrgdata.training_subset import Subset
from rrgpolicy.ranks import ranks
from rrgpolicy.settings import refuse_missing
from rrgtrain.config import interpolated, load_config
from rrgtrain.errors import Stopped, UserError
from rrgtrain.schema import PROMPT_STYLES, PolicySettings, Recipe, RewardSettings, RlSettings
from rrgtrain.state.remembered import TINY, file_digests, known_base
from rrgtrain.state.rundir import RunDir
from rrgtrain.state.store import CheckpointStore

MayChange = Literal["never", "by a resume", "by place"]
# A resumed run must be the experiment that its checkpoints belong to.
_NEVER = ("seed", "data.", "policy.", "rl.algorithm", "rl.group", "rl.reference")
# Where the same things lie, on this rank or now, and on what they are computed.
_BY_PLACE = (
    *("data.root", "data.workers", "data.read_ahead", "data.cache_mib"),
    *("policy.path", "policy.device", "policy.vision_cache_mib", "policy.sharing"),
)
# Settings that may name functions of one's own.
_CODE = (
    *("reward.terms", "reward.labeller", "reward.extractor", "edit.extractor"),
    *("token_weights.labeller", "rl.algorithm", "data.source", "rollout.engine"),
)
# Mappings whose entries a resume may add or replace.
_FREE = ("reward.terms", "reward.starts", "reward.options", "log.trackers")
# Begin the keys of files that the run began from, and of what stands behind a setting's text.
_BEGUN_FROM, _BEHIND = "begun from ", "behind "
_PACKAGES = ("torch", "transformers", "peft", "numpy")
_MEND = "put it back as the run wrote it, or start a new run (settings go behind --resume)"


class RunPart(NamedTuple):
    """Hold the digest of what a run depends on, and when it may change."""

    digest: str
    may_change: MayChange


Change = dict[str, Any]
"""A changed setting: `step` and `resumed` (where the run went on), `row` (rows of metrics logged
before), `key`, `old` and `new`; the two are equal where what stands behind them has changed."""


def may_change(key: str) -> MayChange:
    """Tell when a setting may have another value."""
    if key in _BY_PLACE:
        return "by place"
    return "never" if key.startswith(_NEVER) else "by a resume"


def identity_of(recipe: Recipe) -> dict[str, RunPart]:
    """Digest all that makes a run: settings, files that it begins from, own code.

    Keys are "rl.lr", "begun from policy.path: model.safetensors", "behind reward.terms: mine.py",
    and "behind rl.lr" for what `${...}` stands for in a setting.
    """
    values = dict(leaves(asdict(recipe)))
    parts = {key: RunPart(digest_of(value), may_change(key)) for key, value in values.items()}
    begun = start_files(recipe.policy, recipe.rl, recipe.reward)
    parts |= {_BEGUN_FROM + name: RunPart(digest, "never") for name, digest in begun.items()}
    behind = {key: parts[key].digest for key in interpolated(recipe, values)} | code_files(values)
    return parts | {_BEHIND + name: RunPart(d, "by a resume") for name, d in behind.items()}


def start_files(policy: PolicySettings, rl: RlSettings, reward: RewardSettings) -> dict[str, str]:
    """Map the files that a run begins from to digests.

    They are those of policy.path, rl.reference, policy.prompt and severity's table; a key is
    "policy.path: model.safetensors". Hub names, and a tiny policy, which lies in its run, have
    none.
    """
    start, reference = policy.path, rl.reference
    files = {} if start == TINY else {"policy.path": file_digests(start)}
    if reference == "base":
        reference = (known_base(start) if start != TINY else None) or "start"
    if reference != "start":
        files["rl.reference"] = file_digests(reference)
    table = reward.options.get("severity", {}).get("table")
    singles = {"reward.options.severity.table": str(table)} if table else {}
    if policy.prompt not in PROMPT_STYLES:
        singles["policy.prompt"] = policy.prompt
    for key, name in singles.items():
        if (file := Path(name).expanduser()).is_file():
            files[key] = {Path(hidden(name)).name: file_digest(file)}
    return {f"{key}: {name}": d for key, group in files.items() for name, d in group.items()}


def code_files(values: Mapping[str, Any]) -> dict[str, str]:
    """Map files of one's own functions, as "reward.terms: mine.py", to digests; no imports.

    values: of dotted keys.
    """
    files = {key: own_files(names) for key, names in _named(values).items()}
    return {f"{k}: {name}": file_digest(f) for k, fs in files.items() for name, f in fs.items()}


def named_code(recipe: Mapping[str, Any]) -> list[tuple[str, str]]:
    """List what of a recipe, as nested mappings, will be imported: keys, `module:function`."""
    named = _named(dict(leaves(recipe)))
    return [(key, name) for key, names in named.items() for name in names if ":" in name]


def _named(values: Mapping[str, Any]) -> dict[str, list[str]]:
    sources = [k for k in values if k.startswith("data.mix.") and k.endswith(".source")]
    chosen = {key: values[key] for key in (*_CODE, *sources) if values.get(key)}
    return {k: v.split("+") if isinstance(v, str) else [*v] for k, v in chosen.items()}


def require_same_on_ranks(
    own: Mapping[str, str],
    line: str,
    *,
    shown: bool = False,
    changed: Callable[[Mapping[str, str], Mapping[str, str]], list[str]] | None = None,
) -> None:
    """Raise UserError where a rank has other digests than rank 0.

    All ranks call it at once.
    line: follows the rank's name, with {} for the keys that differ and, where the digests are
        `shown`, what they are.
    changed: lists the keys of two ranks that differ.
    """
    if ranks.size() == 1:
        return
    everyone = ranks.gather((socket.gethostname(), dict(own)))
    first = everyone[0][1]
    for rank, (host, there) in enumerate(everyone):
        keys = (changed or _changed)(first, there)[:3]
        if shown:
            keys = [f"{k} {there.get(k, 'none')} (rank 0: {first.get(k, 'none')})" for k in keys]
        if keys:
            raise UserError(f"rank {rank} on {host} {line.format(', '.join(keys))}")


def require_equal_start(parts: Mapping[str, RunPart]) -> None:
    """Raise UserError where ranks have other settings, versions, code or files to begin from.

    Such a run would go on for hours before it shows: every rank follows its own settings, and the
    sums over ranks are those of no recipe. All ranks call it at once. Where the same things lie
    may differ (`data.root`, `policy.path`).
    parts: of `identity_of`.
    """
    settings = {
        key: part.digest
        for key, part in parts.items()
        if not key.startswith((_BEGUN_FROM, _BEHIND)) and part.may_change != "by place"
    }
    require_same_on_ranks(
        settings,
        "was started with another {} than rank 0; give the same command and the same recipe on "
        "every node",
    )
    require_same_on_ranks(code(), "runs {}; install the same on every node", shown=True)
    of_code = [key for key in parts if key.startswith(_BEHIND) and ": " in key]
    require_same_on_ranks(
        {key.removeprefix(_BEHIND): parts[key].digest for key in of_code},
        "runs other code than rank 0 ({}); give every node the same file, or one that all nodes "
        "mount",
    )
    require_same_on_ranks(
        _files_of(settled(parts)),
        "reads other files than rank 0 ({}); give every node the same checkpoint, or one that all "
        "nodes mount",
        changed=lambda one, other: sorted({*_replaced(one, other), *_replaced(other, one)}),
    )


def require_same_data(studies: Mapping[str, list[Study]]) -> None:
    """Raise UserError where ranks read other studies than rank 0; all call it at once."""
    if ranks.size() == 1:
        return
    require_same_on_ranks(
        {
            split: f"{len(rows)} of digest {_digest_of_studies(rows)}"
            for split, rows in studies.items()
        },
        "reads other studies ({}); give every node the same data set (data.root), or one that all "
        "nodes mount",
        shown=True,
    )


def require_same_subset(data: DataSettings) -> None:
    """Raise UserError where `data.subset` is another than rank 0's; all call it at once."""
    if data.subset is not None and ranks.size() > 1:
        require_same_on_ranks(
            {f"data.subset={data.subset}": Subset.load(data.subset).digest},
            "reads other studies in {} than rank 0; give every node the same file, or one that all "
            "nodes mount",
        )


def _digest_of_studies(studies: list[Study]) -> str:
    digest = hashlib.sha256()
    for study in studies:
        images = [(image.path.name, image.view, image.prior) for image in study.images]
        context = [study.indication, study.technique, study.comparison]
        row = [study.id, study.report, study.labels, study.expert, images, *context]
        digest.update(json.dumps(row, default=str).encode())
    return digest.hexdigest()[:8]


def _changed(one: Mapping[str, str], other: Mapping[str, str]) -> list[str]:
    return [key for key in {**one, **other} if one.get(key) != other.get(key)]


def _replaced(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """List the files of `before` that are others now; a hub name has none, and passes."""
    read = {name.partition(":")[0] for name in now}
    return [n for n, d in before.items() if n.partition(":")[0] in read and now.get(n) != d]


@functools.lru_cache(maxsize=1)
def code() -> dict[str, str]:
    """Name the versions that results depend on, and a digest of the packages' own files."""
    digest = hashlib.sha256()
    for package in (rrgkern, rrgclinical, rrgdata, rrgpolicy, rrgtrain):
        root = Path(str(package.__file__)).parent
        for path in sorted(root.rglob("*.py")):
            digest.update(str(path.relative_to(root)).encode() + path.read_bytes())
    installed = {name: version(name) for name in _PACKAGES}
    own = f"{rrgkern.__version__} of files {digest.hexdigest()[:8]}"
    return {"rrgtrain": own, "Python": platform.python_version(), **installed}


def begun_in(run: RunDir) -> Recipe | None:
    """Load the recipe whose beginning a directory holds; None where it holds none."""
    if run.report.is_file() or not run.config.is_file():
        return None
    try:
        return load_config(Recipe, run.config, [])
    except Stopped:
        raise
    except UserError:  # a file that is no run's, or of another version
        return None


def settled(parts: Mapping[str, RunPart]) -> dict[str, str]:
    """Map keys of `identity_of` to what a checkpoint keeps of them.

    That is the digest, or "" where a resume may change it. What stands behind a text is left out:
    a resume compares it by `changes_of`.
    """
    return {
        key: part.digest if part.may_change == "never" else ""
        for key, part in parts.items()
        if not key.startswith(_BEHIND)
    }


def require_same_start(before: Mapping[str, str], now: Mapping[str, str]) -> None:
    """Raise UserError where files that a run began from are gone or have other content.

    Both are of `start_files`; a hub name, which has none, passes.
    """
    for name in _replaced(before, now):
        raise UserError(
            f"{name} is not the file that the run began from; put it back, or start a new run"
        )


def require_whole(run: RunDir, start: str) -> None:
    """Raise UserError where config.yaml lacks a setting, as a file that was cut short does.

    Or where `start`, which is policy.path, was a directory when the run began, and is none now,
    nor a hub name.
    """
    begun = _begun(run)
    written = {key for key, _ in leaves(OmegaConf.to_container(OmegaConf.load(run.config)))}
    for key in begun:
        if key not in written and not key.startswith(_BEGUN_FROM):
            raise UserError(f"{run.config} lacks {key}: it was cut short or changed; {_MEND}")
    begun_there = any(key.startswith(f"{_BEGUN_FROM}policy.path: ") for key in begun)
    if begun_there and not Path(start).expanduser().is_dir():
        try:
            refuse_missing(start)
        except UserError as error:
            raise UserError(
                f"no directory policy.path={start}, from which the run in {run.path} began; put "
                "it back, or give its new place behind --resume: policy.path=DIR"
            ) from error


def require_settled(run: RunDir, now: Mapping[str, str]) -> None:
    """Raise UserError where config.yaml is not what the newest checkpoint was written with.

    now: of `settled`, for the recipe that was read from it. A fixed setting has another value, or
    a file that the run began from has changed.
    """
    begun = _begun(run)
    require_same_start(_files_of(begun), _files_of(now))
    for key, digest in begun.items():
        if digest and (now.get(key) or digest) != digest:  # movable by now, or gone
            raise UserError(f"{run.config} has another {key} than the run's checkpoint; {_MEND}")


def _begun(run: RunDir) -> dict[str, str]:
    return dict(CheckpointStore(run.resume, 1).about().get("settings", {}))


def _files_of(digests: Mapping[str, str]) -> dict[str, str]:
    return {k.removeprefix(_BEGUN_FROM): v for k, v in digests.items() if k.startswith(_BEGUN_FROM)}


def values_of(config: Path, parts: Mapping[str, RunPart]) -> dict[str, str]:
    """Map what a resume may change to texts: settings of a config.yaml, digests behind them.

    `${...}` stays as it is written, and what an address hides is not shown.
    """
    values = OmegaConf.to_container(OmegaConf.load(config))
    texts = {key: _shown(value) for key, value in leaves(values)}
    return texts | {key: part.digest for key, part in parts.items() if key.startswith(_BEHIND)}


def changes_of(
    about: Mapping[str, Any], before: Mapping[str, str], now: Mapping[str, str], place: Change
) -> list[Change]:
    """List what resumes have changed up to the one at `place`, that one included.

    `about` describes the checkpoint that the run goes on from: it knows the changes before it and
    the settings of its steps. `before`, those of config.yaml, stands in where it does not. A
    setting that only one version of the schema has is no change.
    now: of `values_of`.
    """
    before = about.get("values") or before
    keys = [key for key, value in now.items() if before.get(key, value) != value]
    made = []
    for name in keys:
        key, _, file = name.removeprefix(_BEHIND).partition(": ")
        if name == key:
            made.append({**place, "key": key, "old": before[key], "new": now[key]})
        elif file or key not in keys:
            made.append({**place, "key": key, "old": file or now[key], "new": file or now[key]})
    return [*about.get("changes", []), *made]


def as_line(change: Change) -> str:
    """Write a change as "from step N: key old -> new (resumed ...)"."""
    key, old, new = change["key"], change["old"], change["new"]
    how = f"{key} {old} -> {new}"
    if old == new:
        how = "stands for another value than before" if "${" in old else "has changed"
        how = f"{key}: {old} {how}"
    return f"from step {change['step']}: {how} (resumed {change['resumed']})"


def leaves(tree: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted keys of the schema and their values; a free mapping is one value."""
    for name, value in tree.items():
        if isinstance(value, Mapping) and f"{prefix}{name}" not in _FREE:
            yield from leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def digest_of(value: Any) -> str:
    """Digest a setting's value."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def _shown(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return one_line(redacted(text))
