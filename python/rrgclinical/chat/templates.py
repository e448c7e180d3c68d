"""Fill a judge's prompt with a report and its reference."""

from __future__ import annotations

from pathlib import Path

from rrgclinical.common.errors import UserError
from rrgclinical.common.files import read_whole_text


def read_template(judge: str, file: str | Path) -> str:
    """Read a prompt with one {reference} and one {candidate}; UserError names the judge."""
    path = Path(file).expanduser()
    try:
        text = read_whole_text(path, "utf-8-sig")
    except OSError as error:
        raise UserError(f"{judge}: prompt {path} cannot be read ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise UserError(
            f"{judge}: prompt {path} is not UTF-8 (byte {error.start}); save it as UTF-8"
        ) from error
    if "\0" in text:
        raise UserError(f"{judge}: prompt {path} holds a NUL; save it as UTF-8 text")
    for slot in ("{reference}", "{candidate}"):
        if text.count(slot) != 1:
            raise UserError(
                f"{judge}: prompt {path} holds {slot} {text.count(slot)} times; want one"
            )
    return text


def filled(template: str, report: str, reference: str) -> str:
    """Put a report and its reference in their places; either may hold braces."""
    text = template.replace("{candidate}", "\0").replace("{reference}", reference)
    return text.replace("\0", report)
