"""Tell all model files that a recipe lacks in one line, before any is loaded."""

from __future__ import annotations

from collections.abc import Iterable

from rrgclinical.backends import absent_files
from rrgtrain.errors import UserError
from rrgtrain.schema import RewardSettings


def missing_files(
    settings: RewardSettings, more: Iterable[str] = (), built: Iterable[str] = ()
) -> list[str]:
    """List the files that labeller, extractor, terms and `more` backends lack; see `absent_files`.

    Those in `built` are there already.
    """
    backends = [settings.labeller, settings.extractor, *settings.terms, *more]
    return absent_files(backends, settings.options, built)


def check_model_files(
    settings: RewardSettings, more: Iterable[str] = (), built: Iterable[str] = ()
) -> None:
    """UserError that names every missing file, where there are several.

    A single one is told by its backend when it is built.
    """
    absent = missing_files(settings, more, built)
    if len(absent) > 1:
        raise UserError(
            f"{len(absent)} model files are missing: {'; '.join(absent)}; give their paths, or "
            "`hub` to download them; reward.labeller=rules and reward.extractor=rules need none"
        )
