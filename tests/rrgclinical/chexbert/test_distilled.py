"""A CheXbert learned from another labeller: it learns, repeats itself, and points at findings."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from rrgclinical import OBSERVATIONS, build_labeller
from rrgclinical.chexbert import piece_saliency
from rrgclinical.chexbert.distilled import distil
from rrgtrain.errors import UserError

REPORTS = [
    "The heart is enlarged. There is a small left pleural effusion. No pneumothorax.",
    "Lungs are clear. No pleural effusion or pneumothorax. Heart size is normal.",
    "Mild edema. No focal consolidation. There is a healed rib fracture.",
    "There is a left pneumothorax. The heart is normal in size. No edema.",
]
RULES = build_labeller("rules")


@pytest.fixture(scope="module")
def learned():
    return distil(RULES, REPORTS, steps=100)


def test_it_labels_what_it_learned_from(learned) -> None:
    shuffled = [". ".join(reversed(r.rstrip(".").split(". "))) + "." for r in REPORTS]
    found, wanted = learned.label(shuffled), RULES.label(shuffled)
    assert (found == wanted).mean() > 0.95
    untrained = distil(RULES, REPORTS, steps=1)
    assert (untrained.label(shuffled) == wanted).mean() < (found == wanted).mean()


def test_the_same_arguments_give_the_same_bits(learned) -> None:
    state = torch.get_rng_state()
    one, two = (distil(RULES, REPORTS, seed=3, steps=2) for _ in range(2))
    assert torch.equal(torch.get_rng_state(), state), "the run's own draws are not moved"
    assert torch.equal(one.class_logits(REPORTS), two.class_logits(REPORTS))
    assert not any(p.requires_grad for p in learned.network.parameters())


def test_the_gradient_is_largest_where_the_finding_stands(learned) -> None:
    report = "Lungs are clear. There is a left pneumothorax. Heart size is normal."
    truth = np.zeros((1, 14), dtype=np.int8)
    truth[0, OBSERVATIONS.index("Pneumothorax")] = 1
    found = piece_saliency(learned, [report], truth)
    inside = [report.index("There") <= a < report.index("Heart") for a, _ in found.spans.tolist()]
    top = int(found.saliency.argmax())
    assert inside[top], report[slice(*found.spans[top].tolist())]


def test_nothing_to_learn_from() -> None:
    with pytest.raises(UserError, match="learns from training reports, and there are none"):
        distil(RULES, ["", "  "])
