"""`python -m rrgclinical.rules "text"`: what the rules read, sentence by sentence."""

from __future__ import annotations

import sys

from rrgclinical.labels import OBSERVATIONS, ClassId
from rrgclinical.rules.assertion import read_sentence
from rrgclinical.rules.concepts import CONCEPTS
from rrgclinical.rules.cues import SEVERITIES, SIDES, ZONES
from rrgclinical.rules.labeller import RulesLabeller
from rrgclinical.rules.sentences import split_sentences


def main(arguments: list[str]) -> int:
    """Prints the mentions of every sentence, then the labels; 2 when no text is given."""
    if not arguments:
        print('usage: python -m rrgclinical.rules "text"', file=sys.stderr)
        return 2
    text = " ".join(arguments)
    for start, end in split_sentences(text):
        print(text[start:end])
        for line in describe(text[start:end]):
            print(f"    {line}")
    labels = RulesLabeller().label([text])[0]
    said = zip(OBSERVATIONS, labels.tolist(), strict=True)
    print(", ".join(f"{name} {ClassId(value).name.lower()}" for name, value in said if value))
    return 0


def describe(sentence: str) -> list[str]:
    """`status severity side zone finding` of every mention."""
    return [
        " ".join(
            filter(
                None,
                (
                    ClassId(mention.status).name.lower(),
                    SEVERITIES[mention.severity],
                    SIDES[mention.side],
                    ZONES[mention.zone],
                    CONCEPTS[mention.concept].name,
                ),
            )
        )
        for mention in read_sentence(sentence)
        if mention.status != ClassId.BLANK
    ]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
