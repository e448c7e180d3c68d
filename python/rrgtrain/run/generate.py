"""`rrgtrain generate`: reports of the images below a directory, without references.

Broken images are listed with their reasons in OUT.errors.jsonl, and the command ends with status 2;
they are read again by the next call. A report holds for the images that it was written of: other
ones under the same names are refused.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from PIL import Image

from rrgclinical.common.files import file_digest, remove_own
from rrgclinical.common.progress import Bar, progress
from rrgclinical.common.shown import hidden
from rrgdata.images.in_flight import InFlight
from rrgdata.images.read import area_of, read_with_facts
from rrgdata.load import check_lengths
from rrgdata.sources.folder import Folder, frontal_alone, read_folder, with_context
from rrgdata.study import ImageRef, Study
from rrgpolicy.model.backbone import architecture, sees_images
from rrgpolicy.model.policy import ImageRule, Policy
from rrgpolicy.model.prompt import EncodedPrompt, Pixels, prompt_of, refuse_images
from rrgpolicy.model.template import check_prompt
from rrgpolicy.ranks import ranks
from rrgpolicy.rollout import SamplingRequest
from rrgpolicy.rollout.engines import build_engine
from rrgpolicy.rollout.policy_sampler import Sample
from rrgreport import Sample as Kept
from rrgreport.cases import write_study
from rrgreport.page import require_page
from rrgtrain.errors import UserError
from rrgtrain.rewards.batch import report_of
from rrgtrain.run.checked import check_start, compute_deterministically, require_sampling
from rrgtrain.run.choose import Chooser, seeds_of
from rrgtrain.run.session import load_for
from rrgtrain.schema import PROMPT_STYLES, DataSettings, PolicySettings, Recipe
from rrgtrain.state.remembered import TINY, file_digests
from rrgtrain.train.written import (
    BEGIN,
    Images,
    RowFile,
    changed,
    describe_images,
    in_batches,
    lacking,
    open_generated,
    own_sampler,
    write_batch,
    write_rows,
)

WARNING = (
    "for research only: a model writes these reports; nobody may be diagnosed or treated by them"
)
AHEAD = 8
"""Studies whose images are decoded while the policy writes."""


@dataclass(frozen=True)
class Decoded:
    """The images shown of a study, encoded, and what `describe_images` says of all its files."""

    pixels: Pixels | None
    described: list[dict[str, Any]]
    notes: list[str]
    """Of their DICOM headers, see `ImageFacts`."""


@dataclass(frozen=True)
class Written:
    """Images of a study as `describe_images` gives them, the fields of its line, and notes."""

    images: list[dict[str, Any]]
    fields: dict[str, Any]
    notes: list[str]


@dataclass(frozen=True)
class GenerateRequest:
    """The words of the command beside the recipe."""

    folder: Path
    out: Path
    study: str = "file"
    """One study an image ("file") or a folder ("folder"), see `read_folder`."""
    context: Path | None = None
    """CSV of indications, see `with_context`."""
    choose: Chooser | None = None
    """Draws candidates of each study, of which one is written; None for a report a study."""


def generate_reports(recipe: Recipe, request: GenerateRequest) -> int:
    """Write the reports that `request.out` lacks and return their number.

    Raises:
        UserError: bad input, or, when all else is written, images that cannot be read.
    """
    if recipe.deterministic:  # on every rank
        compute_deterministically()
    folder, studies, origin = ranks.from_main(lambda: _look(recipe, request))
    require_sampling(
        recipe.rollout, _served(request.out), {"eval.max_new_tokens": recipe.eval.max_new_tokens}
    )
    with open_generated(request.out, origin) if ranks.is_main() else nullcontext() as file:
        missing = [studies[place] for place in lacking(studies, file)]
        if file is not None:
            _check_done(file, studies, folder.root)
            remove_own(_errors_of(request.out), BEGIN)
        ranks.barrier()
        keep = partial(_keep, file, origin) if file is not None else None
        errors = _write(recipe, request, missing, folder.root, keep, len(studies)) if missing else 0
        if file is not None:
            written = len(missing) - errors
            print(f"reports: {request.out} ({written} written, {len(studies)} studies)")
    if errors:
        raise UserError(
            f"{errors} of {len(studies)} studies have no report: their images cannot be read, see "
            f"{_errors_of(request.out)}; mend them, and give the same command again"
        )
    return len(missing)


def _look(
    recipe: Recipe, request: GenerateRequest
) -> tuple[Folder, Sequence[Study], dict[str, Any]]:
    """List the folder, its studies with their context, and what all their lines will hold."""
    folder = read_folder(request.folder, request.study)
    studies, told = folder.studies, 0
    if request.context is not None:
        studies, told = with_context(folder, request.context)
        check_lengths({"": studies}, recipe.data.longest_text)
    if recipe.data.images == "frontal":
        views = Counter(image.view for study in studies for image in study.images)
        studies = frontal_alone(studies, folder.root)
        left_out = f"{views['lateral']} lateral images are left out"
        _say(f"data.images=frontal: {left_out}, {views['']} that tell no view are shown")
    _check_policy(recipe.policy, recipe.rollout.engine, recipe.data, studies)
    if recipe.data.images == "none":
        _say("data.images=none: the policy sees no image, and writes of the --context alone")
    if folder.left_out:
        listed = ", ".join(f"{count} {kind}" for kind, count in folder.left_out.items())
        _say(f"left out below {folder.root}: {listed}")
    if request.context is not None:
        _say(f"{request.context} tells of {told} of {len(studies)} studies")
    return folder, studies, _origin(recipe, request)


def _check_policy(
    policy: PolicySettings, engine: str, data: DataSettings, studies: Sequence[Study]
) -> None:
    if policy.path == TINY:
        raise UserError("CHECKPOINT is tiny, which is built for a run; name one of its checkpoints")
    check_prompt(policy.prompt, PROMPT_STYLES)
    # no reward is asked: its models need not be here
    config = check_start(policy, engine, one_image=data.one_image)
    if data.images != "none" and not sees_images(config):
        refuse_images(studies, str(architecture(config)))
    _say(WARNING)


def show_image(recipe: Recipe, image: Path, out: Path) -> None:
    """Write a page of an image and its report; UserError without either."""
    require_page(out)
    picture, _ = read_with_facts(image, body_parts=recipe.data.body_parts)
    study = Study(image.name, "", None, None, (ImageRef(image, ""),))
    _check_policy(recipe.policy, recipe.rollout.engine, recipe.data, [study])
    outcomes: list[Written | UserError] = []
    request = GenerateRequest(image.parent, out)
    _write(recipe, request, [study], image.parent, lambda _, outcome: outcomes.append(outcome), 1)
    if isinstance(outcome := outcomes[0], UserError):
        raise outcome
    reports = {Path(recipe.policy.path).name: outcome.fields["report"]}
    write_study(out, Kept(image.name, [picture], "", reports), [WARNING])


def _check_done(file: RowFile[Images], studies: Sequence[Study], root: Path) -> None:
    """Compare the images of the reports that are there; UserError where they are other ones."""
    done = [study for study in studies if study.id in file.done]
    if lost := len(file.done) - len(done):
        _say(f"{file.path} holds {lost} reports of studies that are no longer there")
    if not done:
        return
    differing = []
    bar: Bar[int] = progress(len(done), "images of reports that are there")
    with ThreadPoolExecutor(AHEAD) as pool, bar:
        for line in pool.map(lambda study: changed(file.done[study.id], study, root), done):
            differing += [line] if line else []
            bar.advance()
    if differing:
        raise UserError(
            f"{len(differing)} reports in {file.path} were written of other images (the first: "
            f"{differing[0]}); name another file by --out, or put the images back"
        )


def _origin(recipe: Recipe, request: GenerateRequest) -> dict[str, Any]:
    """What must be equal for two calls to write into one file."""
    policy, draw = recipe.policy, recipe.generate
    prompt = Path(policy.prompt).expanduser()
    settings = {
        "folder": str(request.folder.expanduser().resolve()),
        "study": request.study,
        "policy.prompt": hidden(policy.prompt),
        "prompt_file": "" if policy.prompt in PROMPT_STYLES else file_digest(prompt),
        "context": "" if request.context is None else file_digest(request.context.expanduser()),
        "policy.dtype": policy.dtype,
        "policy.min_pixels": policy.min_pixels,
        "policy.max_pixels": policy.max_pixels,
        "reward.blocks": recipe.reward.blocks,
        "rollout.engine": recipe.rollout.engine,
        "eval.max_new_tokens": recipe.eval.max_new_tokens,
        "generate.temperature": draw.temperature,
    }
    if recipe.data.images != "all":
        settings |= {"data.images": recipe.data.images}
    if (own := request.choose) is not None:
        settings |= {"candidates": own.candidates, "choose": own.rule}
        settings["by"] = next(iter(own.rewards.settings.terms))
    if draw.temperature:
        settings |= {"generate.top_p": draw.top_p, "seed": recipe.seed}
    local = Path(policy.path).expanduser()
    files = "".join(f"{name} {digest}\n" for name, digest in file_digests(policy.path).items())
    return {
        "checkpoint": str(local.resolve()) if local.is_dir() else policy.path,
        "digest": hashlib.sha256(files.encode()).hexdigest()[:16] if files else "",
        "settings": settings,
    }


def _errors_of(out: Path) -> Path:
    return out.with_name(f"{out.name}.errors.jsonl")


def _served(out: Path) -> Path:
    return out.with_name(f".{out.name}.served")


def _write(
    recipe: Recipe,
    request: GenerateRequest,
    studies: Sequence[Study],
    root: Path,
    keep: Callable[[Study, Written | UserError], None] | None,
    total: int,
) -> int:
    """Write the reports of `studies`; return how many have none, their images being broken.

    Of several ranks, each writes batches, and rank 0, which has the file, keeps them.
    """
    engine = recipe.rollout.engine
    policy = load_for(recipe.policy, recipe.policy.path, engine, masters=False)
    policy.model.eval()
    errors, notes = 0, Counter[str]()
    batches = in_batches(studies, recipe.eval.batch)
    own = [study for batch in ranks.shard(batches) for study in batch]
    bar: Bar[int] = progress(total, "generate", done=total - len(studies))

    def take(outcomes: list[tuple[Study, Written | UserError]]) -> None:
        nonlocal errors
        for study, outcome in outcomes:
            errors += isinstance(outcome, UserError)
            notes.update(outcome.notes if isinstance(outcome, Written) else ())
            if keep is not None:
                keep(study, outcome)
        bar.advance(len(outcomes))

    with own_sampler(partial(build_engine, recipe), _served(request.out)) as sampler:
        decoded = closing(_decoded(policy.images, own, root, recipe.data))
        with decoded as each, sampler.weights(policy) as sample, bar:
            ahead = ([*islice(each, len(batch))] for batch in ranks.shard(batches))
            write = partial(_write_batch, recipe, request.choose, policy, sample)
            write_rows(batches, ahead, write, take)
    for note, count in notes.items():
        _say(f"{count} of the DICOM files {note}")
    return errors


def _keep(
    file: RowFile[Images], origin: Mapping[str, Any], study: Study, outcome: Written | UserError
) -> None:
    if isinstance(outcome, Written):
        row = {"id": study.id, "images": outcome.images, **outcome.fields, **origin}
        file.add(study.id, outcome.images, row)
        return
    with _errors_of(file.path).open("a", encoding="utf-8") as lines:
        lines.write(json.dumps({"id": study.id, "error": str(outcome)}) + "\n")


def _decoded(
    rule: ImageRule | None, studies: Sequence[Study], root: Path, data: DataSettings
) -> Generator[tuple[Study, Decoded | UserError]]:
    """Encode the images of each study in threads, a few studies ahead; or the reason against it."""
    in_flight = InFlight()

    def pictures(
        paths: Iterable[Path], notes: list[str], opened: list[Path]
    ) -> Generator[Image.Image]:
        for path in paths:
            with in_flight.hold(area_of(path)):
                image, facts = read_with_facts(path, body_parts=data.body_parts)
                notes += facts.notes
                opened.append(path)
                yield image

    def encode(paths: Sequence[Path], notes: list[str]) -> Pixels | None:
        if rule is None:
            return None
        opened: list[Path] = []
        try:
            with closing(pictures(paths, notes, opened)) as each:
                return rule.encode(each)
        except ValueError as error:
            # the image processor takes no image so thin, or so small
            raise UserError(f"{opened[-1]}: {error}; crop or scale it first") from None

    def read(study: Study) -> Decoded | UserError:
        notes: list[str] = []
        try:
            shown = study.images if data.images != "none" else ()
            pixels = encode([image.path for image in shown], notes)
            return Decoded(pixels, describe_images(study, root), notes)
        except UserError as error:
            return error
        except OSError as error:
            return UserError(f"{error.filename}: {error.strerror}; make it readable")

    with ThreadPoolExecutor(AHEAD) as pool:
        under_way: deque[Any] = deque()
        try:
            for study in studies:
                under_way.append((study, pool.submit(read, study)))
                if len(under_way) > AHEAD:
                    first, images = under_way.popleft()
                    yield first, images.result()
            while under_way:
                first, images = under_way.popleft()
                yield first, images.result()
        finally:
            pool.shutdown(cancel_futures=True)


def _write_batch(
    recipe: Recipe,
    choose: Chooser | None,
    policy: Policy,
    sample: Sample,
    batch: Sequence[Study],
    decoded: Sequence[tuple[Study, Decoded | UserError]],
) -> list[tuple[Study, Written | UserError]]:
    """Write the reports of a batch of studies, or say why one has none, in their order."""
    outcomes: dict[str, Written | UserError] = {}
    ready: list[tuple[Study, EncodedPrompt, Decoded]] = []
    for study, images in decoded:
        if isinstance(images, UserError):
            outcomes[study.id] = images
            continue
        shown = study if images.pixels is not None else replace(study, images=())
        prompt = prompt_of(policy, shown, images.pixels, style=recipe.policy.prompt)
        ready.append((study, prompt, images))
    studies = [study for study, _, _ in ready]
    draw, candidates = recipe.generate, choose.candidates if choose else 1
    request = SamplingRequest(
        [prompt for _, prompt, _ in ready],
        group=candidates,
        max_new_tokens=recipe.eval.max_new_tokens,
        seeds=[seeds_of(recipe.seed, study.id, candidates) for study in studies],
        temperature=draw.temperature or 1.0,
        top_p=draw.top_p if draw.temperature else 1.0,
        greedy=not draw.temperature,
    )
    blocks = recipe.reward.blocks
    drawn = write_batch(policy, studies, request, sample)
    groups = [drawn[k : k + candidates] for k in range(0, len(drawn), candidates)]
    texts = [[report_of(text, blocks) for text, _ in group] for group in groups]
    places = choose(texts) if choose else [0] * len(texts)
    for (study, _, images), own, group, k in zip(ready, texts, groups, places, strict=True):
        fields: dict[str, Any] = {"report": own[k], "finished": group[k][1]}
        fields |= {} if blocks == "none" else {"text": group[k][0]}
        fields |= {"chosen": k, "candidates": own} if choose else {}
        outcomes[study.id] = Written(images.described, fields, images.notes)
    return [(study, outcomes[study.id]) for study in batch]


def _say(line: str) -> None:
    print(f"rrgtrain: {line}", file=sys.stderr)
