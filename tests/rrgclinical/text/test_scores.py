"""Word metrics of a corpus: pycocoevalcap's and rouge-score's numbers on the same words."""

from __future__ import annotations

import re
import shutil
from itertools import chain

import numpy as np
import pytest
from pycocoevalcap.bleu.bleu import Bleu
from pycocoevalcap.cider.cider import Cider
from pycocoevalcap.meteor.meteor import Meteor
from pycocoevalcap.rouge.rouge import Rouge
from rouge_score.rouge_scorer import RougeScorer

from rrgclinical.common.errors import UserError
from rrgclinical.metrics import intervals, paired, subgroup, values
from rrgclinical.text import TOKENIZATIONS, meteor, meteor_of, text_scores

pytestmark = pytest.mark.usefixtures("few_paraphrases")
WORDS = ("no", "effusion", "effusions", "heart", "is", "the", "a")
WORDS += ("épanchement", "лёгкие", "胸", "-")


def corpus(seed: int, size: int, references: int = 3) -> tuple[list[str], list[list[str]]]:
    """Texts of 0 to 11 words (the first two of 0 and 1), with one reference or more."""
    rng = np.random.default_rng(seed)

    def text() -> str:
        return " ".join(rng.choice(WORDS, size=rng.integers(0, 12)))

    counts = rng.integers(1, references + 1, size=size)
    reports = ["", "effusion", *(text() for _ in range(size - 2))]
    return reports, [[text() for _ in range(count)] for count in counts]


def theirs(reports: list[str], references: list[list[str]]) -> dict[str, float]:
    gts, res = dict(enumerate(references)), {i: [text] for i, text in enumerate(reports)}
    bleu = Bleu(4).compute_score(gts, res, verbose=0)[0]
    found = {f"bleu_{n}": value for n, value in enumerate(bleu, 1)}
    found["rouge_l"] = Rouge().compute_score(gts, res)[0]
    if any(map(any, references)):  # the package raises where no reference has a word
        found["cider"] = Cider().compute_score(gts, res)[0]
    return found


def ours(reports, references) -> dict[str, float]:
    return values(text_scores(reports, references, tokenization="space", meteor=False))


CORNERS = [([""], [["a"]]), (["a"], [[""]]), (["a"], [["a"]]), (["", "b"], [["", "a b"], ["b"]])]
CORNERS += [(["a b c d", "x"], [["a b c d e"], ["x y"]])]


@pytest.mark.parametrize(("reports", "references"), [*map(corpus, range(6), [40] * 6), *CORNERS])
def test_values_are_pycocoevalcaps(reports, references) -> None:
    """Several references, empty reports, one-word reports, accents and other alphabets."""
    found, wanted = ours(reports, references), theirs(reports, references)
    assert {name: found[name] for name in wanted} == pytest.approx(wanted, rel=1e-12, abs=1e-15)


@pytest.mark.parametrize("seed", range(3))
def test_every_reports_value_is_pycocoevalcaps(seed) -> None:
    reports, references = corpus(seed, 30)
    scores = text_scores(reports, references, tokenization="space", meteor=False)
    gts, res = dict(enumerate(references)), {i: [text] for i, text in enumerate(reports)}
    for name, scorer in (("rouge_l", Rouge()), ("cider", Cider())):
        wanted = scorer.compute_score(gts, res)[1]
        np.testing.assert_allclose(scores.each[name], wanted, rtol=1e-12, atol=1e-15)
    rouge = RougeScorer(["rougeL"], use_stemmer=False)
    plain = [text for text in reports if text.isascii()]
    assert len(plain) > 2
    scores = text_scores(plain, [["the heart", "no effusion is"]] * len(plain), meteor=False)
    best = [rouge.score_multi(["the heart", "no effusion is"], text) for text in plain]
    assert scores.each["rouge_l_f1"].tolist() == [score["rougeL"].fmeasure for score in best]


def test_no_words_at_all_score_nothing() -> None:
    found = ours(["", ""], ["", [""]])
    # pycocoevalcap's ROUGE-L reads no word as one empty word, and two of them agree
    assert found.pop("rouge_l") == 1.0
    assert set(found.values()) == {0.0}


def test_weights_count_a_report_as_often() -> None:
    """BLEU of drawn reports is BLEU of those reports; document frequencies of CIDEr stay."""
    reports, references = corpus(4, 25)
    scores = text_scores(reports, references, tokenization="space", meteor=False)
    counts = np.random.default_rng(0).multinomial(25, np.full(25, 1 / 25))
    drawn = np.repeat(np.arange(25), counts)
    found = scores(counts[None] * 1.0)
    wanted = theirs([reports[i] for i in drawn], [references[i] for i in drawn])
    for name in ("bleu_1", "bleu_2", "bleu_3", "bleu_4", "rouge_l"):
        assert found[name][0] == pytest.approx(wanted[name], rel=1e-12)
    assert found["cider"][0] == pytest.approx(scores.each["cider"][drawn].mean())


def test_meteor_of_the_programs_counts_by_hand() -> None:
    """Without Java: "heart size is normal" against "the heart is normal .", as 1.5 counts them."""
    counts = np.zeros((2, 23))
    counts[0, [0, 1, 2, 3, 4, 5, 6, 7, 20, 21, 22]] = 4, 5, 1, 3, 2, 2, 1, 1, 2, 3, 3
    # content weighs 3/4 and function words 1/4; recall weighs 0.15 over precision's 0.85
    precision, recall = 1.75 / 2.5, 1.75 / 2.25
    mean = precision * recall / (0.85 * precision + 0.15 * recall)
    wanted = mean * (1 - 0.6 * (2 / 3) ** 0.2)
    assert meteor_of(counts).tolist() == pytest.approx([wanted, 0.0])
    # one stem match (0.6) of two words, the other exact: a perfect pair, whose chunk is left out
    counts[1, [0, 1, 4, 5, 8, 9, 20, 21, 22]] = 2, 2, 1, 1, 1, 1, 0, 2, 2
    assert meteor_of(counts)[1] == pytest.approx(0.8)
    # beside the first its words count, and of chunks the first's two alone, over five words
    content, function = (2 + 1.6) * 0.75, 1 * 0.25
    precision, recall = ((content + function) / (words + 1.5) for words in (2.5, 2.25))
    mean = precision * recall / (0.85 * precision + 0.15 * recall)
    wanted = mean * (1 - 0.6 * (2 / 5) ** 0.2)
    assert meteor_of(counts.sum(0)[None])[0] == pytest.approx(wanted)


java = pytest.mark.skipif(shutil.which("java") is None, reason="METEOR 1.5 is a Java program")


def almost_perfect(seed: int, size: int) -> tuple[list[str], list[list[str]]]:
    rng = np.random.default_rng(seed)
    references = [" ".join(rng.choice(WORDS[:7], size=rng.integers(1, 9))) for _ in range(size)]
    changes = [
        lambda words: words,
        lambda words: [word.replace("effusions", "effusion") for word in words],
        lambda words: words[1:],
        lambda words: [*words, "heart"],
        lambda words: words[::-1],
    ]
    reports = [" ".join(changes[i % 5](text.split())) for i, text in enumerate(references)]
    return reports, [
        [text, "no heart"] if i % 7 == 0 else [text] for i, text in enumerate(references)
    ]


@java
def test_meteor_is_the_program_of_pycocoevalcap() -> None:
    """Compare each report, the corpus, and drawn ones: perfect pairs alone, among others, none."""
    # a separator within a text parts no reference in two, which the package overlooks
    separated = ["no ||| effusion"], [["no ||| effusion"]]
    parts = zip(corpus(7, 30), almost_perfect(8, 29), separated, strict=True)
    reports, references = ([*chain.from_iterable(part)] for part in parts)
    scores = text_scores(reports, references, tokenization="space")
    assert scores.missing == {}
    program = Meteor()

    def wanted(rows: np.ndarray) -> tuple[float, list[float]]:
        gts = {i: [t.replace("|||", "") for t in references[row]] for i, row in enumerate(rows)}
        return program.compute_score(gts, {i: [reports[row]] for i, row in enumerate(rows)})

    mean, each = wanted(np.arange(60))
    assert values(scores)["meteor"] == pytest.approx(mean, rel=1e-12)
    np.testing.assert_allclose(scores(np.eye(60))["meteor"], each, rtol=1e-12, atol=1e-15)
    perfect = np.flatnonzero(np.array(each) == 1)
    assert 6 < len(perfect) < 30
    rng = np.random.default_rng(0)
    drawn = [perfect, np.setdiff1d(np.arange(60), perfect), np.tile(np.arange(15), 2)]
    # a share of perfect pairs as papers of a normal template have it, and what a bootstrap draws
    drawn += [np.concatenate([rng.choice(perfect, 20), rng.choice(60, few)]) for few in (1, 5, 20)]
    drawn += [rng.choice(60, 60) for _ in range(4)]
    found = scores(np.array([np.bincount(rows, minlength=60) * 1.0 for rows in drawn]))["meteor"]
    np.testing.assert_allclose(found, [wanted(rows)[0] for rows in drawn], rtol=1e-12)
    assert found[0] == pytest.approx(1.0, rel=1e-12)
    program.meteor_p.communicate()
    # intervals and paired differences are of the same corpora
    alone = subgroup(scores, np.isin(np.arange(60), perfect))
    assert intervals(alone, resamples=50)["meteor"] == pytest.approx((1.0, 1.0), rel=1e-12)
    assert paired(alone, alone, resamples=50)["meteor"].difference == 0


def test_perfect_reports_have_the_most_of_every_metric() -> None:
    """In every tokenization; METEOR is the program's, of corpora with perfect reports, above."""
    texts = [
        "The heart is large. No effusion.",
        "Clear lungs seen today.",
        "Small left nodule, old!",
    ]
    for name in [n for n in TOKENIZATIONS if n != "ptb-java" or shutil.which("java")]:
        for rows in (texts, texts[::-1], texts * 2):
            most = values(text_scores(rows, rows, tokenization=name, meteor=False))
            assert most.pop("cider") == pytest.approx(10.0), name
            assert most == {key: pytest.approx(1.0, rel=1e-6) for key in most}, name
            assert {"bleu_1", "rouge_l", "rouge_l_f1"} <= set(most)


@pytest.mark.parametrize(
    ("lacking", "reason"),
    [
        ("java.shutil.which", "is a Java program, and there is no java on the PATH"),
        ("java.find_spec", "pycocoevalcap is not installed: pip install 'rrgkern[meteor]'"),
    ],
)
def test_meteor_that_cannot_run_is_missing_with_the_reason(monkeypatch, lacking, reason) -> None:
    monkeypatch.undo()  # the short table is found without asking for the package
    monkeypatch.setattr("rrgclinical.text.java.shutil.which", lambda name: name)
    monkeypatch.setattr(f"rrgclinical.text.{lacking}", lambda name: None)
    scores = text_scores(["no effusion"], ["no effusion"])
    assert "meteor" not in values(scores) and "cider" in values(scores)
    assert scores.missing["meteor"].endswith(reason)
    assert text_scores(["a"], ["a"], meteor=False).missing == {"meteor": "METEOR was not asked for"}
    with pytest.raises(UserError, match=f"tokenization ptb-java: .*{re.escape(reason)}"):
        text_scores(["no effusion"], ["no effusion"], tokenization="ptb-java")
    with pytest.raises(UserError, match=f"METEOR: .*{re.escape(reason)}"):
        meteor(["no effusion"], ["no effusion"])
