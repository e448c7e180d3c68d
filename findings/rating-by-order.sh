#!/bin/sh
# trueskill 0.4.5, openskill 6.2.0: two systems that win 50 comparisons each are rated by who won last. The first's 50 wins before
# the second's end with a wide gap, eight and six times the uncertainty that is told, and wins in turns with none. Guess: alike, but for a
# rest. Seen: below.
# So: a table of preferences between reports ranks them by the order of its file. Fit all comparisons at once (Bradley-Terry), or
# shuffle and take a mean over many orders.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" trueskill==0.4.5 openskill==6.2.0
PYTHONPATH="$site" python3 - <<'EOF'
import trueskill
from openskill.models import PlackettLuce

BLOCKS, TURNS = [True] * 50 + [False] * 50, [True, False] * 50


def by_trueskill(wins):
    a, b = trueskill.Rating(), trueskill.Rating()
    for first in wins:
        (a, b) = trueskill.rate_1vs1(a, b) if first else trueskill.rate_1vs1(b, a)[::-1]
    return b.mu - a.mu, (a.sigma + b.sigma) / 2


def by_openskill(wins):
    model = PlackettLuce()
    a, b = model.rating(), model.rating()
    for first in wins:
        teams = model.rate([[a], [b]] if first else [[b], [a]])
        ((a,), (b,)) = teams if first else teams[::-1]
    return b.mu - a.mu, (a.sigma + b.sigma) / 2


for name, rate in (("trueskill", by_trueskill), ("openskill", by_openskill)):
    (gap, sigma), (turns, sigma_turns) = rate(BLOCKS), rate(TURNS)
    print(f"{name}: the later winner leads by {gap:.1f} (sigma {sigma:.1f}), in turns by {turns:.1f} ({sigma_turns:.1f})")
    assert gap > 10 and gap > 6 * sigma and abs(turns) < gap / 5
EOF
