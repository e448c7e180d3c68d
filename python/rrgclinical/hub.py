"""Files of the official repository, downloaded when a recipe says `weights: hub`, never unasked."""

from __future__ import annotations

from pathlib import Path

from huggingface_hub import hf_hub_download
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

from rrgclinical.common.errors import UserError

SCORERS = "StanfordAIMI/RRG_scorers"


def download(repository: str, file: str, offline: str) -> Path:
    """The file in the local hub cache, downloaded into it first where it is absent.

    Args:
        repository: of the Hugging Face hub.
        file: its path there.
        offline: what to use without, for the error.

    Raises:
        UserError: it is neither in the cache nor to be had.
    """
    try:
        return Path(hf_hub_download(repository, file))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise UserError(
            f"cannot download {file} of {repository} ({reason}); pass its path instead: {offline}"
        ) from error
