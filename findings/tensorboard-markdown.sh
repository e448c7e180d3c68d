#!/bin/sh
# TensorBoard 2.21.0 shows text (`add_text`) as Markdown: "4*3*2 cm" is 432 cm with a slanted 3, a list that begins at "3."
# begins at 1, lines run together, and a line that begins with four blanks is code. Guess: as it is written. Seen: below,
# by the function that its text panel calls; the event file holds the text as it is. So: who reads generated reports in
# the panel marks down sizes and numbers that the model did not write. Log each report between lines of ``` .
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" tensorboard==2.21.0
PYTHONPATH="$site" python3 - <<'PY'
import html
import re

from tensorboard.plugin_util import markdown_to_safe_html

SHOWN = {
    "Mass of 4*3*2 cm.": "Mass of 432 cm.",
    "3. No effusion.\n4. Heart is normal.": "<ol>No effusion.Heart is normal.</ol>",
    "Nodule <5 mm.": "Nodule <5 mm.",
    "Mass of 4 * 3 * 2 cm.": "Mass of 4 * 3 * 2 cm.",
}


def shown(text):
    """Return what the panel shows: its HTML without tags but lists, signs of HTML read."""
    bare = re.sub(r"</?(p|em|li|pre|code)>|\n", "", markdown_to_safe_html(text))
    return html.unescape(bare)


for text, panel in SHOWN.items():
    print(f"{text!r}: {markdown_to_safe_html(text)!r}, to the eye {shown(text)!r}")
    assert shown(text) == panel
fenced = shown(f"```\n{'Mass of 4*3*2 cm.'}\n```")
print(f"between lines of ```: {fenced!r}")
assert "4*3*2" in fenced
PY
