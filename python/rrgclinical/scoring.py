"""Score a list of reports against a list of references, in one call."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rrgclinical.backends import build_labeller
from rrgclinical.common.arguments import check_pairs
from rrgclinical.common.nothing import check_references


def score(
    reports: Sequence[str], references: Sequence[str], *, labeller: str = "rules"
) -> dict[str, float]:
    """Score reports against their references, as the scorecard of `rrgtrain eval` does.

    Args:
        reports: R predictions; an empty one counts as a report that says nothing.
        references: R texts, one for each report in its order.
        labeller: what reads the 14 labels, a name that `build_labeller` knows.

    Returns:
        The metrics of all R reports by name, in [0, 1] but for `cider` (0 to 10): labels
        (`micro_f1_13`, `macro_f1`, ...), `severity`, and words (`bleu_4`, `rouge_l`, ...) by PTB's
        tokenization. Averages over findings are left out where no reference has one. By `rules`
        they are not CheXbert's. Intervals are the scorecard's.

    Raises:
        TypeError: what is no list of str.
        ValueError: no report, lists of different length, or a reference that says nothing.
        UserError: a labeller that is unknown or lacks its files.
    """
    texts, truths = check_pairs(reports, references)
    if not texts:
        raise ValueError("0 reports and references; wanted at least one of each")
    check_references(truths)
    # these load NLTK and the rules
    from rrgclinical.metrics import frequent_labels, label_scores, mean_scores, together, values
    from rrgclinical.scorecard import defined
    from rrgclinical.severity import Severity
    from rrgclinical.text import text_scores

    reader = build_labeller(labeller)
    got, truth = reader.label(texts), reader.label(truths)
    frequent = frequent_labels(truth)
    severity = np.array([judged.score for judged in Severity().judge(texts, truths)])
    scores = together(
        label_scores(got, truth, frequent),
        mean_scores({"severity": severity}),
        text_scores(texts, truths, meteor=False),
    )
    return defined(values(scores), truth, frequent)
