"""Put a pair of reports through implementations of a metric: `python -m experiments.metrics`.

It is the table of docs/evaluation.md (`experiments.page_table`). Rows are those that
`rrgtrain eval --compare-implementations` prints of a file of one study, and below them those of
functions that it does not ask: of one sentence, of torchmetrics, RadEval, and of RadGraph's scorer
on annotations written by hand, for its weights are not needed. The environment of `make bench
ROOM=rewards` has RadEval and scikit-learn, that of `make parity` torchmetrics, and radgraph goes
beside them by `pip install --no-deps`.
"""

from __future__ import annotations

import re
import shutil
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from experiments.page_table import PageTable, alone
from rrgclinical import to_binary
from rrgclinical.radgraph import radgraph_f1
from rrgclinical.radgraph.graph import Graph, RadGraphF1, build_graph
from rrgclinical.rules import RulesLabeller
from rrgclinical.scorecard.implementations import IMPLEMENTATIONS, Scored
from rrgclinical.text import meteor, sentence_bleu

REFERENCE = "The heart is normal in size. There is a small left pleural effusion. No pneumothorax."
ALIKE = "The heart is normal in size.\nSmall left pleural effusions. No pneumothorax."
PAIRS = (("No acute process", "No acute process"), (ALIKE, REFERENCE), (ALIKE.upper(), REFERENCE))
PRESENT, ABSENT = "Observation::definitely present", "Observation::definitely absent"
ANATOMY = "Anatomy::definitely present"
FINDINGS = (
    ("proces", ABSENT, "", ""),
    ("acute", ABSENT, "proces", "modify"),
    ("heart", ANATOMY, "", ""),
    ("size", ANATOMY, "heart", "modify"),
    ("normal", PRESENT, "heart", "located_at"),
    ("small", PRESENT, "effusion", "modify"),
    ("left", ANATOMY, "pleural", "modify"),
    ("pleural", ANATOMY, "", ""),
    ("effusion", PRESENT, "pleural", "located_at"),
    ("pneumothorax", ABSENT, "", ""),
)
"""Word without its s, RadGraph's label, the word it is related to, and how."""

Values = Mapping[tuple[str, str], float]
"""Of one pair, by metric and variant."""


def scored(report: str, reference: str) -> Scored:
    """Make a study of a pair, with labels by the rules."""
    pred, truth = (RulesLabeller().label([text]) for text in (report, reference))
    return Scored([report], [[reference]], pred, truth, meteor=False)


def compared(package: str, report: str, reference: str) -> Values:
    """Return the values of `--compare-implementations`, without METEOR's program."""
    rows = IMPLEMENTATIONS[package](scored(report, reference))
    return {(metric, variant): value for metric, variant, value in rows}


def of_ours(report: str, reference: str) -> Values:
    """Return ours: what a scorecard prints, the reward of one report, and RadGraph-F1."""
    values = {**compared("rrgclinical", report, reference)}
    values["BLEU-4", "reward of a report"] = float(sentence_bleu([report], [reference])[0][-1])
    for case in ("pypi", "master"):
        made = radgraph_f1(graph(report), graph(reference), case=case)
        for level, value in made._asdict().items():
            values["RadGraph-F1", f"{level}, by hand, case={case}"] = value
    return values


def of_our_meteor() -> list[Values]:
    """Return METEOR of each pair, as a reward has it."""
    _need_java()
    made = meteor(*map(list, zip(*PAIRS, strict=True)))
    return [{("METEOR", "ptb words"): float(value)} for value in made]


def of_nltk(report: str, reference: str) -> Values:
    """Return NLTK's, of one sentence too."""
    from nltk.translate.bleu_score import sentence_bleu

    own, theirs = report.split(), [reference.split()]
    with warnings.catch_warnings(action="ignore"):
        plain = float(sentence_bleu(theirs, own))
        again = float(sentence_bleu(theirs, own, auto_reweigh=True))
    return {
        ("BLEU-4", "sentence, no smoothing (default)"): plain,
        ("BLEU-4", "sentence, auto_reweigh"): again,
        **compared("nltk", report, reference),
    }


def of_sacrebleu(report: str, reference: str) -> Values:
    """Return sacrebleu's, divided by 100."""
    import sacrebleu

    value = sacrebleu.sentence_bleu(report, [reference]).score / 100
    return {("BLEU-4", "sentence (default)"): value, **compared("sacrebleu", report, reference)}


def of_java() -> list[Values]:
    """Return what pycocoevalcap makes of its own tokenizer's words, and METEOR, of each pair."""
    _need_java()
    from pycocoevalcap.meteor.meteor import Meteor
    from pycocoevalcap.tokenizer.ptbtokenizer import PTBTokenizer

    texts = [text for pair in PAIRS for text in pair]
    words = PTBTokenizer().tokenize({k: [{"caption": text}] for k, text in enumerate(texts)})
    own, theirs = ([words[k][0] for k in range(side, len(texts), 2)] for side in (0, 1))
    each = Meteor().compute_score(
        {k: [text] for k, text in enumerate(theirs)}, {k: [text] for k, text in enumerate(own)}
    )[1]
    made: list[Values] = []
    for report, reference, value in zip(own, theirs, each, strict=True):
        rows = compared("pycocoevalcap", report, reference)
        values = {(metric, "its PTB words"): row for (metric, _), row in rows.items()}
        made.append({**values, ("METEOR", "its PTB words"): float(value)})
    return made


def _need_java() -> None:
    if shutil.which("java") is None:
        raise ModuleNotFoundError("no program java", name="java")


def of_torchmetrics(report: str, reference: str) -> Values:
    """Return torchmetrics' functions, without ROUGE, which would fetch NLTK's sentences."""
    import torch
    from torchmetrics.functional import classification, text

    values = {}
    for smooth in (False, True):
        value = text.bleu_score([report], [[reference]], smooth=smooth)
        values["BLEU-4", f"smooth={smooth}"] = float(value)
    values["BLEU-4", "sacre_bleu_score"] = float(text.sacre_bleu_score([report], [[reference]]))
    study = scored(report, reference)
    cells = [torch.from_numpy(to_binary(ids).astype(int)) for ids in (study.pred, study.truth)]
    for average in ("macro", "micro"):
        made = classification.multilabel_f1_score(*cells, num_labels=14, average=average)
        values[f"{average} F1 of 14", "default"] = float(made)
    return values


def of_radeval(report: str, reference: str) -> Values:
    """Return RadEval's own BLEU and ROUGE."""
    from radeval.metrics.bleu.adapter import BleuMetric
    from radeval.metrics.rouge.adapter import RougeMetric

    values = {}
    for name, metric in (("BLEU-4", BleuMetric()), ("ROUGE-L F1", RougeMetric())):
        made = metric.compute([reference], [report])
        values[name, "default"] = float(made.get("bleu", made.get("rougeL")))
    return values


def graph(text: str) -> Graph:
    """Annotate a report of PAIRS as RadGraph-XL does: each finding, and where it lies."""
    words = re.findall(r"\w+", text)
    place = {word.lower().rstrip("s"): k for k, word in enumerate(words)}
    listed: list[tuple[Any, ...]] = []
    relations: list[tuple[Any, ...]] = []
    for name, label, other, relation in FINDINGS:
        if name in place:
            listed.append((place[name], place[name], label))
        if name in place and other in place:
            ends = [place[name]] * 2 + [place[other]] * 2
            relations.append((*ends, relation))
    spans = [(0, 0)] * len(words)  # which no score looks at
    return build_graph(words, spans, 1, sorted(listed), relations)


def of_radgraph(report: str, reference: str) -> Values:
    """Return RadGraph's scorer on the annotations by hand."""
    values = alone("radgraph.rewards").compute_reward(
        graph(report).official(), graph(reference).official(), "all"
    )
    levels = zip(RadGraphF1._fields, values, strict=True)
    return {("RadGraph-F1", f"{level}, by hand"): value for level, value in levels}


def each(values_of: Callable[[str, str], Values]) -> Callable[[], list[Values]]:
    """Call a function for each pair."""
    return lambda: [values_of(*pair) for pair in PAIRS]


def rows(
    values_of: Callable[[], list[Values]], published: Mapping[str, str]
) -> Iterator[list[str]]:
    """Yield the cells of a package's rows: a value a pair, and whose it is."""
    made = values_of()
    for metric, variant in made[0]:
        numbers = [_shown(values[metric, variant]) for values in made]
        whose = published.get(f"{metric}, {variant}", published.get(variant, ""))
        yield [metric, variant, *numbers, whose]


def _shown(value: float) -> str:
    return f"{value:.1e}" if 0 < abs(value) < 5e-5 else f"{value:.4f}"


R2GEN, CAPTIONS, RADEVAL, F1 = "R2Gen's line", "captioning's", "RadEval's", "label F1"
UNDEFINED = {"an undefined ratio is 0": F1, "zero_division=0": F1}
PACKAGES = {
    "rrgkern": (
        each(of_ours),
        {"r2gen words": R2GEN, "ptb words": CAPTIONS, "BLEU-4, space words": RADEVAL, **UNDEFINED},
    ),
    "java and rrgkern": (of_our_meteor, {"r2gen words": R2GEN, "ptb words": CAPTIONS}),
    "nltk": (each(of_nltk), {}),
    "sacrebleu": (each(of_sacrebleu), {}),
    "pycocoevalcap": (each(partial(compared, "pycocoevalcap")), {}),
    "java and pycocoevalcap": (of_java, {"its PTB words": CAPTIONS}),
    "rouge-score": (each(partial(compared, "rouge-score")), {"with stemmer": RADEVAL}),
    "torchmetrics": (each(of_torchmetrics), {}),
    "radeval": (each(of_radeval), {"default": RADEVAL}),
    "radgraph": (each(of_radgraph), {"partial, by hand": "RadGraph-F1"}),
    "scikit-learn": (each(partial(compared, "scikit-learn")), UNDEFINED),
}
TABLE = PageTable(
    "experiments.metrics",
    "evaluation.md",
    ("metric", "variant", "identical", "alike", "alike, capitals", "published rows"),
    {package: partial(rows, *about) for package, about in PACKAGES.items()},
)


if __name__ == "__main__":
    sys.exit(TABLE.main(sys.argv[1:]))
