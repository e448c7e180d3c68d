"""Split sentences by this project's rules, or by the package's own."""

from __future__ import annotations

from collections.abc import Callable

from rrgclinical.common.errors import UserError
from rrgclinical.rules.sentences import split_sentences

Splitter = Callable[[str], list[tuple[int, int]]]

SPLITTERS = ("rules", "pyrush")


def splitter(name: str) -> Splitter:
    """text -> (start, end) of its sentences, without outer white space.

    "rules" is this project's own and needs nothing. "pyrush" is medspacy's PyRuSH, which the
    RaTEScore package calls (about 14 ms a report): wanted for values equal to the package's, and
    only where medspacy is installed.

    Raises:
        UserError: another name, or medspacy is not there.
    """
    if name == "rules":
        return split_sentences
    if name == "pyrush":
        return _pyrush()
    raise UserError(f"extractor ratescore: sentences {name!r}; choose {' or '.join(SPLITTERS)}")


def _pyrush() -> Splitter:
    try:
        import medspacy
    except ImportError as error:
        raise UserError(
            f"extractor ratescore: sentences=pyrush needs medspacy ({error}); it wants NumPy 1 and "
            "an environment of its own, or use sentences=rules"
        ) from error
    read = medspacy.load(medspacy_enable=["medspacy_pyrush"])

    def split(text: str) -> list[tuple[int, int]]:
        spans = []
        for sentence in read(text).sents:
            piece = text[sentence.start_char : sentence.end_char]
            stripped = piece.strip()
            if stripped:
                start = sentence.start_char + len(piece) - len(piece.lstrip())
                spans.append((start, start + len(stripped)))
        return spans

    return split
