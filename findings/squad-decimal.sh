#!/bin/sh
# torchmetrics 1.9.0: `SQuAD`, which visual question answering of medical images is scored by too, takes punctuation out of
# both answers: "15 cm" is an exact match of "1.5 cm", "-2" of "2". Guess: no exact match. Seen: below.
# So: a measurement wrong by ten times earns the full score. Compare numbers as numbers beside it.
# PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu brings the small build of torch.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" torchmetrics==1.9.0 torch==2.13.0 numpy==2.4.6
PYTHONPATH="$site" python3 -W ignore - <<'EOF'
from torchmetrics.functional.text import squad


def scores(answer: str, truth: str) -> tuple[float, float]:
    result = squad([{"prediction_text": answer, "id": "1"}], [{"answers": {"answer_start": [0], "text": [truth]}, "id": "1"}])
    return result["exact_match"].item(), result["f1"].item()


for answer, truth in (("15 cm", "1.5 cm"), ("2 mm", "-2 mm"), ("25 cm", "1.5 cm")):
    exact, f1 = scores(answer, truth)
    print(f"{answer!r} for {truth!r}: exact {exact:.0f}, F1 {f1:.0f}")
    assert exact == (0 if answer == "25 cm" else 100)
EOF
