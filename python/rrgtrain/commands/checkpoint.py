"""`rrgtrain check`, `generate` and `export`: what a checkpoint is good for."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from rrgtrain.commands.command import ON_GPUS, Command, add_candidates, add_settings, add_start
from rrgtrain.errors import UserError

if TYPE_CHECKING:
    from rrgtrain.schema import Recipe


RECIPE = "editgrpo"


def _check_words(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="checkpoint directory or hub name")
    add_settings(parser, "settings (see `rrgtrain keys`)")
    parser.add_argument("--recipe", default=RECIPE, help=f"name or YAML file; default: {RECIPE}")
    parser.add_argument(
        "--step", action="store_true", help="train one step at the longest lengths; print its peak"
    )


def _check(options: argparse.Namespace) -> int:
    from rrgclinical.common.shown import one_line
    from rrgpolicy.settings import refuse_missing
    from rrgtrain.commands.started import recipe_of

    options.start = options.model
    try:
        refuse_missing(options.model)
    except UserError as error:
        print(one_line(f"model: REFUSED: {error}"))
        return 1
    recipe, is_refused = recipe_of(options), False
    from rrgtrain.run.model_check import REFUSED, check_model

    for line in check_model(recipe):
        print(one_line(line), flush=True)
        is_refused |= REFUSED in line
    if options.step and not is_refused:
        from rrgtrain.plan import stage_of
        from rrgtrain.run.model_check import measure_step

        for line in measure_step(recipe, stage_of(options.recipe, recipe.rl.algorithm)):
            print(one_line(line), flush=True)
    return int(is_refused)


CHECK = Command(
    "check",
    "tell what a run would do with a model; exit status 1 where it would be refused",
    _check_words,
    _check,
)


def _generate_words(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("start", metavar="CHECKPOINT", help="checkpoint directory or hub name")
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="directory of the images")
    add_settings(parser, "settings (see `rrgtrain keys`)")
    out = "JSONL of the reports, to which a second call adds what it lacks; default: reports.jsonl"
    parser.add_argument("--out", type=Path, default=Path("reports.jsonl"), metavar="FILE", help=out)
    one = "one study an image (default), or the images of one folder a study"
    parser.add_argument("--study", choices=("file", "folder"), default="file", help=one)
    context = "columns id or path, and any of indication, technique, comparison"
    parser.add_argument("--context", type=Path, metavar="CSV", help=context)
    add_candidates(parser, "reports drawn of a study, of which one is written; default: 1")
    parser.add_argument("--recipe", default=RECIPE, help=f"name or YAML file; default: {RECIPE}")


def _generate(options: argparse.Namespace) -> int:
    from rrgtrain.commands.started import run_on_ranks
    from rrgtrain.state.remembered import OF_GENERATE

    def write(recipe: Recipe, out: Path, *, resume: bool) -> None:
        from rrgpolicy.ranks import ranks
        from rrgtrain.run.choose import chooser
        from rrgtrain.run.generate import GenerateRequest, generate_reports

        with ranks.propagate_errors():
            choose = chooser(recipe, options.candidates, options.choose, options.by)
            words = (options.folder, out, options.study, options.context, choose)
            generate_reports(recipe, GenerateRequest(*words))

    return run_on_ranks(GENERATE, options, write, remembered=OF_GENERATE)


GENERATE = Command(
    "generate",
    "write reports of the images below a directory",
    _generate_words,
    _generate,
    gpus=ON_GPUS,
    spread=True,
)


def _show_words(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("image", type=Path, metavar="IMAGE", help="PNG, JPEG, TIFF or DICOM")
    add_start(parser)
    add_settings(parser, "settings (see `rrgtrain keys`)")
    parser.add_argument("--out", type=Path, default=Path("show.html"), help="default: show.html")
    parser.add_argument("--recipe", default=RECIPE, help=f"name or YAML file; default: {RECIPE}")


def _show(options: argparse.Namespace) -> int:
    from rrgtrain.commands.started import recipe_of
    from rrgtrain.state.remembered import OF_GENERATE

    recipe = recipe_of(options, OF_GENERATE)
    from rrgtrain.run.generate import show_image

    show_image(recipe, options.image, options.out)
    print(f"page: {options.out}")
    return 0


SHOW = Command("show", "write a page of one image and its report", _show_words, _show)


def _export_words(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("checkpoint", metavar="CHECKPOINT", help="checkpoint directory")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="new directory")
    parser.add_argument(
        "--dtype", choices=("bf16", "fp16", "fp32"), default="bf16", help="default: bf16"
    )
    parser.add_argument("--merge", action="store_true", help="add the adapter to its base")
    parser.add_argument("--push", metavar="OWNER/NAME", help="upload it, private where it is new")


def _export(options: argparse.Namespace) -> int:
    from rrgclinical.hub import require_upload, upload
    from rrgtrain.run.export import export_checkpoint

    if options.push:
        require_upload(options.push)
    words = options.checkpoint, options.out, options.dtype
    print(f"export: {export_checkpoint(*words, merge=options.merge)}")
    if options.push:
        print(f"pushed: {upload(options.out, options.push)}")
    return 0


EXPORT = Command(
    "export",
    "write a checkpoint for others: bf16, the hub's names, a model card",
    _export_words,
    _export,
)
