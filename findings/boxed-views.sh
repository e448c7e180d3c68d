#!/bin/sh
# math-verify 0.9.0 and mathruler 0.1.0, which judge boxed answers as rewards (TRL, verl), read a word of capitals as a
# product of variables: `\boxed{AP}` is right where PA is asked, "no" where "on" is, "RLL" where "LLR" is. A unit
# behind a number is dropped: math-verify takes 5 mm for 5 cm and 3 months for 3 years, mathruler the second, and 5
# inches for 5 cm. `\text{PA}` is kept apart by the first alone. Guess: wrong answers. Seen: below. So: a reward on the
# view, a lobe or a measurement that these judge pays for the opposite. Compare such answers as text.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" math-verify==0.9.0 latex2sympy2-extended==1.11.0 mathruler==0.1.0 \
    pylatexenc==2.10 sympy==1.14.0 tqdm==4.70.1
PYTHONPATH="$site" python3 -W ignore - <<'EOF'
from math_verify import parse, verify
from mathruler.grader import grade_answer

# answer that is asked, answer given, right by math-verify, right by mathruler
PAIRS = [("PA", "AP", True, True), ("on", "no", True, True), ("LLR", "RLL", True, True),
         ("5 cm", "5 mm", True, False), ("5 cm", "5 inches", True, True), ("3 years", "3 months", True, True),
         (r"\text{PA}", r"\text{AP}", False, True), ("left", "right", False, False), ("yes", "no", False, False)]
for reference, answer, *both in PAIRS:
    verified = verify(parse(rf"\boxed{{{reference}}}"), parse(rf"\boxed{{{answer}}}"))
    graded = grade_answer(answer, reference)
    print(f"{answer} for {reference}: math-verify {verified}, mathruler {graded}")
    assert [verified, graded] == both
EOF
