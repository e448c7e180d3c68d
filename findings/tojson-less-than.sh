#!/bin/sh
# Jinja 3.1.6: the filter `tojson` writes <, >, & and ' as escapes that a browser is safe with. A prompt's template that puts
# the earlier report in as JSON has the model read "nodule \u003c5 mm". JSON reads it back; a language model sees six
# signs in place of one. Guess: what json.dumps writes. Seen: below.
# Its page says it for HTML; transformers puts a `tojson` of its own in its place for that.
# So: the same template says other things in Jinja alone and in `apply_chat_template`. Give plain Jinja that filter.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" jinja2==3.1.6
PYTHONPATH="$site" python3 - <<'EOF'
import json

import jinja2

report = {"report": "Patient's nodule <5 mm"}
template = "Earlier: {{ report | tojson }}"
escaped = jinja2.Template(template).render(report=report)
environment = jinja2.Environment()
environment.filters["tojson"] = json.dumps
plain = environment.from_string(template).render(report=report)
print(escaped)
print(plain)
assert escaped == 'Earlier: {"report": "Patient\\u0027s nodule \\u003c5 mm"}'
assert plain == "Earlier: " + json.dumps(report)
assert json.loads(escaped.removeprefix("Earlier: ")) == report
EOF
