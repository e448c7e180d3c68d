"""Asks the hub whether it answers, for files, and to keep an export."""

from __future__ import annotations

import functools
import warnings
from pathlib import Path

from huggingface_hub import HfApi, constants, get_token, hf_hub_download
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError
from huggingface_hub.utils import get_session, validate_repo_id

from rrgclinical.common.errors import UserError

SCORERS = "StanfordAIMI/RRG_scorers"
PATIENCE = 5.0  # seconds


@functools.cache
def reach_hub() -> None:
    """Ask once whether the hub answers; where not, its cache alone serves this process.

    The hub's client and transformers would try each file six times, half a minute in all.
    """
    if constants.HF_HUB_OFFLINE:
        return
    try:
        get_session().head(constants.ENDPOINT, timeout=PATIENCE)
    except Exception as error:  # httpx's or httpx2's, by the version of the hub's client
        constants.HF_HUB_OFFLINE = True
        reason = (str(error) or type(error).__name__).splitlines()[0]
        warnings.warn(
            f"{constants.ENDPOINT} does not answer ({reason}): files come from its cache alone, as "
            "with HF_HUB_OFFLINE=1",
            stacklevel=2,
        )


def download(repository: str, file: str, offline: str) -> Path:
    """The file in the local hub cache, downloaded into it first where it is absent.

    Args:
        repository: of the Hugging Face hub.
        file: its path there.
        offline: what to use without, for the error.

    Raises:
        UserError: it is neither in the cache nor to be had.
    """
    reach_hub()
    try:
        return Path(hf_hub_download(repository, file))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise UserError(
            f"cannot download {file} of {repository} ({reason}); pass its path instead: {offline}"
        ) from error


def require_upload(repository: str) -> None:
    """Raise UserError for what no upload to `repository` can be made with."""
    try:
        validate_repo_id(repository)
    except HFValidationError as error:
        raise UserError(f"{repository!r} is no repository of the hub; wanted OWNER/NAME") from error
    reach_hub()
    if constants.HF_HUB_OFFLINE:
        raise UserError(f"{constants.ENDPOINT} cannot be reached; export first, and push it later")
    if get_token() is None:
        raise UserError("the hub takes nothing without a token; `hf auth login`, or set HF_TOKEN")


def upload(directory: Path, repository: str) -> str:
    """Upload a directory by the hub's client, private where it is new; return its address.

    Raises:
        UserError: the hub refuses it. The directory stays.
    """
    try:
        hub = HfApi()
        hub.create_repo(repository, private=True, exist_ok=True)
        hub.upload_folder(repo_id=repository, folder_path=directory)
    except Exception as error:  # httpx's or httpx2's too, by the version of the hub's client
        if not isinstance(error, OSError) and not type(error).__module__.startswith("httpx"):
            raise
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise UserError(
            f"{directory} is whole, but cannot be pushed to {repository} ({reason}); mend that and "
            f"say: hf upload {repository} {directory}"
        ) from error
    return f"{constants.ENDPOINT}/{repository}"
